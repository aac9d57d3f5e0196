/** Where an acquire comes in: it waits in line with its budgets, or is refused with a reason and a time to come back. */
import { type ErrorCode, type ErrorDetails, GatewayError, isGatewayError } from '../sdk/index.ts';
import { retryAfterSeconds } from './averages.ts';
import type { FailedStage } from './bring-up.ts';
import type { PoolContext } from './context.ts';
import type { Lease } from './lease.ts';
import { demandOf } from './matching.ts';
import type { Waiter } from './waiters.ts';

export interface AcquireRequest {
  /** Leaves the line at once when aborted (`cancelled`). Without effect once the lease is out. */
  readonly signal?: AbortSignal | undefined;
  /** Key of the session, for templates with `reuse: 'session'`; ignored by the others. */
  readonly session?: string | undefined;
  /** Milliseconds the caller has left in all; the shorter of this and the template's budgets counts. */
  readonly deadlineMs?: number | undefined;
  /** A sandbox's hold: a fresh machine, shared with nobody and discarded afterwards, whatever the reuse policy. */
  readonly isExclusive?: boolean | undefined;
}

/** Bring-ups that may fail under one waiter before it is refused: the first and two more. */
const maxFailures = 3;

export class Reception {
  readonly #pool: PoolContext;
  /** What the node said when it last had no place for a live machine, if that was in the round just run. */
  readonly #nodeRefusal: () => GatewayError | null;

  constructor(pool: PoolContext, nodeRefusal: () => GatewayError | null) {
    this.#pool = pool;
    this.#nodeRefusal = nodeRefusal;
  }

  /** Rejects with `cancelled`, `queue_full`, `queue_timeout`, `restore_failed`, `restore_timeout` or `node_at_capacity`. */
  enter(request: AcquireRequest): Promise<Lease> {
    const { signal } = request;
    if (signal?.aborted) return Promise.reject(this.counted('cancelled', 'the caller went away'));
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        demand: demandOf(this.#pool.options(), request),
        isExclusive: request.isExclusive === true,
        arrivedAt: this.#pool.clock.monotonic(),
        claim: null,
        failures: 0,
        lastError: undefined,
        isOverdue: false,
        resolve,
        reject,
        cleanups: [],
      };
      this.#pool.line.add(waiter);
      this.#pool.round();
      if (!this.#pool.line.has(waiter)) return;
      const refusal = waiter.claim === null ? this.#reasonToRefuse() : null;
      if (refusal !== null) this.#pool.line.refuse(waiter, refusal);
      else this.#watch(waiter, request);
    });
  }

  /** A bring-up failed under these waiters: each tries the next way, or has tried enough. */
  bringUpFailed(claims: readonly Waiter[], stage: FailedStage, error: unknown): void {
    for (const waiter of claims) {
      this.#pool.line.claim(waiter, null);
      waiter.failures += 1;
      waiter.lastError = error;
      // Its budget is spent, or the error says that another try ends the same way.
      const isFinal = isGatewayError(error) && (error.code === 'restore_timeout' || !error.isRetryable);
      if (waiter.failures < maxFailures && !isFinal && !waiter.isOverdue) continue;
      const code = isGatewayError(error, 'restore_timeout') ? 'restore_timeout' : 'restore_failed';
      const tries = waiter.failures === 1 ? 'one try' : `${waiter.failures} tries`;
      this.#refuse(
        waiter,
        code,
        `no machine could be brought up in ${tries}; the last failed at: ${stage}`,
        error,
      );
    }
  }

  /** Refuses those whose queue time is over while nothing has begun for them, or what had begun went to another. */
  refuseOverdue(): void {
    const { timeoutMs } = this.#pool.options().queue;
    for (const waiter of this.#pool.line) {
      if (!waiter.isOverdue || waiter.claim?.hasBegun) continue;
      this.#refuse(waiter, 'queue_timeout', `no machine was free within ${timeoutMs} ms`, waiter.lastError);
    }
  }

  /** Refuses everybody; for a pool that ends now. */
  refuseAll(code: ErrorCode, message: string): void {
    for (const waiter of this.#pool.line) this.#refuse(waiter, code, message);
  }

  /** An error of this pool, counted as a refusal. `ahead`: who is in line before the one refused. */
  counted(
    code: ErrorCode,
    message: string,
    details: Pick<ErrorDetails, 'cause' | 'extra'> = {},
    ahead = this.#pool.line.size,
  ): GatewayError {
    const { counters, observer, digest, options } = this.#pool;
    counters.refused(code);
    observer.refused({ digest, code });
    const { max, concurrency, reuse } = options();
    const places = max * (reuse === 'never' ? 1 : concurrency);
    const isBusy = code === 'queue_full' || code === 'node_at_capacity' || code === 'draining';
    const retry = isBusy ? retryAfterSeconds(ahead, counters.service.value(), places) : undefined;
    return new GatewayError(code, message, {
      component: 'pool',
      ...details,
      ...(retry === undefined ? {} : { retryAfterSeconds: retry }),
    });
  }

  #reasonToRefuse(): GatewayError | null {
    const { line, slots, options } = this.#pool;
    const nodeRefusal = this.#nodeRefusal();
    if (nodeRefusal !== null && slots.size === 0) {
      return this.counted('node_at_capacity', nodeRefusal.message, {
        cause: nodeRefusal,
        ...(nodeRefusal.details.extra === undefined ? {} : { extra: nodeRefusal.details.extra }),
      });
    }
    const { depth } = options().queue;
    const used = line.unclaimed - 1;
    if (used < depth) return null;
    const extra = { limit: depth, used, knob: 'admission.queue.depth' };
    return this.counted('queue_full', `${used} invocations are waiting already`, { extra }, line.size - 1);
  }

  #watch(waiter: Waiter, request: AcquireRequest): void {
    const { clock, options, line } = this.#pool;
    const { timeoutMs } = options().queue;
    const cancelQueueTimer = clock.schedule(timeoutMs, () => {
      waiter.isOverdue = true;
      this.refuseOverdue();
    });
    waiter.cleanups.push(cancelQueueTimer);
    if (request.deadlineMs !== undefined) {
      const expire = () => {
        const code = waiter.claim?.hasBegun ? 'restore_timeout' : 'queue_timeout';
        this.#refuse(waiter, code, `the caller's deadline of ${request.deadlineMs} ms passed in the pool`);
      };
      waiter.cleanups.push(clock.schedule(request.deadlineMs, expire));
    }
    const { signal } = request;
    if (signal !== undefined) {
      const leave = () => line.has(waiter) && this.#refuse(waiter, 'cancelled', 'the caller went away');
      signal.addEventListener('abort', leave, { once: true });
      waiter.cleanups.push(() => signal.removeEventListener('abort', leave));
    }
  }

  #refuse(waiter: Waiter, code: ErrorCode, message: string, cause?: unknown): void {
    if (!this.#pool.line.has(waiter)) return;
    this.#pool.line.refuse(waiter, this.counted(code, message, cause === undefined ? {} : { cause }));
    this.#pool.round();
  }
}
