import { finished } from 'node:stream';
import type { Lease } from '../../pool/index.ts';
import { type Clock, GatewayError, type MachineId, type VersionDigest } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../../templates/index.ts';
import type { InvokeMeta, InvokeRequest, InvokeResponse, UpgradeResponse } from '../client/port.ts';
import type { GuestHttp, GuestRequest } from '../machine/guest-http.ts';
import type { Machine } from '../machine/machine.ts';
import { classifyFailure, type InvokeFailure } from './classify.ts';
import { HeldBody } from './held-body.ts';

/** Where leases of one version come from. */
export interface LeaseSource {
  readonly definition: TemplateDefinition;
  acquire(options: {
    readonly signal: AbortSignal;
    readonly session: string | undefined;
    readonly isExclusive?: boolean;
  }): Promise<Lease>;
}

export interface InvokerDeps {
  readonly clock: Clock;
  /** Throws `version_not_found` or `version_unavailable`. */
  readonly leases: (digest: VersionDigest) => Promise<LeaseSource>;
  /** Told when a machine begins to answer; the returned function is called when the lease ends. */
  readonly onLease: (machine: MachineId) => () => void;
}

/** Machines tried for one request before it is given up; only while certainly nothing ran. */
const maxAttempts = 3;
const harmlessMethods: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS', 'TRACE']);

interface Attempt<T> {
  readonly answer: T;
  readonly lease: Lease;
  readonly meta: InvokeMeta;
}

/** Answers invocations from leased machines. Every path out of it releases its lease exactly once. */
export function createInvoker(deps: InvokerDeps) {
  const { clock } = deps;

  /** The same lease, with its end announced. */
  function observed(lease: Lease): Lease {
    const onEnd = deps.onLease(lease.machine.id);
    let isHeld = true;
    return {
      ...lease,
      release(outcome, reason) {
        if (isHeld) onEnd();
        isHeld = false;
        lease.release(outcome, reason);
      },
    };
  }

  /** One try on one machine; the lease is still held when it resolves, and released when it rejects or answers a failure. */
  async function attempt<T>(
    request: InvokeRequest,
    source: LeaseSource,
    send: (http: GuestHttp, guest: GuestRequest) => Promise<T>,
    body: HeldBody | null,
  ): Promise<Attempt<T> | InvokeFailure> {
    const lease = observed(await source.acquire({ signal: request.signal, session: request.session }));
    const machine = lease.machine as Machine;
    if (machine.http === null) {
      lease.release('reusable');
      throw new GatewayError(
        'invalid_request',
        `template ${source.definition.name} has no start command, so it answers no invocations`,
        { component: 'edge' },
      );
    }
    const budget = new AbortController();
    const cancelBudget = clock.schedule(request.timeoutMs, () => budget.abort());
    const startedAt = clock.monotonic();
    try {
      const answer = await send(machine.http, {
        method: request.method,
        target: request.target,
        rawHeaders: request.rawHeaders,
        body,
        signal: AbortSignal.any([request.signal, budget.signal]),
      });
      cancelBudget();
      const execMs = clock.monotonic() - startedAt;
      return {
        answer,
        lease,
        meta: {
          machine: machine.id,
          digest: machine.digest,
          start: lease.start,
          timing: { queueMs: lease.queueMs, restoreMs: lease.restoreMs, execMs },
        },
      };
    } catch (error) {
      cancelBudget();
      const failure = await classifyFailure(error, {
        machine,
        template: source.definition.name,
        signal: request.signal,
        budget: budget.signal,
      });
      // A function that ran out of time keeps making side effects: it is stopped before the caller is told.
      if (failure.kind === 'timeout') await machine.dispose('function timeout');
      const isSharing = source.definition.admission.concurrency > 1;
      lease.release(failure.kind === 'cancelled' && isSharing ? 'reusable' : 'discard', failure.kind);
      return failure;
    }
  }

  /** A connection may have been closed by the function, being idle, just as the request was on its way: once more, if harmless. */
  function mayRetry(
    failure: InvokeFailure,
    request: InvokeRequest,
    body: HeldBody | null,
    count: number,
  ): boolean {
    if (body?.isStarted === true) return false;
    if (failure.kind === 'not_delivered') return count < maxAttempts;
    return failure.kind === 'closed' && count === 1 && harmlessMethods.has(request.method);
  }

  function toError(failure: InvokeFailure, request: InvokeRequest, template: string): GatewayError {
    switch (failure.kind) {
      case 'cancelled':
        return new GatewayError('cancelled', 'the caller went away', { component: 'edge' });
      case 'timeout':
        return new GatewayError(
          'function_timeout',
          `${template} did not answer within ${request.timeoutMs} ms; its machine was stopped`,
          {
            component: 'edge',
            extra: { timeout_ms: request.timeoutMs },
          },
        );
      case 'not_delivered':
      case 'closed':
      case 'broken':
        return failure.error;
    }
  }

  async function place<T>(
    request: InvokeRequest,
    send: (http: GuestHttp, guest: GuestRequest) => Promise<T>,
  ): Promise<Attempt<T> & { source: LeaseSource }> {
    const source = await deps.leases(request.digest);
    const body = request.body === null ? null : new HeldBody(request.body);
    for (let count = 1; ; count++) {
      const result = await attempt(request, source, send, body);
      if ('answer' in result) return { ...result, source };
      if (!mayRetry(result, request, body, count)) throw toError(result, request, source.definition.name);
    }
  }

  return {
    async invoke(request: InvokeRequest): Promise<InvokeResponse> {
      const { answer, lease, meta, source } = await place(request, (http, guest) => http.request(guest));
      // The head came in time; from here on only the machine's lifetime bounds a stream.
      const cancelLifetime = clock.schedule(source.definition.ttl.lifetimeMs, () =>
        answer.body.destroy(
          new GatewayError('function_timeout', 'the response outlived the machine', { component: 'edge' }),
        ),
      );
      finished(answer.body, { writable: false }, (error) => {
        cancelLifetime();
        const isClean = error === null || error === undefined;
        lease.release(
          isClean || source.definition.admission.concurrency > 1 ? 'reusable' : 'discard',
          isClean ? 'done' : 'broken response',
        );
      });
      return { ...answer, meta };
    },

    async upgrade(request: InvokeRequest): Promise<UpgradeResponse> {
      const { answer, lease, meta } = await place(request, (http, guest) => http.upgrade(guest));
      const stream = answer.isUpgraded ? answer.socket : answer.body;
      finished(stream, () => lease.release('reusable', 'upgrade closed'));
      if (!answer.isUpgraded) return { ...answer, meta };
      if (answer.head.length > 0) answer.socket.unshift(answer.head);
      return { isUpgraded: true, status: 101, rawHeaders: answer.rawHeaders, socket: answer.socket, meta };
    },
  };
}
