/** Gets one invocation to an edge that takes it. */
import type { EdgeClient, InvokeRequest } from '../../edge/client/index.ts';
import { type Clock, GatewayError, isGatewayError } from '../../sdk/index.ts';
import type { RegisteredVersion } from '../../templates/index.ts';
import type { Placement } from '../placement.ts';
import type { Serving } from '../serving.ts';
import type { Exchange } from './exchange.ts';

export interface EdgeCallDeps {
  readonly placement: Placement;
  readonly serving: Pick<Serving, 'ensure'>;
  readonly clock: Clock;
}

export interface EdgeCall {
  /** Whom it is made for. */
  readonly exchange: Pick<Exchange, 'signal' | 'isReplayable' | 'fail' | 'markHandedOver'>;
  readonly version: RegisteredVersion;
  readonly request: InvokeRequest;
  /** Beyond the function's budget; then an edge that says nothing at all is given up, milliseconds. */
  readonly graceMs: number;
}

/** Answers after which the same request may be sent to another edge: this one certainly did nothing with it. */
const placeAgain = ['node_at_capacity', 'draining', 'edge_unreachable'] as const;

/**
 * Tries the edges in order, as long as they refuse for reasons of their own and nobody has touched the request's body.
 * @throws GatewayError what the last edge said; `edge_lost` reaches the exchange directly
 */
export async function callEdge<T>(
  deps: EdgeCallDeps,
  call: EdgeCall,
  send: (edge: EdgeClient) => Promise<T>,
): Promise<T> {
  const { exchange, request } = call;
  // The edge keeps the function's time; this only catches an edge that says nothing at all.
  const stopWatch = deps.clock.schedule(request.timeoutMs + call.graceMs, () =>
    exchange.fail(new GatewayError('edge_lost', 'the node did not answer in time')),
  );
  try {
    await deps.serving.ensure(call.version, { signal: exchange.signal });
    const edges = deps.placement.candidates(request);
    for (const [index, edge] of edges.entries()) {
      try {
        exchange.markHandedOver();
        return await send(edge);
      } catch (thrown) {
        const isLast = index === edges.length - 1;
        if (isLast || !isGatewayError(thrown, ...placeAgain) || !exchange.isReplayable) throw thrown;
      }
    }
    throw new GatewayError('edge_unreachable', 'no node is known');
  } finally {
    stopWatch();
  }
}
