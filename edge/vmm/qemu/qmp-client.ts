/** A QMP client over a unix socket: one connection, commands matched by id, events handed to listeners. */
import { connect, type Socket } from 'node:net';
import { createLineSplitter, maxQmpLineBytes } from './qmp-line.ts';
import {
  greetingSchema,
  messageSchema,
  type QmpArguments,
  type QmpCommand,
  type QmpEventData,
  type QmpEventName,
  type QmpGreeting,
  type QmpReturn,
  qmpEvents,
  qmpReturns,
} from './qmp-message.ts';

/** Why a command got no answer: QEMU refused it, the connection ended, or what came was not QMP. */
export class QmpError extends Error {
  override readonly name = 'QmpError';
  readonly kind: 'refused' | 'disconnected' | 'malformed' | 'timeout';
  constructor(kind: QmpError['kind'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
  }
}

interface Pending {
  readonly command: QmpCommand;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

type Listener = (data: unknown) => void;

export interface CommandOptions {
  /** Gives up waiting; the command may still take effect, so callers treat the VMM as being in an unknown state. */
  readonly signal?: AbortSignal;
  /** Default 10 000. */
  readonly timeoutMs?: number;
}

const defaultTimeoutMs = 10_000;
/** Far above what a correct caller has in flight; a bound for the defect that would otherwise eat the heap. */
const maxPending = 64;

/** One QMP session. Whoever connected it closes it; a dead socket rejects everything that waits. */
export class QmpClient {
  readonly greeting: QmpGreeting;
  /** Settles when the connection ended, whoever ended it. Never rejects. */
  readonly closed: Promise<void>;
  readonly #socket: Socket;
  readonly #pending = new Map<number, Pending>();
  readonly #listeners = new Map<QmpEventName, Set<Listener>>();
  #nextId = 1;
  #end: QmpError | null = null;

  /** Use {@link connectQmp}. */
  constructor(socket: Socket, greeting: QmpGreeting, split: (chunk: Buffer) => Generator<string>) {
    this.#socket = socket;
    this.greeting = greeting;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.closed = promise;
    socket.on('data', (chunk: Buffer) => {
      try {
        for (const line of split(chunk)) this.#take(line);
      } catch (cause) {
        this.#fail(
          cause instanceof QmpError ? cause : new QmpError('malformed', 'QEMU sent an endless line', cause),
        );
      }
    });
    socket.on('error', (cause) => {
      this.#fail(new QmpError('disconnected', 'the QMP connection broke', cause));
    });
    socket.on('close', () => {
      this.#fail(new QmpError('disconnected', 'the QMP connection was closed'));
      resolve();
    });
  }

