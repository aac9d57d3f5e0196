/** `GET /v2/sandboxes`: filters, order and places between pages. */
import { z } from 'zod';
import { GatewayError, type SandboxInfo } from '../../../sdk/index.ts';
import { stateOf } from './wire.ts';

const states = z.enum(['running', 'paused']);
/** Arrays come joined by commas, or again and again. */
const list = z
  .union([z.string(), z.array(z.string())])
  .transform((value) => [value].flat().flatMap((text) => text.split(',')));

export const limitSchema = z.coerce.number().int().min(1).max(100).default(100);
export const tokenSchema = z.string().max(400).optional();

/** Query of the listings. */
export const listQuerySchema = z.strictObject({
  metadata: z.string().max(65_536).optional(),
  state: list.pipe(z.array(states).max(10)).optional(),
  startedAfter: z.iso.datetime({ offset: true }).optional(),
  template: z.string().max(200).optional(),
  order: z.enum(['asc', 'desc']).default('desc'),
  limit: limitSchema,
  nextToken: tokenSchema,
});
export type ListQuery = z.infer<typeof listQuerySchema>;
/** Ids of a query. */
export const idsSchema = list.pipe(z.array(z.string().regex(/^[a-z0-9]{1,64}$/)).max(100));

export interface ListPage {
  readonly items: readonly SandboxInfo[];
  /** For `X-Next-Token`; null on the last page. */
  readonly nextToken: string | null;
  /** Of all that fit the filter: for `X-Total-Running`. */
  readonly running: number;
}

/** `key=value&…`, each part encoded once more by its client. @throws GatewayError `invalid_request` */
export function parseMetadata(text: string): Record<string, string> {
  const decode = (part: string): string => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  };
  const pairs = [...new URLSearchParams(text)].map(([key, value]) => [decode(key), decode(value)]);
  if (pairs.length === 0 || pairs.some(([key]) => key === '')) {
    throw new GatewayError('invalid_request', 'metadata is filtered by key=value&key=value', {
      field: 'metadata',
    });
  }
  return Object.fromEntries(pairs);
}

interface Place {
  readonly createdAt: number;
  readonly id: string;
}

/** Newest first; the id settles ties, so that a page can begin after any item. */
const newestFirst = (one: Place, other: Place): number =>
  other.createdAt - one.createdAt || (one.id < other.id ? 1 : one.id > other.id ? -1 : 0);

const writeToken = ({ createdAt, id }: Place, order: ListQuery['order']): string =>
  Buffer.from(`${new Date(createdAt).toISOString()}__${id}${order === 'asc' ? '__asc' : ''}`).toString(
    'base64url',
  );

function readToken(token: string, order: ListQuery['order']): Place {
  const [time = '', id = '', tail = 'desc', ...rest] = Buffer.from(token, 'base64url')
    .toString('latin1')
    .split('__');
  const createdAt = Date.parse(time);
  if (!Number.isNaN(createdAt) && /^[a-z0-9]{1,64}$/.test(id) && tail === order && rest.length === 0) {
    return { createdAt, id };
  }
  throw new GatewayError('invalid_request', 'this token names no page of this listing', {
    field: 'nextToken',
  });
}

/** @param all sandboxes that fit template and metadata, in any order */
export function pageOf(all: readonly SandboxInfo[], query: ListQuery): ListPage {
  const { state, startedAfter, order, limit, nextToken } = query;
  const since = startedAfter === undefined ? Number.NEGATIVE_INFINITY : Date.parse(startedAfter);
  const compare = order === 'asc' ? (one: Place, other: Place) => newestFirst(other, one) : newestFirst;
  const fitting = all.filter(
    (item) => (state === undefined || state.includes(stateOf(item))) && item.startedAt >= since,
  );
  const after = nextToken === undefined ? null : readToken(nextToken, order);
  const rest = fitting.filter((item) => after === null || compare(after, item) < 0).sort(compare);
  const items = rest.slice(0, limit);
  const last = items.at(-1);
  return {
    items,
    nextToken: last !== undefined && rest.length > limit ? writeToken(last, order) : null,
    running: fitting.filter((item) => stateOf(item) === 'running').length,
  };
}
