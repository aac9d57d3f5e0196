/** Query of the file routes, checked strictly. */
import { z } from 'zod';
import { GatewayError } from '../../../../sdk/index.ts';
import { invalidInput } from '../../../errors.ts';
import { checkedUser } from '../call.ts';

const querySchema = z.strictObject({
  path: z.string().max(4096).optional(),
  username: z.string().max(64).optional(),
  signature: z.string().max(200).optional(),
  signature_expiration: z
    .string()
    .regex(/^[0-9]{1,12}$/, 'must be a unix time in seconds')
    .transform(Number)
    .optional(),
});
export type FilesQuery = z.infer<typeof querySchema>;

/** @throws GatewayError `invalid_request` naming the field, also for one that comes twice */
export function parseFilesQuery(search: URLSearchParams): FilesQuery {
  const entries = [...search.entries()];
  const result = querySchema.safeParse(Object.fromEntries(entries));
  if (!result.success) throw invalidInput(result.error);
  if (new Set(entries.map(([name]) => name)).size < entries.length) {
    throw new GatewayError('invalid_request', 'a field of the query comes twice', { field: 'query' });
  }
  return result.data;
}

/** The user a request acts as: of the query, else of its header. @throws GatewayError `unauthenticated` */
export function actingUser(query: FilesQuery, ofHeader: string | null): string {
  const user = query.username === undefined ? ofHeader : checkedUser(query.username);
  if (user !== null) return user;
  throw new GatewayError('unauthenticated', `there is no user ${JSON.stringify(query.username ?? '')}`);
}
