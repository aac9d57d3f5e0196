import { type GatewayError, isGatewayError } from '../errors.ts';
import { isUnreachable } from './answer-error.ts';

/** Most tries of one request, the first included. */
const maxTries = 5;
const firstDelayMs = 100;
const maxDelayMs = 5000;

/**
 * Runs `work` again after errors that promise to pass: no answer, or a 503 that says so. Only for requests which may be
 * repeated: those that change nothing, set something, or carry an `Idempotency-Key`. Waits as long as `Retry-After` says,
 * at most 5 s, else 0.1 s doubling.
 */
export async function withRetries<T>(
  work: () => Promise<T>,
  options: { readonly signal?: AbortSignal | undefined } = {},
): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await work();
    } catch (error) {
      if (tries >= maxTries || !isPassing(error) || options.signal?.aborted) throw error;
      await pause(delayMs(error as GatewayError, tries), options.signal);
    }
  }
}

/** Whether the same request may well be answered soon. */
export const isPassing = (error: unknown): boolean =>
  isUnreachable(error) || (isGatewayError(error) && error.status === 503 && error.isRetryable);

/** How long to wait before try number `tries` + 1, milliseconds. */
export function delayMs(error: GatewayError, tries: number): number {
  const { retryAfterSeconds } = error.details;
  const wanted = retryAfterSeconds === undefined ? firstDelayMs * 2 ** (tries - 1) : retryAfterSeconds * 1000;
  return Math.min(maxDelayMs, wanted);
}

/** Resolves after `ms`, or at once when the signal fires: whoever comes next looks at the signal. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener('abort', done, { once: true });
    if (signal?.aborted) done();
  });
}
