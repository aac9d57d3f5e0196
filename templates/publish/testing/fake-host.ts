/** An in-memory peer of the edge: it runs no machine, but keeps the files, order and failures of one that does. */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { GatewayError } from '../../../sdk/index.ts';
import type { TemplateDefinition } from '../../definition/index.ts';
import {
  type BootedTemplate,
  type BuildMachine,
  type GuestExit,
  type GuestHttpAnswer,
  type GuestImage,
  type GuestRunOptions,
  type SnapshotHost,
  snapshotFileNames,
} from '../host-port.ts';

/** Places where the peer can be told to misbehave, in the order a build meets them. */
export const failurePoints = [
  'image',
  'boot',
  'copy',
  'run',
  'startService',
  'serviceExit',
  'warmup',
  'beforeSnapshot',
  'capture',
  'checksums',
  'restore',
  'verify',
] as const;
export type FailurePoint = (typeof failurePoints)[number];

export interface FakeHostOptions {
  /** Thrown (or, for steps inside the guest, acted out) at that point. */
  readonly fail?: Partial<Record<FailurePoint, Error>>;
  /** Answers of the service; default 200 for everything. */
  readonly answer?: (
    request: { method: string; path: string; body?: string },
    isRestored: boolean,
  ) => GuestHttpAnswer;
  /** What the service has printed. */
  readonly serviceOutput?: string;
  readonly fingerprint?: Readonly<Record<string, string>>;
  /** Awaited at every point; lets a test hold a build or end its machine. */
  readonly onPoint?: (point: FailurePoint, machine: FakeMachine | undefined) => Promise<void> | void;
}

const done: GuestExit = { exitCode: 0, signal: null, isTimedOut: false };
const crashed: GuestExit = { exitCode: 1, signal: null, isTimedOut: false };

/** Machines, calls and files of one fake host. */
export class FakeHost implements SnapshotHost {
  readonly accelerator = 'tcg';
  readonly fingerprint: Readonly<Record<string, string>>;
  readonly options: FakeHostOptions;
  /** Machines that were made and not disposed. */
  readonly alive = new Set<FakeMachine>();
  /** What was asked, in order: `boot`, `run …`, `http GET /` … */
  readonly calls: string[] = [];
  /** Tars that were fed to `run`. */
  readonly copies: Buffer[] = [];
  readonly image0: GuestImage;

  /** @param imageDirectory holds the kernel, initrd and root that the peer answers with; made by {@link makeImages} */
  constructor(imageDirectory: string, options: FakeHostOptions = {}) {
    this.options = options;
    this.fingerprint = options.fingerprint ?? { vmm: 'fake 1' };
    this.image0 = {
      kernelPath: join(imageDirectory, 'kernel'),
      kernelDigest: 'sha256:kernel',
      initrdPath: join(imageDirectory, 'initrd'),
      initrdDigest: 'sha256:initrd',
      rootPath: join(imageDirectory, 'root'),
      rootDigest: 'sha256:root',
    };
  }

  static async makeImages(directory: string): Promise<void> {
    for (const name of ['kernel', 'initrd', 'root']) await writeFile(join(directory, name), name);
  }

  async at(point: FailurePoint, machine?: FakeMachine): Promise<Error | undefined> {
    await this.options.onPoint?.(point, machine);
    return this.options.fail?.[point];
  }

