/**
 * Calls of functions under an `Idempotency-Key`: the first one reaches the function, a repetition gets its answer again. A call
 * without the key never comes here.
 */
import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import type { InvokeRequest } from '../../edge/client/index.ts';
import { GatewayError, headerNames, isGatewayError } from '../../sdk/index.ts';
import { toGatewayError } from '../errors.ts';
import { credentialsOf } from '../keys/credential.ts';
import { type FreshAnswer, type IdempotencyStore, requireStore } from '../sandboxes/idempotency.ts';
import { recordAnswer } from './answer-recording.ts';
import { callEdge, type EdgeCall, type EdgeCallDeps } from './edge-call.ts';
import type { Exchange } from './exchange.ts';
import { failedCall, type KeptCall, keptAnswer, keptError } from './kept-call.ts';
import type { RequestBody } from './request-body.ts';
import type { FunctionRoute } from './route.ts';

export interface IdempotentCallDeps extends EdgeCallDeps {
  /** Absent: calls with a key are refused. */
  readonly idempotency?: IdempotencyStore | undefined;
}

/** A call whose key has been seen. */
export interface KeyedCall extends Omit<EdgeCall, 'exchange' | 'request'> {
  readonly exchange: Exchange;
  readonly request: Omit<InvokeRequest, 'body'> & { readonly body: RequestBody | null };
  readonly incoming: { readonly request: IncomingMessage; readonly route: FunctionRoute };
  readonly key: string;
}

/** Most bytes of one such call's body, and of an answer that is kept. */
const maxBodyBytes = 1024 * 1024;
const maxAnswerBytes = 1024 * 1024;
/** Bytes of bodies and answers that all such calls hold in memory at once; beyond, calls are answered 503. */
const maxHeldBytes = 64 * 1024 * 1024;

/**
 * After these the function may have run, so the same key must not run it again; all other errors come from before that, and
 * leave the key free.
 */
const mayHaveRun = [
  'edge_lost',
  'guest_unreachable',
  'function_crashed',
  'function_timeout',
  'cancelled',
  'internal',
] as const;

/** What makes the hook in the door cost nothing without the header. */
export const idempotencyKeyOf = (request: IncomingMessage): string | undefined =>
  request.headers[headerNames.idempotencyKey] as string | undefined;

/** Answers calls with a key through their exchange; holds what is under way. */
export function createIdempotentCalls(deps: IdempotentCallDeps): (call: KeyedCall) => Promise<void> {
  const held = { bytes: 0 };
  const hold = (count: number): boolean => {
    if (held.bytes + count > maxHeldBytes) return false;
    held.bytes += count;
    return true;
  };
  const letGo = (count: number) => {
    held.bytes -= count;
  };

  /** Reaches the function, also when the client leaves: whoever comes again with the key finds the answer. */
  const callFunction = async (call: KeyedCall, body: Buffer | null): Promise<FreshAnswer<KeptCall>> => {
    const { exchange, request, version } = call;
    const stop = new AbortController();
    const leave = () => {
      const { reason } = exchange.signal;
      if (!isGatewayError(reason, 'cancelled')) return stop.abort(reason);
      // The edge keeps the time until the head; this is for a body without end.
      cancelTimer = deps.clock.schedule(request.timeoutMs, () => stop.abort(reason));
    };
    let cancelTimer = () => {};
    exchange.signal.addEventListener('abort', leave, { once: true });
    const fail = (error: unknown) => stop.abort(error);
    const caller = {
      ...{ signal: stop.signal, isReplayable: true, fail },
      markHandedOver: () => exchange.markHandedOver(),
    };
    try {
      const answer = await callEdge(
        deps,
        { ...call, request: { ...request, body: null }, exchange: caller },
        (edge) =>
          edge.invoke({
            ...request,
            signal: stop.signal,
            body: body === null ? null : Readable.from([body], { objectMode: false }),
          }),
      );
      const { forClient, kept } = recordAnswer(answer, {
        maxBytes: maxAnswerBytes,
        hold,
        letGo,
        signal: stop.signal,
      });
      exchange.relay(forClient, version.version);
      return { ...(await kept), version: version.version, isFinal: true };
    } catch (thrown) {
      const error = toGatewayError(stop.signal.aborted ? stop.signal.reason : thrown);
      if (!isGatewayError(error, ...mayHaveRun)) throw error;
      if (error.code === 'cancelled') return { kind: 'unkept', version: version.version, isFinal: true };
      exchange.fail(error);
      return { ...failedCall(error), isFinal: true };
    } finally {
      exchange.signal.removeEventListener('abort', leave);
      cancelTimer();
    }
  };

  return async (call) => {
    const { exchange, incoming, key } = call;
    const store = requireStore(deps.idempotency, key);
    let bodyBytes = 0;
    try {
      const body = await readBody(call.request.body, (count) => {
        if (!hold(count)) throw tooMuchHeld();
        bodyBytes += count;
      });
      const { template, ref } = incoming.route;
      const keyed = {
        caller: credentialsOf(incoming.request.headers)[0]?.key ?? '',
        key,
        route: `${call.request.method} /fn/${template}@${ref ?? ''}${call.request.target}`,
        body: body ?? '',
      };
      const { isReplay, ...kept } = await store.run<KeptCall>(keyed, () => callFunction(call, body));
      if (isReplay) replay(exchange, kept);
    } finally {
      letGo(bodyBytes);
    }
  };
}

function replay(exchange: Exchange, kept: KeptCall): void {
  if (kept.kind === 'answer') exchange.relay(keptAnswer(kept), kept.version, { isReplay: true });
  else exchange.fail(keptError(kept));
}

async function readBody(
  source: RequestBody | null,
  onBytes: (count: number) => void,
): Promise<Buffer | null> {
  if (source === null) return null;
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of source as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > maxBodyBytes) {
      const message = `the body of a call with an Idempotency-Key may have ${maxBodyBytes} bytes`;
      throw new GatewayError('body_too_large', message, { extra: { limitBytes: maxBodyBytes } });
    }
    onBytes(chunk.length);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

const tooMuchHeld = () =>
  new GatewayError('node_at_capacity', 'too many calls with an Idempotency-Key are under way', {
    retryAfterSeconds: 1,
    extra: { limitBytes: maxHeldBytes },
  });
