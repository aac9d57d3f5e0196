import { canaryOf } from '../check/probe.ts';
import type { RunPlan } from './plan.ts';

/** In whose name each arrival is sent. */
export interface Tenants {
  readonly headersFor: (arrival: { readonly sequence: number }) => readonly string[];
  readonly canaryFor: (arrival: { readonly sequence: number }) => string;
  readonly count: number;
}

/** Arrivals take turns over the keys; each tenant's requests carry its canary when probes are on. */
export function createTenants(plan: RunPlan): Tenants {
  const count = Math.max(1, plan.apiKeys.length);
  const canaries = Array.from({ length: count }, (_, tenant) => canaryOf(plan.apiKeys[tenant] ?? ''));
  const headers = Array.from({ length: count }, (_, tenant) => [
    ...(plan.apiKeys[tenant] === undefined ? [] : ['authorization', `Bearer ${plan.apiKeys[tenant]}`]),
    ...(plan.probe ? ['x-loadtest-canary', canaries[tenant]!] : []),
  ]);
  return {
    count,
    headersFor: (arrival) => headers[arrival.sequence % count]!,
    canaryFor: (arrival) => canaries[arrival.sequence % count]!,
  };
}
