import { Exchange } from '../driver/exchange.ts';

/** An answered exchange of known latency, without a network. */
export function settledExchange(over: {
  readonly sequence: number;
  readonly intendedMs: number;
  readonly latencyMs: number;
  readonly start: string;
}): Exchange {
  const exchange = new Exchange(
    {
      sequence: over.sequence,
      target: 0,
      intendedMs: over.intendedMs,
      sentMs: over.intendedMs,
      keepsBody: false,
    },
    () => over.intendedMs + over.latencyMs,
    () => undefined,
  );
  const controller = { aborted: false, paused: false, reason: null, abort() {}, pause() {}, resume() {} };
  exchange.onResponseStart(controller, 200, {
    'x-snapgate-start': over.start,
    'server-timing': `queue;dur=${over.latencyMs / 10}, restore;dur=0, exec;dur=${over.latencyMs / 2}`,
  });
  exchange.onResponseEnd();
  return exchange;
}
