/** `POST /files/compose`: one file out of several, which then are gone. */
import { Readable } from 'node:stream';
import { z } from 'zod';
import { GatewayError } from '../../../../sdk/index.ts';
import { invalidInput } from '../../../errors.ts';
import { withUse } from '../../../sandboxes/held.ts';
import { checkedUser, type EnvdCall } from '../call.ts';
import { type HttpRequest, readJson } from '../http.ts';
import type { WrittenFile } from './upload.ts';

const path = z.string().min(1).max(4096);
const bodySchema = z.strictObject({
  source_paths: z.array(path).min(1).max(1000),
  destination: path,
  username: z.string().max(64).optional(),
});

const bodyBytes = 8 * 1024 * 1024;

/** Nothing is removed unless the whole was written. @throws GatewayError `file_not_found`, `invalid_request`, `disk_full` … */
export async function compose(
  call: EnvdCall,
  request: HttpRequest,
  signal: AbortSignal,
): Promise<WrittenFile> {
  const parsed = bodySchema.safeParse(await readJson(request, bodyBytes));
  if (!parsed.success) throw invalidInput(parsed.error);
  const { source_paths, destination, username } = parsed.data;
  const user = username === undefined ? call.user : checkedUser(username);
  if (user === null)
    throw new GatewayError('unauthenticated', `there is no user ${JSON.stringify(username)}`);
  return withUse({ edge: call.edge, id: call.id, signal }, async ({ channel }, until) => {
    const acting = { user, signal: until };
    const resolve = (one: string) => call.homes.resolve(one, { ...call, user, channel, signal: until });
    const target = await resolve(destination);
    const sources = await Promise.all(source_paths.map(resolve));
    for (const source of sources) {
      const { type } = await channel.statFile(source, acting);
      if (type === 'directory')
        throw new GatewayError('invalid_request', `${source} is a directory`, { field: 'source_paths' });
    }
    const joined = async function* (): AsyncGenerator<Buffer> {
      for (const source of sources) yield* (await channel.readFile(source, acting)) as AsyncIterable<Buffer>;
    };
    await channel.writeFile(target, Readable.from(joined(), { objectMode: false }), acting);
    for (const source of new Set(sources)) if (source !== target) await channel.deleteFile(source, acting);
    return { name: target.slice(target.lastIndexOf('/') + 1), path: target, type: 'file' };
  });
}
