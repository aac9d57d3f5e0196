/** `POST /files`: one file as bytes, or several as a form. */
import { PassThrough, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import busboy from 'busboy';
import { GatewayError, isGatewayError } from '../../../../sdk/index.ts';
import { withUse } from '../../../sandboxes/held.ts';
import type { EnvdCall } from '../call.ts';
import { type HttpRequest, headerOf } from '../http.ts';
import { attributesOf, metadataHeaders } from './metadata.ts';

/** What a client learns of each written file. */
export interface WrittenFile {
  readonly name: string;
  readonly path: string;
  readonly type: 'file';
  readonly metadata?: Readonly<Record<string, string>>;
}

/** Most files of one form. */
const maxFiles = 1000;
const maxPathBytes = 4096;
const fieldBytes = 16 * 1024 * 1024;

/**
 * Writes what the request carries, file by file, each as a whole or not at all.
 * @throws GatewayError `invalid_request`, `forbidden`, `disk_full`, and what the sandbox throws
 */
export async function upload(
  call: EnvdCall,
  path: string | undefined,
  request: HttpRequest,
  signal: AbortSignal,
): Promise<WrittenFile[]> {
  const metadata = metadataHeaders(request);
  const body = decoded(request);
  const write = (to: string, bytes: Readable) => writeOne(call, to, bytes, metadata, signal);
  const type = (headerOf(request, 'content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase();
  if (type === 'multipart/form-data') return writeForm(request, body, path, write);
  if (type !== 'application/octet-stream' && type !== '') {
    throw badRequest('a file comes as multipart/form-data or application/octet-stream', 'content-type');
  }
  if (path === undefined || path === '') throw badRequest('"path" says where the file goes', 'path');
  return [await write(path, body)];
}

function decoded(request: HttpRequest): Readable {
  const encoding = (headerOf(request, 'content-encoding') ?? 'identity').trim().toLowerCase();
  if (encoding === 'identity' || encoding === '') return request;
  if (encoding !== 'gzip')
    throw badRequest(`content-encoding ${JSON.stringify(encoding)} is not known`, 'content-encoding');
  const plain = createGunzip();
  request.once('error', (error) => plain.destroy(error));
  request.once('aborted', () => plain.destroy(brokenOff()));
  plain.once('error', () => request.unpipe(plain).resume());
  return request.pipe(plain);
}

async function writeOne(
  call: EnvdCall,
  wanted: string,
  bytes: Readable,
  metadata: Record<string, string>,
  signal: AbortSignal,
): Promise<WrittenFile> {
  const { edge, id, user } = call;
  const attributes = attributesOf(metadata);
  return withUse({ edge, id, signal }, async ({ channel }, until) => {
    const path = await call.homes.resolve(wanted, { ...call, channel, signal: until });
    try {
      await channel.writeFile(path, bytes, {
        user,
        signal: until,
        ownParents: true,
        ...(attributes === undefined ? {} : { attributes }),
      });
    } catch (error) {
      throw reworded(error, path);
    }
    const name = path.slice(path.lastIndexOf('/') + 1);
    return { name, path, type: 'file', ...(attributes === undefined ? {} : { metadata }) };
  });
}

function reworded(error: unknown, path: string): unknown {
  const said = error instanceof GatewayError ? error.details.cause : undefined;
  if (said instanceof Error && 'code' in said && String(said.code).startsWith('Z_')) {
    return badRequest('the body is no gzip', 'content-encoding');
  }
  if (!isGatewayError(error, 'conflict')) return error;
  return error.details.extra?.reason === 'is_a_directory'
    ? badRequest(`${path} is a directory`, 'path')
    : error;
}

/**
 * One after another, as the form has them. The first failure ends it; files before it stay written, as they would with
 * requests of their own.
 */
async function writeForm(
  request: HttpRequest,
  body: Readable,
  path: string | undefined,
  write: (to: string, bytes: Readable) => Promise<WrittenFile>,
): Promise<WrittenFile[]> {
  const form = openForm(request);
  const written: WrittenFile[] = [];
  let work: Promise<unknown> = Promise.resolve();
  const failed = Promise.withResolvers<never>();
  const ended = Promise.withResolvers<void>();
  const take = (field: string, name: string | undefined, bytes: Readable) => {
    work = work.then(async () => {
      if (field !== 'file')
        throw badRequest(`files come in the field "file", not ${JSON.stringify(field)}`, field);
      const to = path ?? name ?? '';
      if (to === '' || Buffer.byteLength(to) > maxPathBytes) throw badRequest('the file has no name', 'file');
      if (path !== undefined && written.length > 0)
        throw badRequest('"path" names one file, not several', 'path');
      written.push(await write(to, bytes));
    });
    work.catch((error) => {
      bytes.destroy();
      failed.reject(error);
    });
  };
  // Text without a file's name is a file all the same when its place is known.
  form.on('field', (field, text, { valueTruncated }) => {
    if (valueTruncated) failed.reject(badRequest(`a text has at most ${fieldBytes} bytes`, 'file'));
    else take(field, undefined, Readable.from([Buffer.from(text)], { objectMode: false }));
  });
  form.on('file', (field, file, info) => {
    // Kept from the parser's own stream, whose end by an error would be thrown at nobody.
    const bytes = file.pipe(new PassThrough());
    file.once('error', (error) => bytes.destroy(error));
    bytes.once('close', () => file.resume());
    take(field, info.filename, bytes);
  });
  form.once('filesLimit', () => failed.reject(badRequest(`a form has at most ${maxFiles} files`, 'file')));
  form.once('fieldsLimit', () => failed.reject(badRequest('a form has one text at most', 'file')));
  form.once('error', (cause) => failed.reject(malformed(cause)));
  form.once('close', () => ended.resolve());
  body.once('error', (error) => failed.reject(isGatewayError(error) ? error : malformed(error)));
  request.once('aborted', () => failed.reject(brokenOff()));
  body.pipe(form);
  try {
    await Promise.race([ended.promise, failed.promise]);
    await Promise.race([work, failed.promise]);
  } catch (error) {
    body.unpipe(form);
    body.resume();
    form.destroy();
    throw error;
  } finally {
    failed.promise.catch(() => {});
  }
  if (written.length === 0) throw badRequest('the form has no file', 'file');
  return written;
}

function openForm(request: HttpRequest): busboy.Busboy {
  try {
    return busboy({
      headers: request.headers as busboy.BusboyConfig['headers'],
      preservePath: true,
      defParamCharset: 'utf8',
      limits: { files: maxFiles, fields: 1, fieldSize: fieldBytes, headerPairs: 100 },
    });
  } catch (cause) {
    throw malformed(cause);
  }
}

const badRequest = (message: string, field: string) =>
  new GatewayError('invalid_request', message, { field });
const malformed = (cause: unknown) =>
  new GatewayError('invalid_request', 'the form is malformed or was cut off', { field: 'body', cause });
const brokenOff = () => new GatewayError('cancelled', 'the body broke off');
