import { GatewayError, isGatewayError } from '../errors.ts';
import { sandboxHeaderNames } from '../wire/index.ts';
import { errorOfAnswer, errorOfTransport } from './answer-error.ts';
import { delayMs, isPassing, pause } from './retry.ts';
import type { Transport } from './transport.ts';

/** Failures in a row without a byte in between after which reading is given up. */
const maxFailures = 8;

export interface OutputReading {
  /** Where to begin, in everything the process ever wrote to the stream; negative counts from the end. Default 0. */
  readonly offset?: number | undefined;
  /** Go on until the process has ended. Default true. */
  readonly follow?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Told of bytes that were no longer retained when they were asked for: from where to where they are missing. */
  readonly onGap?: ((from: number, to: number) => void) | undefined;
}

/**
 * Bytes of one output stream. A connection that breaks is taken up again at the next byte, also across pauses and forks of the
 * sandbox, so nothing is read twice.
 * @param path of the stream, without query
 * @throws GatewayError `version_unavailable` when the sandbox was paused for more than some seconds, `sandbox_not_found`,
 * `process_not_found`, `cancelled`, or one for which `isUnreachable` holds
 */
export async function* readOutput(
  transport: Transport,
  path: string,
  options: OutputReading = {},
): AsyncGenerator<Uint8Array> {
  const { follow = true, signal } = options;
  let next = options.offset ?? 0;
  for (let failures = 1; ; failures++) {
    const what = `GET ${path}`;
    try {
      const response = await transport.raw({
        method: 'GET',
        path: `${path}?offset=${next}${follow ? '&follow=true' : ''}`,
        ...(signal === undefined ? {} : { signal }),
      });
      if (!response.ok) throw await errorOfAnswer(response, what);
      const start = Number(response.headers.get(sandboxHeaderNames.offset) ?? next);
      if (next >= 0 && start > next) options.onGap?.(next, start);
      next = start;
      for await (const chunk of chunksOf(response)) {
        next += chunk.length;
        failures = 0;
        yield chunk;
      }
      return;
    } catch (thrown) {
      const error = errorOfTransport(thrown, what, signal);
      if (signal?.aborted && !isGatewayError(error, 'cancelled')) throw cancelled(what, thrown);
      if (!isPassing(error) || failures >= maxFailures) throw error;
      await pause(delayMs(error, Math.max(1, failures)), signal);
    }
  }
}

// Not all browsers can iterate a stream.
async function* chunksOf(response: Response): AsyncGenerator<Uint8Array> {
  if (response.body === null) return;
  const reader = response.body.getReader();
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) yield piece.value;
  } finally {
    await reader.cancel().catch(() => {});
  }
}

const cancelled = (what: string, cause: unknown) =>
  new GatewayError('cancelled', `${what} was cancelled`, { component: 'sdk', cause });
