/**
 * Output of a process by byte offset, over however many channels it takes. The agent reads a process no faster than its slowest
 * reader once what it retains is full; so a reader that takes nothing for a while lets go of the guest, and harms only itself.
 */
import { Readable } from 'node:stream';
import type { SandboxUse } from '../../edge/client/index.ts';
import { type Clock, GatewayError, isGatewayError, systemClock } from '../../sdk/index.ts';
import { type Observation, observe } from './observe.ts';

/** How long a reader may take nothing before it lets go; it comes back with its next byte. */
const patienceMs = 2_000;

type OutputBody = Awaited<ReturnType<SandboxUse['channel']['processOutput']>>;

export interface OutputQuery extends Observation {
  readonly process: string;
  readonly stream: 'stdout' | 'stderr' | 'pty';
  /** First byte wanted; negative counts from the end. */
  readonly offset: number;
  /** Until the process has ended and all it wrote has been read. */
  readonly follow: boolean;
  /** Default: the system's. */
  readonly clock?: Clock | undefined;
}

/** Output from a known place on. */
export interface Output {
  /** Of its first byte, in everything the process ever wrote to the stream. */
  readonly offset: number;
  /** Older bytes were wanted but are gone. */
  readonly isTruncated: boolean;
  /** The caller reads it to its end or destroys it. Fails when bytes in its middle are gone. */
  readonly body: Readable;
}

/** Resolves once the place of the first byte is known. Reads no faster than its own reader does. */
export async function openOutput(query: OutputQuery): Promise<Output> {
  const first = await open(query, query.offset);
  const { offset } = first;
  const body = Readable.from(pieces(query, first, offset), { objectMode: false });
  // A reader that leaves before the first piece never starts the iteration, whose end would close this.
  body.once('close', () => first.destroy());
  return { offset, isTruncated: query.offset >= 0 && offset > query.offset, body };
}

function open(query: OutputQuery, offset: number, isAgain = false): Promise<OutputBody> {
  const { process, stream, follow, signal } = query;
  const options = { offset, follow, signal };
  return observe(query, (channel) => channel.processOutput(process, stream, options), isAgain);
}

/** The agent's stream, and after a cut the next one from the byte behind. */
async function* pieces(query: OutputQuery, first: OutputBody, offset: number): AsyncGenerator<Buffer> {
  const { clock = systemClock } = query;
  let next = offset;
  for (let stream = first; ; stream = await open(query, next, true)) {
    const start = stream.offset;
    const stop = () => stream.destroy();
    query.signal.addEventListener('abort', stop, { once: true });
    let hasLetGo = false;
    const letGo = () => {
      hasLetGo = true;
      stream.destroy();
    };
    try {
      if (start !== next) throw bytesLost(next, start);
      for await (const chunk of stream as AsyncIterable<Buffer>) {
        next += chunk.length;
        const cancel = clock.schedule(patienceMs, letGo);
        try {
          yield chunk;
        } finally {
          cancel();
        }
        if (hasLetGo) break;
      }
      if (!hasLetGo) return;
    } catch (error) {
      if (hasLetGo) continue;
      if (!isGatewayError(error, 'guest_unreachable') || query.signal.aborted) throw error;
    } finally {
      query.signal.removeEventListener('abort', stop);
      stream.destroy();
    }
  }
}

const bytesLost = (from: number, to: number) =>
  new GatewayError('conflict', `bytes ${from} to ${to} are no longer retained`, { component: 'guest' });
