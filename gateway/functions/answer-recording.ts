/** Copies an answer while it is relayed, and goes on when its client has left. */
import { Readable } from 'node:stream';
import type { InvokeResponse } from '../../edge/client/index.ts';
import { GatewayError } from '../../sdk/index.ts';
import type { RecordedAnswer } from './kept-call.ts';

export interface RecordingOptions {
  /** Of the body; a longer one is relayed and not kept. */
  readonly maxBytes: number;
  /** Asked before bytes are held; false: they can't be. */
  hold(count: number): boolean;
  letGo(count: number): void;
  /** Ends the answer, and with it the recording. */
  readonly signal: AbortSignal;
}

/** `kept` rejects with `GatewayError` when the answer breaks off. What `forClient` leaves unread is still recorded. */
export function recordAnswer(
  answer: InvokeResponse,
  { maxBytes, hold, letGo, signal }: RecordingOptions,
): { readonly forClient: InvokeResponse; readonly kept: Promise<RecordedAnswer> } {
  const { promise, resolve, reject } = Promise.withResolvers<RecordedAnswer>();
  const source = answer.body;
  let chunks: Buffer[] | null = [];
  let heldBytes = 0;
  let isOver = false;
  const forget = () => {
    chunks = null;
    letGo(heldBytes);
    heldBytes = 0;
  };
  const client = new Readable({
    read: () => void source.resume(),
    destroy(error, callback) {
      // Nobody reads it and it can't be kept: then nobody needs it.
      if (!isOver && chunks === null) source.destroy();
      else source.resume();
      callback(error);
    },
  });
  client.on('error', ignoreError);
  const onAbort = () => void source.destroy(signal.reason as Error);
  const settle = (error: unknown) => {
    if (isOver) return;
    isOver = true;
    signal.removeEventListener('abort', onAbort);
    const body = chunks === null ? null : Buffer.concat(chunks).toString('base64');
    forget();
    if (error !== null) {
      client.destroy(error as Error);
      return reject(error);
    }
    client.push(null);
    const { status, rawHeaders, meta } = answer;
    if (body === null) resolve({ kind: 'unkept' });
    else
      resolve({
        kind: 'answer',
        status,
        rawHeaders: [...rawHeaders],
        body,
        trailers: [...answer.trailers()],
        meta,
      });
  };
  source
    .on('data', (chunk: Buffer) => {
      if (chunks !== null) {
        if (heldBytes + chunk.length > maxBytes || !hold(chunk.length)) forget();
        else {
          heldBytes += chunk.length;
          chunks.push(chunk);
        }
      }
      if (!client.destroyed) {
        if (!client.push(chunk)) source.pause();
      } else if (chunks === null) source.destroy();
    })
    .on('end', () => settle(null))
    .on('error', settle)
    .on('close', () => {
      if (chunks === null && client.destroyed) settle(null);
      else settle(new GatewayError('guest_unreachable', 'the function ended in the middle of its answer'));
    })
    .pause();
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  return { forClient: { ...answer, body: client }, kept: promise };
}

const ignoreError = (): void => {};