  async #guard(point: FailurePoint, signal: AbortSignal, machine?: FakeMachine): Promise<void> {
    const error = await this.at(point, machine);
    signal.throwIfAborted();
    if (error !== undefined) throw error;
  }

  async image(
    _definition: TemplateDefinition,
    { onOutput, signal }: { readonly onOutput: (text: string) => void; readonly signal: AbortSignal },
  ): Promise<GuestImage> {
    this.calls.push('image');
    onOutput('unpacking packages\n');
    await this.#guard('image', signal);
    return this.image0;
  }

  async boot(
    _definition: TemplateDefinition,
    _image: GuestImage,
    directory: string,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<BootedTemplate> {
    this.calls.push('boot');
    await writeFile(join(directory, snapshotFileNames.memory), 'memory');
    await this.#guard('boot', signal);
    return new FakeMachine(this, directory, false);
  }

  async restore(
    _definition: TemplateDefinition,
    _image: GuestImage,
    directory: string,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<{ readonly machine: BuildMachine; readonly restoreMs: number }> {
    this.calls.push('restore');
    await this.#guard('restore', signal);
    return { machine: new FakeMachine(this, directory, true), restoreMs: 12 };
  }

  async checksums(
    directory: string,
    { signal }: { readonly signal: AbortSignal },
  ): Promise<Readonly<Record<string, string>>> {
    this.calls.push('checksums');
    await this.#guard('checksums', signal);
    const sums: Record<string, string> = {};
    for (const name of [snapshotFileNames.memory, snapshotFileNames.state, snapshotFileNames.disk]) {
      const bytes = await readFile(join(directory, name));
      sums[name] = createHash('sha256').update(bytes).digest('hex');
    }
    return sums;
  }
}

/** One machine of a {@link FakeHost}. */
export class FakeMachine implements BootedTemplate {
  readonly id = 'fakefakefakefakefake';
  readonly gone: Promise<string>;
  readonly #host: FakeHost;
  readonly #directory: string;
  readonly #isRestored: boolean;
  readonly #end = Promise.withResolvers<string>();

  constructor(host: FakeHost, directory: string, isRestored: boolean) {
    this.#host = host;
    this.#directory = directory;
    this.#isRestored = isRestored;
    this.gone = this.#end.promise;
    host.alive.add(this);
  }

  /** As if the VMM had died. */
  die(text: string): void {
    this.#end.resolve(text);
  }

  async run(argv: readonly string[], { onOutput, stdin, signal }: GuestRunOptions): Promise<GuestExit> {
    this.#host.calls.push(`run ${argv.at(argv[0] === '/bin/true' ? 0 : 2)}`);
    if (argv[2]?.startsWith('id -u')) {
      onOutput?.('1000\n1000\n');
      return done;
    }
    const point = stdin === undefined ? 'run' : 'copy';
    if (stdin !== undefined) this.#host.copies.push(await buffer(stdin));
    const error = await this.#host.at(point, this);
    signal.throwIfAborted();
    if (error === undefined) return done;
    if (error instanceof GatewayError) throw error;
    onOutput?.(`${error.message}\n`);
    return crashed;
  }

  async startService(argv: readonly string[], { signal }: { readonly signal: AbortSignal }): Promise<void> {
    this.#host.calls.push(`service ${argv.join(' ')}`);
    const error = await this.#host.at('startService', this);
    signal.throwIfAborted();
    if (error !== undefined) throw error;
  }

  async serviceExit(): Promise<GuestExit | null> {
    return (await this.#host.at('serviceExit', this)) === undefined ? null : crashed;
  }

  async serviceOutput(): Promise<string> {
    return this.#host.options.serviceOutput ?? '';
  }

  async http(
    port: number,
    request: { readonly method: string; readonly path: string; readonly body?: string },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<GuestHttpAnswer> {
    this.#host.calls.push(`http ${port} ${request.method} ${request.path}`);
    const point = this.#isRestored
      ? 'verify'
      : request.path.startsWith('/hook')
        ? 'beforeSnapshot'
        : 'warmup';
    const isReadyCheck = !this.#isRestored && request.path === '/ready';
    const error = isReadyCheck ? undefined : await this.#host.at(point, this);
    signal.throwIfAborted();
    if (error instanceof GatewayError) throw error;
    if (error !== undefined) return { status: 500, body: error.message };
    if (isReadyCheck && this.#host.options.fail?.serviceExit !== undefined) {
      throw new GatewayError('function_port_closed', 'nothing listens on the port');
    }
    return this.#host.options.answer?.(request, this.#isRestored) ?? { status: 200, body: 'ok' };
  }

  async consoleTail(): Promise<string> {
    return 'console: kernel says hello';
  }

  async capture({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    this.#host.calls.push('capture');
    const error = await this.#host.at('capture', this);
    signal.throwIfAborted();
    if (error !== undefined) throw error;
    await writeFile(join(this.#directory, snapshotFileNames.state), 'state');
    await writeFile(join(this.#directory, snapshotFileNames.disk), 'disk');
    this.#host.alive.delete(this);
    this.die('captured');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#host.alive.delete(this);
    this.die('disposed');
  }
}
