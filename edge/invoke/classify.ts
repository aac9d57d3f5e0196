import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import type { ProcessStatus } from '../guest/index.ts';
import { NotDelivered } from '../machine/guest-http.ts';
import type { Machine } from '../machine/machine.ts';
import { serviceId } from '../machine/service-output.ts';

/** What went wrong between us and a function, before its response head. */
export type InvokeFailure =
  /** The caller went away. */
  | { readonly kind: 'cancelled' }
  /** The budget ran out. */
  | { readonly kind: 'timeout' }
  /** No byte reached the function: nothing can have run. */
  | { readonly kind: 'not_delivered'; readonly error: GatewayError }
  /** The connection ended but machine and service live; a harmless method may be tried again. */
  | { readonly kind: 'closed'; readonly error: GatewayError }
  /** It may have run, and what ran it is lost or failed: never tried again. */
  | { readonly kind: 'broken'; readonly error: GatewayError };

const codeOf = (error: unknown): string =>
  typeof error === 'object' && error !== null && 'code' in error && typeof error.code === 'string'
    ? error.code
    : '';

/** A process that dies closes its connections first and is reaped a moment later; longer under emulation and load. */
const dyingMs = 750;

/** How the service is once it either has ended or lives on. Rejects when the agent does not answer. */
async function settledStatus(machine: Machine): Promise<ProcessStatus> {
  try {
    return await machine.channel.waitProcess(serviceId, { signal: AbortSignal.timeout(dyingMs) });
  } catch {
    return machine.channel.processStatus(serviceId, { signal: AbortSignal.timeout(1_000) });
  }
}

/** Asks the agent why nothing answers, so that a crashed function is not reported as a lost machine. */
async function serviceVerdict(
  machine: Machine,
  template: string,
): Promise<InvokeFailure & { readonly error: GatewayError }> {
  const lost = new GatewayError(
    'guest_unreachable',
    `the machine of ${template} was lost while it answered`,
    { component: 'guest' },
  );
  if (machine.isGone) return { kind: 'broken', error: lost };
  try {
    const service = await settledStatus(machine);
    if (service.state === 'running') {
      const error = new GatewayError(
        'guest_unreachable',
        `${template} closed the connection without an answer`,
        {
          component: 'guest',
        },
      );
      return { kind: 'closed', error };
    }
    const how = service.isOutOfMemory
      ? 'ran out of memory'
      : service.signal !== null
        ? `was ended by signal ${service.signal}`
        : `exited with code ${service.exitCode}`;
    const error = new GatewayError('function_crashed', `${template} ${how} before it answered`, {
      component: 'guest',
    });
    return { kind: 'broken', error };
  } catch {
    return { kind: 'broken', error: lost };
  }
}

/**
 * Names a failed attempt. `signal` is the caller's, `budget` the function's own time.
 * Anything unknown counts as broken: it is never retried unless the method is harmless.
 */
export async function classifyFailure(
  error: unknown,
  context: {
    readonly machine: Machine;
    readonly template: string;
    readonly signal: AbortSignal;
    readonly budget: AbortSignal;
  },
): Promise<InvokeFailure> {
  if (context.signal.aborted) return { kind: 'cancelled' };
  if (context.budget.aborted) return { kind: 'timeout' };
  if (error instanceof NotDelivered) {
    const verdict = await serviceVerdict(context.machine, context.template);
    if (verdict.kind === 'broken' || !isGatewayError(error.cause))
      return { kind: 'not_delivered', error: verdict.error };
    return { kind: 'not_delivered', error: error.cause };
  }
  if (codeOf(error) === 'UND_ERR_INVALID_ARG' || codeOf(error) === 'UND_ERR_NOT_SUPPORTED') {
    return {
      kind: 'broken',
      error: new GatewayError(
        'invalid_request',
        `the request can't be forwarded: ${(error as Error).message}`,
        { component: 'edge', cause: error },
      ),
    };
  }
  if (codeOf(error) === 'UND_ERR_HEADERS_OVERFLOW' || codeOf(error).startsWith('HPE_')) {
    return {
      kind: 'broken',
      error: new GatewayError('function_crashed', `${context.template} sent a malformed HTTP response`, {
        component: 'guest',
        cause: error,
      }),
    };
  }
  return serviceVerdict(context.machine, context.template);
}
