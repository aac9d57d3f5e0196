/** nftables commands inside the namespaces of slots, by way of one native process that stays: see `native/slot-nft.c`. */
import { type ChildProcess, spawn } from 'node:child_process';
import { GatewayError } from '../../sdk/index.ts';

/** Runs commands in order of their calls. Throws `host_not_ready` with nft's own words when they are refused; all or nothing. */
export interface Nft extends AsyncDisposable {
  run(netns: string, commands: string, options?: { readonly isJson?: boolean }): Promise<string>;
}

export interface NftOptions {
  readonly programPath: string;
  /** Until a command that does not end takes the process down. Default 10 000. */
  readonly timeoutMs?: number;
}

interface Waiting extends PromiseWithResolvers<string> {
  readonly timer: NodeJS.Timeout;
}

/** Most commands under way, and most bytes of an answer. */
const maxWaiting = 4096;
const maxAnswerBytes = 16 * 2 ** 20;

/** Starts the process with the first command, and again should it end. */
export function createNft(options: NftOptions): Nft {
  let child: ChildProcess | null = null;
  let isDisposed = false;
  let lastId = 0;
  const waiting = new Map<number, Waiting>();

  const settle = (id: number): Waiting | undefined => {
    const found = waiting.get(id);
    waiting.delete(id);
    clearTimeout(found?.timer);
    return found;
  };

  function start(): ChildProcess {
    const started = spawn(options.programPath, [], { stdio: ['pipe', 'pipe', 'inherit'], env: {} });
    const over = (cause?: unknown) => {
      if (child === started) child = null;
      for (const id of [...waiting.keys()])
        settle(id)?.reject(failure('the process that runs nftables ended', undefined, cause));
    };
    started.once('error', over);
    started.once('exit', () => over());
    // A command that was not taken is answered by the end of the process.
    started.stdin?.on('error', () => {});
    let bytes: Buffer = Buffer.alloc(0);
    started.stdout?.on('data', (chunk: Buffer) => {
      bytes = bytes.length === 0 ? chunk : Buffer.concat([bytes, chunk]);
      for (;;) {
        const end = bytes.indexOf(10);
        if (end === -1) return;
        const [id, status, length] = bytes.toString('latin1', 0, end).split(' ').map(Number);
        if (id === undefined || length === undefined || !(length <= maxAnswerBytes)) {
          started.kill('SIGKILL');
          return;
        }
        if (bytes.length < end + 1 + length) return;
        const text = bytes.toString('utf8', end + 1, end + 1 + length);
        bytes = bytes.subarray(end + 1 + length);
        if (status === 0) settle(id)?.resolve(text);
        else settle(id)?.reject(failure('nftables refused a change', text));
      }
    });
    return started;
  }

  return {
    async run(netns, commands, { isJson = false } = {}) {
      if (isDisposed) throw failure('no more nftables: the edge is stopping');
      if (waiting.size >= maxWaiting) throw failure('too many changes of nftables are under way');
      child ??= start();
      lastId = (lastId + 1) % 1_000_000_000;
      const id = lastId;
      const running = child;
      const entry = {
        ...Promise.withResolvers<string>(),
        timer: setTimeout(() => running.kill('SIGKILL'), options.timeoutMs ?? 10_000),
      };
      waiting.set(id, entry);
      // It keeps the edge alive only while it owes an answer.
      running.ref();
      running.stdin?.write(
        `${id} ${netns} ${isJson ? 'j' : '-'} ${Buffer.byteLength(commands)}\n${commands}`,
      );
      try {
        return await entry.promise;
      } finally {
        if (waiting.size === 0) running.unref();
      }
    },
    async [Symbol.asyncDispose]() {
      isDisposed = true;
      const running = child;
      if (running === null) return;
      const ended = new Promise<void>((resolve) => running.once('exit', () => resolve()));
      running.ref();
      running.kill('SIGKILL');
      await ended;
    },
  };
}

const failure = (message: string, output?: string, cause?: unknown) =>
  new GatewayError('host_not_ready', message, {
    component: 'edge',
    ...(output === undefined ? {} : { output: output.slice(0, 2000) }),
    ...(cause === undefined ? {} : { cause }),
  });
