import { GatewayError, type SandboxInfo } from '../../sdk/index.ts';

const tokenPattern = /^([0-9]{1,15})\.([a-z0-9]{20})$/;

/** Newest first; the id settles ties, so that the order is total and a page can begin after any item. */
const before = (one: Place, other: Place): number =>
  other.createdAt - one.createdAt || (one.id < other.id ? -1 : one.id > other.id ? 1 : 0);

interface Place {
  readonly createdAt: number;
  readonly id: string;
}

/**
 * The items behind `token`, at most `limit`. A token is a place in the order and not a count, so nothing is shown twice
 * or skipped when sandboxes come and go between two pages.
 * @throws GatewayError `invalid_request` for a token nobody was given
 */
export function pageOf(
  all: readonly SandboxInfo[],
  limit: number,
  token: string | undefined,
): { readonly items: SandboxInfo[]; readonly nextToken: string | null } {
  const after = token === undefined ? undefined : placeOf(token);
  const rest = all
    .filter((item) => after === undefined || before(after, item) < 0)
    .sort((one, other) => before(one, other));
  const items = rest.slice(0, limit);
  const last = items.at(-1);
  const hasMore = last !== undefined && rest.length > limit;
  return {
    items,
    nextToken: hasMore ? Buffer.from(`${last.createdAt}.${last.id}`).toString('base64url') : null,
  };
}

function placeOf(token: string): Place {
  const match = tokenPattern.exec(Buffer.from(token, 'base64url').toString('latin1'));
  if (match?.[1] !== undefined && match[2] !== undefined)
    return { createdAt: Number(match[1]), id: match[2] };
  throw new GatewayError('invalid_request', 'this token names no page', { field: 'nextToken' });
}
