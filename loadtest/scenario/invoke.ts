import { z } from 'zod';
import type { LaunchedArrival } from '../driver/open-loop.ts';
import type { OutgoingRequest } from '../driver/transport.ts';
import { defineScenario, type RequestContext } from './define.ts';

/** What is sent to a function; shared by every scenario that invokes. */
export const invocationOptions = {
  method: z.enum(['GET', 'POST', 'PUT', 'DELETE']).default('GET'),
  path: z
    .string()
    .regex(/^\/[!-~]*$/, 'must start with a slash and hold no spaces')
    .default('/')
    .describe('path within the function, already encoded'),
  body: z
    .string()
    .max(1024 * 1024)
    .optional()
    .describe('sent as it is'),
  headers: z.record(z.string(), z.string()).default({}),
};

type InvocationOptions = z.output<z.ZodObject<typeof invocationOptions>>;

/** The request of each arrival: built once per template and tenant where nothing of it changes. */
export function prepareInvocations(
  context: RequestContext<InvocationOptions>,
): (arrival: LaunchedArrival) => OutgoingRequest {
  const { options, templates } = context;
  const own = Object.entries(options.headers).flat();
  const paths = templates.map((template) => `/fn/${template}${options.path}`);
  const cache = new Map<string, OutgoingRequest>();
  return (arrival) => {
    const path = paths[arrival.target]!;
    const query = context.queryFor(arrival);
    const tenant = context.headersFor(arrival);
    if (query !== '') {
      const joined = path.includes('?') ? `${path}&${query.slice(1)}` : `${path}${query}`;
      return request(options, joined, [...tenant, ...own]);
    }
    const key = `${arrival.target} ${tenant[1] ?? ''}`;
    let cached = cache.get(key);
    if (cached === undefined) {
      cached = request(options, path, [...tenant, ...own]);
      cache.set(key, cached);
    }
    return cached;
  };
}

const request = (options: InvocationOptions, path: string, headers: string[]): OutgoingRequest => ({
  method: options.method,
  path,
  headers,
  ...(options.body === undefined ? {} : { body: options.body }),
});

/** Calls functions over HTTP at a rate. */
export const invoke = defineScenario({
  kind: 'requests',
  name: 'invoke',
  proves: 'how long callers of a function wait at a given rate, by how their machine came to be',
  options: z.strictObject(invocationOptions),
  profile: () => ({ kind: 'constant', ratePerSecond: 50, durationMs: 30_000 }),
  prepare: prepareInvocations,
});
