/** `GET /files`: bytes of one file, whole, in part, or compressed. */
import { posix } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createGzip } from 'node:zlib';
import { GatewayError } from '../../../../sdk/index.ts';
import { byteRange } from '../../../sandboxes/bytes.ts';
import { streamInUse } from '../../../sandboxes/held.ts';
import type { EnvdCall } from '../call.ts';
import { type HttpRequest, type HttpResponse, headerOf, sendError } from '../http.ts';

interface Found {
  readonly path: string;
  /** Undefined where it is not known beforehand, as in procfs and behind links. */
  readonly size: number | undefined;
  readonly range: ReturnType<typeof byteRange>;
}

/** Compressed only for clients that ask for nothing else: for others it would cost the node more than it saves them. */
const wantsGzip = (accept: string | undefined): boolean =>
  /^\s*gzip\s*(?:;\s*q=(?:1(?:\.0*)?|0?\.[0-9]*[1-9][0-9]*))?\s*$/i.test(accept ?? '');

/** @throws GatewayError `file_not_found`, `invalid_request` for what is no file, and what the sandbox throws */
export async function download(
  call: EnvdCall,
  wanted: string,
  request: HttpRequest,
  response: HttpResponse,
  signal: AbortSignal,
): Promise<void> {
  const { edge, id, user } = call;
  let found: Found | undefined;
  const body = await streamInUse({ edge, id, signal }, async ({ channel }, until) => {
    const path = await call.homes.resolve(wanted, { ...call, channel, signal: until });
    const row = await channel.statFile(path, { user, signal: until });
    if (row.type === 'directory') throw isDirectory(path);
    const size = row.type === 'file' && row.size > 0 ? row.size : undefined;
    const range = size === undefined ? null : byteRange(headerOf(request, 'range'), size);
    found = { path, size, range };
    if (range === 'unsatisfiable')
      return channel.readFile(path, { user, signal: until, offset: 0, length: 0 });
    const part = range ?? (size === undefined ? {} : { offset: 0, length: size });
    return channel.readFile(path, { user, signal: until, ...part });
  });
  try {
    await send(body, found as unknown as Found, request, response);
  } finally {
    body.destroy();
  }
}

async function send(
  body: Readable,
  found: Found,
  request: HttpRequest,
  response: HttpResponse,
): Promise<void> {
  const { path, size, range } = found;
  if (range === 'unsatisfiable') {
    response.setHeader('content-range', `bytes */${size}`);
    return sendError(response, 416, `the file has ${size} bytes`);
  }
  const headers: Record<string, string | number> = {
    'content-type': 'application/octet-stream',
    'content-disposition': `inline; filename*=utf-8''${encodeURIComponent(posix.basename(path))}`,
    'accept-ranges': 'bytes',
    'cache-control': 'no-store',
    vary: 'accept-encoding',
  };
  const isHead = request.method === 'HEAD';
  if (range === null && !isHead && wantsGzip(headerOf(request, 'accept-encoding'))) {
    response.writeHead(200, { ...headers, 'content-encoding': 'gzip' });
    await pipeline(body, createGzip({ level: constants.Z_BEST_SPEED }), response);
    return;
  }
  const length = range === null ? size : range.length;
  if (length !== undefined) headers['content-length'] = length;
  if (range !== null)
    headers['content-range'] = `bytes ${range.offset}-${range.offset + range.length - 1}/${size}`;
  response.writeHead(range === null ? 200 : 206, headers);
  if (isHead) {
    response.end();
    return;
  }
  await pipeline(body, exactly(length), response);
}

/** Fails when a file became shorter while it was read, since its length was promised. */
function exactly(length: number | undefined): Transform {
  let left = length ?? 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      left -= chunk.length;
      done(null, chunk);
    },
    flush(done) {
      done(
        length !== undefined && left !== 0
          ? new GatewayError('conflict', 'the file changed while it was read')
          : null,
      );
    },
  });
}

const isDirectory = (path: string) =>
  new GatewayError('invalid_request', `${path} is a directory`, { field: 'path' });
