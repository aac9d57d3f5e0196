import type {
  ClientHttp2Session,
  ClientHttp2Stream,
  IncomingHttpHeaders,
  OutgoingHttpHeaders,
} from 'node:http2';
import type { Readable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { fromAbort, fromRefusal, type Subject, unreachable } from './errors.ts';

/** Largest answer that is held in memory: 256 process records with their notes. */
const answerBytesMax = 2 * 1024 * 1024;

/** A stream whose response head has come. The caller owns it: it reads it to the end or closes it. */
export interface Answer {
  readonly stream: ClientHttp2Stream;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
}

export interface Call {
  readonly method: 'GET' | 'PUT' | 'POST' | 'DELETE' | 'CONNECT';
  /** Path and query; the authority for CONNECT. */
  readonly target: string;
  readonly subject: Subject;
  readonly body?: Readable | Uint8Array;
  readonly signal: AbortSignal;
}

/**
 * Ends both directions with a reset; what it still says is of no interest. `isFriendly` resets with code 0: "no longer
 * needed". By `destroy` alone: Node 24 spins for ever when a stream with a large write under way is `close`d with a code.
 */
export function cancel(stream: ClientHttp2Stream, isFriendly = false): void {
  stream.on('error', () => {});
  stream.destroy(isFriendly ? undefined : new Error('cancelled'));
}

function open(session: ClientHttp2Session, call: Call): ClientHttp2Stream {
  const headers: OutgoingHttpHeaders =
    call.method === 'CONNECT'
      ? { ':method': 'CONNECT', ':authority': call.target }
      : { ':method': call.method, ':path': call.target, ':scheme': 'http', ':authority': 'guest' };
  const isOpenEnded = call.method === 'CONNECT' || call.body !== undefined;
  try {
    // Node sends END_STREAM before the reset of a stream that is closed early, which makes a broken upload look complete.
    // It does not while it waits for trailers; a body that ends regularly gets empty ones, which is a plain END_STREAM.
    return session.request(headers, { endStream: !isOpenEnded, waitForTrailers: isOpenEnded });
  } catch (error) {
    throw unreachable('the guest channel is closed', error);
  }
}

/**
 * Sends the body beside the wait for the answer: the agent may refuse before it has read all of it.
 * @returns tells what made the body itself fail, if that happened
 */
function send(stream: ClientHttp2Stream, body: Readable | Uint8Array): () => GatewayError | undefined {
  let failure: GatewayError | undefined;
  if (body instanceof Uint8Array) {
    stream.end(body);
  } else {
    body.once('error', (error: Error) => {
      // When the stream went first, this is only its echo.
      if (stream.closed || stream.destroyed) return;
      failure = isGatewayError(error)
        ? error
        : new GatewayError('cancelled', 'the body broke off', { component: 'guest', cause: error });
    });
    // Its failures are those of the body, noted above, or of the stream, heard by whoever waits for the answer.
    pipeline(body, stream).catch(() => {});
  }
  return () => failure;
}

/**
 * Sends a request and resolves with the head of the answer, whatever its status. After that the signal no longer
 * matters to the stream.
 * @throws GatewayError `guest_unreachable`, `cancelled`, or what made the body fail
 */
export async function begin(session: ClientHttp2Session, call: Call): Promise<Answer> {
  if (call.signal.aborted) throw fromAbort(call.signal);
  const stream = open(session, call);
  const failureOfBody = call.body === undefined ? () => undefined : send(stream, call.body);
  return new Promise<Answer>((resolve, reject) => {
    const settle = () => {
      stream.off('response', onResponse).off('error', onFail).off('close', onFail);
      call.signal.removeEventListener('abort', onAbort);
      // Errors after this belong to whoever reads the stream; without a reader they must not end the process.
      stream.on('error', () => {});
    };
    const onResponse = (headers: IncomingHttpHeaders) => {
      settle();
      resolve({ stream, status: Number(headers[':status']), headers });
    };
    const onFail = (error?: Error) => {
      settle();
      reject(failureOfBody() ?? unreachable('the guest channel ended during a request', error));
    };
    const onAbort = () => {
      settle();
      cancel(stream);
      reject(fromAbort(call.signal));
    };
    stream.on('response', onResponse).on('error', onFail).on('close', onFail);
    call.signal.addEventListener('abort', onAbort, { once: true });
  });
}

async function readAll(answer: Answer, signal: AbortSignal): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  const { stream } = answer;
  stream.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size <= answerBytesMax) chunks.push(chunk);
    else cancel(stream);
  });
  try {
    await finished(stream, { signal, writable: false });
  } catch (error) {
    cancel(stream);
    if (signal.aborted) throw fromAbort(signal);
    if (size > answerBytesMax) throw unreachable('the guest answered more than we asked for');
    throw unreachable('the guest channel ended during an answer', error);
  }
  return Buffer.concat(chunks);
}

function parse(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown;
  } catch {
    return undefined;
  }
}

/** Throws the refusal if the answer is one; its body is read for the reason. */
export async function refuse(answer: Answer, call: Call): Promise<void> {
  if (answer.status >= 200 && answer.status < 300) return;
  const body = parse(await readAll(answer, call.signal));
  // A refusal may come while we still send: the rest is not wanted.
  if (!answer.stream.writableEnded) cancel(answer.stream);
  throw fromRefusal(answer.status, body, call.subject);
}

/**
 * A request with a small JSON answer (`undefined` when it has none).
 * @throws GatewayError of the refusal, `guest_unreachable` or `cancelled`
 */
export async function exchange(session: ClientHttp2Session, call: Call): Promise<unknown> {
  const answer = await begin(session, call);
  await refuse(answer, call);
  const bytes = await readAll(answer, call.signal);
  return bytes.length === 0 ? undefined : parse(bytes);
}
