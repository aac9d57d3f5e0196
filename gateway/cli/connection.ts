import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { type AdminClient, createAdminClient, GatewayError } from '../../sdk/index.ts';
import type { CliContext } from './context.ts';
import { dataDirectories } from './data-directory.ts';

/** Name of the file in the data directory in which a gateway leaves address and key for the CLI of its own machine. */
const credentialsFileName = 'credentials.json';
const maxCredentialsBytes = 64 * 1024;
const defaultUrl = 'http://127.0.0.1:7070';

const credentialsSchema = z.strictObject({ url: z.url(), apiKey: z.string().min(1).max(200) });
type Credentials = z.infer<typeof credentialsSchema>;

/** What `--url` and `--api-key` say. */
export interface ConnectionFlags {
  readonly url?: string;
  readonly apiKey?: string;
}

export interface Connection {
  readonly url: string;
  /** Absent: only public templates can be asked. */
  readonly apiKey?: string;
}

/**
 * Address and key: flags, then `SNAPGATE_URL` and `SNAPGATE_API_KEY`, then the credentials file. The file is one pair:
 * its key goes to its own address only, and its address gets no other key, so that neither a mistyped `--url` nor a
 * planted file collects a key.
 * @throws GatewayError `invalid_request` for a credentials file that is malformed or open to other users
 */
export function findConnection(flags: ConnectionFlags, context: CliContext): Connection {
  const url = flags.url ?? (context.env.SNAPGATE_URL || undefined);
  const apiKey = flags.apiKey ?? (context.env.SNAPGATE_API_KEY || undefined);
  if (apiKey !== undefined) return { url: url ?? defaultUrl, apiKey };
  const stored = findCredentials(context);
  if (url === undefined) return stored ?? { url: defaultUrl };
  return stored !== null && isSameOrigin(stored.url, url) ? { url, apiKey: stored.apiKey } : { url };
}

/** A client for the gateway that {@link findConnection} finds. */
export const connect = (flags: ConnectionFlags, context: CliContext): AdminClient =>
  createAdminClient(findConnection(flags, context));

function findCredentials(context: CliContext): Credentials | null {
  for (const directory of dataDirectories(context)) {
    const credentials = readCredentials(join(directory, credentialsFileName), context.userId);
    if (credentials !== null) return credentials;
  }
  return null;
}

function readCredentials(path: string, userId: number): Credentials | null {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // Unreadable is as good as absent: a node that root runs is not this user's to command.
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EACCES') return null;
    throw error;
  }
  try {
    const { mode, uid, size } = fstatSync(fd);
    if ((mode & 0o077) !== 0 || (uid !== userId && uid !== 0)) {
      throw unusable(path, `must belong to you and be closed to others; run: chmod 600 ${path}`);
    }
    if (size > maxCredentialsBytes) throw unusable(path, 'is too large');
    return parseCredentials(readFileSync(fd, 'utf8'), path);
  } finally {
    closeSync(fd);
  }
}

function parseCredentials(text: string, path: string): Credentials {
  try {
    return credentialsSchema.parse(JSON.parse(text));
  } catch {
    // The parser's message could quote the key.
    throw unusable(path, 'is not {"url", "apiKey"}; a gateway writes it anew when it starts without one');
  }
}

const unusable = (path: string, what: string) =>
  new GatewayError('invalid_request', `the credentials file ${path} ${what}`, { component: 'sdk' });

function isSameOrigin(one: string, other: string): boolean {
  return URL.canParse(other) && new URL(one).origin === new URL(other).origin;
}
