/** Signed addresses of files: whoever has one may read or write that one file, without the sandbox's token. */
import { createHash } from 'node:crypto';
import { isSame } from './tokens.ts';

/** What a signature stands for; `path` and `user` as they are in the address. */
export interface SignedFile {
  readonly path: string;
  readonly operation: 'read' | 'write';
  /** Empty: the default user. */
  readonly user: string;
  readonly signature: string;
  /** Unix seconds; absent: for ever. */
  readonly expiration: number | undefined;
}

/** Why a signature does not hold; null when it does. */
export type SignatureProblem = 'invalid signature' | 'signature is already expired';

/** The text that clients compute: `v1_` and unpadded base64 of SHA-256. */
export function signFile(file: Omit<SignedFile, 'signature'>, token: string): string {
  const { path, operation, user, expiration } = file;
  const end = expiration === undefined ? '' : `:${expiration}`;
  const digest = createHash('sha256').update(`${path}:${operation}:${user}:${token}${end}`).digest('base64');
  return `v1_${digest.replace(/=+$/, '')}`;
}

/** @param now epoch milliseconds */
export function checkSignature(file: SignedFile, token: string, now: number): SignatureProblem | null {
  if (!isSame(signFile(file, token), file.signature)) return 'invalid signature';
  return file.expiration !== undefined && file.expiration * 1000 < now
    ? 'signature is already expired'
    : null;
}