  /** Sends a command and resolves with its checked answer. Rejects with {@link QmpError} or the signal's reason. */
  execute<C extends QmpCommand>(
    command: C,
    args: QmpArguments[C],
    options: CommandOptions = {},
  ): Promise<QmpReturn<C>> {
    if (this.#end !== null) return Promise.reject(this.#end);
    if (this.#pending.size >= maxPending)
      return Promise.reject(new QmpError('refused', `more than ${maxPending} commands wait for an answer`));
    const { signal, timeoutMs = defaultTimeoutMs } = options;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const id = this.#nextId++;
    return new Promise<QmpReturn<C>>((resolve, reject) => {
      const settle = () => {
        this.#pending.delete(id);
        clearTimeout(timer);
        signal?.removeEventListener('abort', onAbort);
      };
      const onAbort = () => {
        settle();
        reject(signal?.reason);
      };
      const timer = setTimeout(() => {
        settle();
        reject(new QmpError('timeout', `QEMU did not answer \`${command}\` within ${timeoutMs} ms`));
      }, timeoutMs);
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#pending.set(id, {
        command,
        resolve: (value) => {
          settle();
          resolve(value as QmpReturn<C>);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      const hasArguments = Object.keys(args).length > 0;
      this.#socket.write(
        `${JSON.stringify({ execute: command, ...(hasArguments ? { arguments: args } : {}), id })}\n`,
      );
    });
  }

  /** Calls back for every such event from now on; the answer ends it. */
  on<E extends QmpEventName>(event: E, listener: (data: QmpEventData<E>) => void): () => void {
    const listeners = this.#listeners.get(event) ?? new Set<Listener>();
    this.#listeners.set(event, listeners);
    listeners.add(listener as Listener);
    return () => listeners.delete(listener as Listener);
  }

  /** Ends the connection now. Idempotent. */
  close(): void {
    this.#fail(new QmpError('disconnected', 'the QMP connection was closed by us'));
  }

  #take(line: string): void {
    const parsed = messageSchema.safeParse(parseJson(line));
    if (!parsed.success) throw new QmpError('malformed', 'QEMU sent something that is not QMP', parsed.error);
    const message = parsed.data;
    if ('event' in message) {
      this.#emit(message.event, message.data ?? {});
      return;
    }
    if (message.id === undefined) throw new QmpError('malformed', 'QEMU could not read a command of ours');
    if (message.id <= 0 || message.id >= this.#nextId)
      throw new QmpError('malformed', 'QEMU answered a command that was never sent');
    const pending = this.#pending.get(message.id);
    // The answer to a command whose caller gave up.
    if (pending === undefined) return;
    if ('error' in message) {
      const { class: kind, desc } = message.error;
      pending.reject(
        new QmpError('refused', `QEMU refused \`${pending.command}\`: ${desc.slice(0, 1024)} (${kind})`),
      );
      return;
    }
    const answer = qmpReturns[pending.command].safeParse(message.return);
    if (answer.success) pending.resolve(answer.data);
    else
      pending.reject(
        new QmpError('malformed', `QEMU's answer to \`${pending.command}\` has a wrong form`, answer.error),
      );
  }

  #emit(name: string, data: unknown): void {
    if (!Object.hasOwn(qmpEvents, name)) return;
    const event = name as QmpEventName;
    const parsed = qmpEvents[event].safeParse(data);
    if (!parsed.success)
      throw new QmpError('malformed', `QEMU's event ${event} has a wrong form`, parsed.error);
    for (const listener of [...(this.#listeners.get(event) ?? [])]) listener(parsed.data);
  }

  #fail(error: QmpError): void {
    if (this.#end !== null) return;
    this.#end = error;
    this.#socket.destroy();
    for (const pending of [...this.#pending.values()]) pending.reject(error);
    this.#listeners.clear();
  }
}

function parseJson(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch (cause) {
    throw new QmpError('malformed', 'QEMU sent a line that is not JSON', cause);
  }
}

/**
 * Connects, checks the greeting and negotiates capabilities. Rejects with the socket's own error when nobody listens
 * (the caller retries while the VMM starts), else with {@link QmpError} or the signal's reason.
 */
export async function connectQmp(
  path: string,
  options: { readonly signal: AbortSignal; readonly maxLineBytes?: number },
): Promise<QmpClient> {
  options.signal.throwIfAborted();
  const split = createLineSplitter(options.maxLineBytes ?? maxQmpLineBytes);
  const socket = connect(path);
  const { promise, resolve, reject } = Promise.withResolvers<QmpClient>();
  const onAbort = () => reject(options.signal.reason);
  const onError = (error: Error) => reject(error);
  const onClose = () =>
    reject(new QmpError('disconnected', 'QEMU closed the connection before its greeting'));
  const onData = (chunk: Buffer) => {
    try {
      const lines = [...split(chunk)];
      const first = lines.shift();
      if (first === undefined) return;
      const parsed = greetingSchema.safeParse(parseJson(first));
      if (!parsed.success || lines.length > 0)
        throw new QmpError('malformed', 'QEMU did not greet as QMP says', parsed.error);
      socket.off('data', onData);
      resolve(new QmpClient(socket, parsed.data.QMP, split));
    } catch (error) {
      reject(error);
    }
  };
  options.signal.addEventListener('abort', onAbort, { once: true });
  socket.on('error', onError).on('close', onClose).on('data', onData);
  try {
    const client = await promise;
    await client.execute('qmp_capabilities', {}, { signal: options.signal });
    return client;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    options.signal.removeEventListener('abort', onAbort);
    socket.off('close', onClose);
  }
}
