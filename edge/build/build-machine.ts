import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { randomName } from '../../sdk/index.ts';
import type { BuildMachine, GuestExit, GuestHttpAnswer, GuestRunOptions } from '../../templates/index.ts';
import type { ProcessStatus, SandboxChannel } from '../guest/index.ts';
import { GuestHttp } from '../machine/guest-http.ts';
import { serviceId, serviceTail } from '../machine/service-output.ts';
import type { VmmProcess } from '../vmm/port.ts';

/** Time for the service to handle closed connections, under emulation and load. */
const serviceNoticeMs = 200;

const toExit = (status: ProcessStatus): GuestExit => ({
  exitCode: status.exitCode,
  signal: status.signal,
  isTimedOut: status.isTimedOut,
});

/** What the publish pipeline does to a machine, in terms of its guest channel. Owns the VMM, the channel and its connections. */
export class ChannelBuildMachine implements BuildMachine {
  readonly id: string;
  readonly gone: Promise<string>;
  protected readonly vmm: VmmProcess;
  protected readonly channel: SandboxChannel;
  readonly #http = new Map<number, GuestHttp>();

  constructor(vmm: VmmProcess, channel: SandboxChannel) {
    this.id = vmm.id;
    this.vmm = vmm;
    this.channel = channel;
    this.gone = vmm.exited.then(
      (exit) =>
        `the virtual machine ended (${exit.signalName ?? `exit code ${exit.exitCode}`})\n${exit.consoleTail}\n${exit.stderrTail}`,
    );
  }

  async run(argv: readonly string[], options: GuestRunOptions): Promise<GuestExit> {
    const id = `build-${randomName(12)}`;
    const { signal } = options;
    await this.channel.startProcess(
      {
        id,
        argv,
        timeoutMs: options.timeoutMs,
        stdin: options.stdin !== undefined,
        ...(options.user === undefined ? {} : { user: options.user }),
        ...(options.env === undefined ? {} : { env: options.env }),
        ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      },
      { signal },
    );
    const outputs = (['stdout', 'stderr'] as const).map(async (name) => {
      const output = await this.channel.processOutput(id, name, { follow: true, signal });
      for await (const chunk of output.setEncoding('utf8')) options.onOutput?.(chunk as string);
    });
    const input = options.stdin === undefined ? Promise.resolve() : this.#feed(id, options.stdin, signal);
    // A process may end without reading all of its input; its exit status tells more than the broken pipe.
    await Promise.all([...outputs, input.catch(() => {})]);
    const exit = toExit(await this.channel.waitProcess(id, { signal }));
    // Clones shall not have the steps of their build among their processes.
    await this.channel.deleteProcess(id, { signal });
    return exit;
  }

  async #feed(id: string, input: Readable, signal: AbortSignal): Promise<void> {
    let offset = 0;
    for await (const chunk of input) {
      ({ offset } = await this.channel.writeStdin(id, chunk as Buffer, { offset, signal }));
    }
    await this.channel.writeStdin(id, new Uint8Array(), { offset, isLast: true, signal });
  }

  async startService(
    argv: readonly string[],
    options: Pick<GuestRunOptions, 'user' | 'env' | 'cwd' | 'signal'>,
  ): Promise<void> {
    const { signal, ...rest } = options;
    await this.channel.startProcess({ id: serviceId, argv, ...rest }, { signal });
  }

  async serviceExit(options: { readonly signal: AbortSignal }): Promise<GuestExit | null> {
    const status = await this.channel.processStatus(serviceId, options);
    return status.state === 'running' ? null : toExit(status);
  }

  serviceOutput(options: { readonly signal: AbortSignal }): Promise<string> {
    return serviceTail(this.channel, options);
  }

  async http(
    port: number,
    request: { readonly method: string; readonly path: string; readonly body?: string },
    options: { readonly signal: AbortSignal },
  ): Promise<GuestHttpAnswer> {
    let http = this.#http.get(port);
    if (http === undefined) {
      http = new GuestHttp(this.channel, { port, connections: 4 });
      this.#http.set(port, http);
    }
    return http.probe(request, options);
  }

  consoleTail(): Promise<string> {
    return this.vmm.consoleTail();
  }

  /**
   * Closes connections and lets the service see it, so that no half-open one gets into a snapshot: every clone would begin
   * with its reset.
   */
  protected async closeConnections(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.#http.values()].map((http) => http.close()));
    this.#http.clear();
    // The channel keeps order: when this is answered, the agent has closed its sockets.
    await this.channel.ping({ signal });
    await sleep(serviceNoticeMs, undefined, { signal });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#http.values()].map((http) => http.destroy()));
    this.channel.close();
    await this.vmm.dispose();
  }
}
