/** Archives of `COPY` steps, kept by the hash that their client gives them. */
import { createWriteStream } from 'node:fs';
import { copyFile, mkdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { type Readable, Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { GatewayError, randomName } from '../../../sdk/index.ts';

const maxBytes = 512 * 1024 * 1024;

export interface Uploads {
  has(hash: string): Promise<boolean>;
  /** Replaces an earlier one as a whole. @throws GatewayError `body_too_large` */
  put(hash: string, body: Readable): Promise<void>;
  /** @throws GatewayError `invalid_request` when it was not uploaded */
  copyTo(hash: string, path: string): Promise<void>;
}

/** @param directory made when it is first needed */
export function createUploads(directory: string): Uploads {
  const place = (hash: string) => join(directory, hash);
  return {
    has: async (hash) =>
      stat(place(hash)).then(
        () => true,
        () => false,
      ),
    async put(hash, body) {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const beside = join(directory, `.new-${randomName(12)}`);
      let left = maxBytes;
      const limit = new Transform({
        transform(chunk: Buffer, _encoding, done) {
          left -= chunk.length;
          if (left >= 0) done(null, chunk);
          else done(new GatewayError('body_too_large', `an archive has at most ${maxBytes} bytes`));
        },
      });
      try {
        await pipeline(body, limit, createWriteStream(beside, { mode: 0o600 }));
        await rename(beside, place(hash));
      } finally {
        await rm(beside, { force: true });
      }
    },
    async copyTo(hash, path) {
      try {
        await copyFile(place(hash), path);
      } catch (cause) {
        throw new GatewayError('invalid_request', `the files of hash ${hash} were not uploaded`, {
          field: 'filesHash',
          cause,
        });
      }
    },
  };
}
