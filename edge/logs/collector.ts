import { EventEmitter, on } from 'node:events';
import { join } from 'node:path';
import {
  type Clock,
  type LogLine,
  type MachineId,
  shortDigest,
  type VersionDigest,
} from '../../sdk/index.ts';
import type { LogRequest } from '../client/port.ts';
import type { Machine } from '../machine/machine.ts';
import { serviceId } from '../machine/service-output.ts';
import { MachineLog, pruneLogs, readLogs } from './machine-log.ts';

export interface LogCollectorOptions {
  readonly directory: string;
  readonly maxBytesPerMachine: number;
  /** Lines that are kept elsewhere, such as those of the stream `network`. */
  readonly kept?: (request: LogRequest) => Promise<LogLine[]>;
}

interface Tagged {
  readonly digest: VersionDigest;
  readonly line: LogLine;
}

/** Lines a slow follower may lag behind before it misses some. */
const followerBacklog = 10_000;

/** Collects what the functions of this edge print, machine by machine, and serves it to readers. */
export class LogCollector {
  readonly #clock: Clock;
  readonly #options: LogCollectorOptions;
  readonly #live = new EventEmitter<{ line: [Tagged] }>().setMaxListeners(0);
  readonly #alive = new Map<MachineId, { readonly machine: Machine; readonly log: MachineLog }>();

  constructor(clock: Clock, options: LogCollectorOptions) {
    this.#clock = clock;
    this.#options = options;
  }

  /** Follows a machine's service from now on until it is gone. Errors end the following, never the machine. */
  attach(machine: Machine): void {
    const directory = this.#directoryOf(machine.digest);
    const log = new MachineLog(
      this.#clock,
      { directory, machine: machine.id, maxBytes: this.#options.maxBytesPerMachine },
      (line) => this.#live.emit('line', { digest: machine.digest, line }),
    );
    this.#alive.set(machine.id, { machine, log });
    const ended = new AbortController();
    const follow = async (stream: 'stdout' | 'stderr', offset: number) => {
      const output = await machine.channel.processOutput(serviceId, stream, {
        offset,
        follow: true,
        signal: ended.signal,
      });
      for await (const chunk of output.setEncoding('utf8')) log.write(stream, chunk as string);
    };
    const run = async () => {
      const status = await machine.channel.processStatus(serviceId, { signal: ended.signal });
      await Promise.all([
        follow('stdout', status.stdoutBytes ?? 0),
        follow('stderr', status.stderrBytes ?? 0),
      ]);
    };
    run().catch(() => {});
    void machine.gone.then(async () => {
      const console = await machine.consoleTail().catch(() => '');
      if (console !== '') log.write('console', `${console}\n`);
      ended.abort();
      await log.close();
      this.#alive.delete(machine.id);
      await pruneLogs(directory, (id) => this.#alive.has(id)).catch(() => {});
    });
  }

  /** Gives a line that is kept elsewhere to those who follow. */
  announce(digest: VersionDigest, line: LogLine): void {
    this.#live.emit('line', { digest, line });
  }

  /** History first (with the present console of live machines, where wanted), then live lines when asked to follow. */
  async *read(request: LogRequest): AsyncGenerator<LogLine> {
    const { digests, machine, streams, tail } = request;
    const wanted = (line: LogLine) =>
      streams.includes(line.stream) && (machine === undefined || line.machine === machine);
    const live = request.follow
      ? on(this.#live, 'line', { signal: request.signal, highWaterMark: followerBacklog })
      : null;
    const alive = [...this.#alive.values()].filter(
      (one) => digests.includes(one.machine.digest) && (machine === undefined || one.machine.id === machine),
    );
    await Promise.all(alive.map(({ log }) => log.flush()));
    for (const digest of digests) {
      yield* await readLogs(this.#directoryOf(digest), {
        streams,
        tail,
        ...(machine === undefined ? {} : { machine }),
      });
    }
    if (streams.includes('console')) {
      for (const one of alive) yield* await this.#consoleOf(one.machine, tail);
    }
    yield* (await this.#options.kept?.(request)) ?? [];
    if (live === null) return;
    try {
      for await (const [{ digest, line }] of live as AsyncIterable<[Tagged]>) {
        if (digests.includes(digest) && wanted(line)) yield line;
      }
    } catch (error) {
      if (!request.signal.aborted) throw error;
    }
  }

  /** A live machine's console is only kept by its VMM's reader; it goes to the log when the machine ends. */
  async #consoleOf(machine: Machine, tail: number): Promise<LogLine[]> {
    const text = await machine.consoleTail().catch(() => '');
    const lines = text.split('\n').filter((line) => line !== '');
    return lines
      .slice(Math.max(0, lines.length - tail))
      .map((line) => ({ at: this.#clock.now(), machine: machine.id, stream: 'console', text: line }));
  }

  #directoryOf(digest: VersionDigest): string {
    return join(this.#options.directory, shortDigest(digest));
  }
}
