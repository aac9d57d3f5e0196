/** Prometheus metrics of a gateway. Template names are labels (there are as many as were published); ids never are. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { GatewayError, StartType } from '../sdk/index.ts';

/**
 * How an invocation ended: `answered` by the function · `refused` before it reached one · `failed` with a gateway-made
 * answer after that · `cut` in mid-answer · `cancelled` by the client.
 */
export type Outcome = 'answered' | 'refused' | 'failed' | 'cut' | 'cancelled';

export interface InvocationSample {
  /** Empty when the name did not resolve: unknown names must not become labels. */
  readonly template: string;
  readonly outcome: Outcome;
  /** Absent when no machine answered. */
  readonly start: StartType | undefined;
  readonly headMs: number;
  readonly requestBytes: number;
  readonly responseBytes: number;
  readonly error: GatewayError | null;
}

export interface GatewayMetrics {
  readonly registry: Registry;
  invocationStarted(): void;
  invocationFinished(sample: InvocationSample): void;
  connectionOpened(): void;
  connectionClosed(): void;
  /** A request the HTTP parser gave up on. */
  malformedRequest(code: string): void;
  published(outcome: 'published' | 'unchanged' | 'failed'): void;
}

const headSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Metrics with a registry of their own, so that several gateways fit in one process. */
export function createGatewayMetrics(): GatewayMetrics {
  const registry = new Registry();
  const registers = [registry];
  const invocations = new Counter({
    name: 'snapgate_invocations_total',
    help: 'Finished invocations, by how they ended and how their machine came to be',
    labelNames: ['template', 'outcome', 'start'],
    registers,
  });
  const errors = new Counter({
    name: 'snapgate_errors_total',
    help: 'Gateway-made answers to invocations, by component and code',
    labelNames: ['component', 'code'],
    registers,
  });
  const headDuration = new Histogram({
    name: 'snapgate_invocation_head_seconds',
    help: 'From the head of the request to the head of the answer',
    labelNames: ['template'],
    buckets: headSeconds,
    registers,
  });
  const requestBytes = new Counter({
    name: 'snapgate_request_body_bytes',
    help: 'Bytes of request bodies received',
    registers,
  });
  const responseBytes = new Counter({
    name: 'snapgate_response_body_bytes',
    help: 'Bytes of response bodies sent',
    registers,
  });
  const inFlight = new Gauge({
    name: 'snapgate_invocations_in_flight',
    help: 'Unfinished invocations, upgraded connections included',
    registers,
  });
  const connections = new Gauge({
    name: 'snapgate_client_connections',
    help: 'Open client connections',
    registers,
  });
  const malformed = new Counter({
    name: 'snapgate_malformed_requests_total',
    help: 'Requests which the HTTP parser gave up on',
    labelNames: ['code'],
    registers,
  });
  const publishes = new Counter({
    name: 'snapgate_publishes_total',
    help: 'Finished publishes',
    labelNames: ['outcome'],
    registers,
  });
  return {
    registry,
    invocationStarted: () => inFlight.inc(),
    invocationFinished(sample) {
      inFlight.dec();
      const { template, outcome, error } = sample;
      invocations.inc({ template, outcome, start: sample.start ?? '' });
      if (error !== null) errors.inc({ component: error.details.component ?? 'gateway', code: error.code });
      if (sample.start !== undefined) headDuration.observe({ template }, sample.headMs / 1000);
      if (sample.requestBytes > 0) requestBytes.inc(sample.requestBytes);
      if (sample.responseBytes > 0) responseBytes.inc(sample.responseBytes);
    },
    connectionOpened: () => connections.inc(),
    connectionClosed: () => connections.dec(),
    malformedRequest: (code) => malformed.inc({ code }),
    published: (outcome) => publishes.inc({ outcome }),
  };
}
