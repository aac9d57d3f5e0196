/** Copies whole folders into a sandbox and out of it, file by file over the files API. */
import { createWriteStream } from 'node:fs';
import { chmod, mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import { type FileInfo, GatewayError, isGatewayError, randomName, type Sandbox } from '../../../sdk/index.ts';

export interface CopyCall {
  readonly user: string | undefined;
  readonly signal: AbortSignal;
}

/** Told of what is no file and no directory, and was left out. */
export type OnSkipped = (path: string, type: string) => Promise<void>;

const parallel = 4;
const maxDepth = 64;

/** Copies one file in, with its permissions. */
export async function copyFileIn(from: string, sandbox: Sandbox, to: string, call: CopyCall): Promise<void> {
  await using file = await open(from);
  const { mode } = await file.stat();
  const data = file.createReadStream({ autoClose: false });
  await sandbox.files.write(to, data, { ...call, mode: mode & 0o777 });
}

/** Copies one file out; it appears as a whole or not at all. */
export async function copyFileOut(sandbox: Sandbox, from: string, to: string, call: CopyCall): Promise<void> {
  const stream = await sandbox.files.stream(from, call);
  const bytes = Readable.fromWeb(stream as unknown as NodeReadableStream<Uint8Array>);
  const part = `${to}.${randomName(8)}.part`;
  try {
    await pipeline(bytes, createWriteStream(part, { flags: 'wx' }), { signal: call.signal });
    await rename(part, to);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
}

/** Copies what is in a folder of ours to a directory inside, which is made when it is missing. */
export async function copyTreeIn(
  from: string,
  sandbox: Sandbox,
  to: string,
  call: CopyCall,
  onSkipped: OnSkipped,
): Promise<void> {
  await sandbox.files.mkdir(to, call).catch((error: unknown) => {
    if (!isGatewayError(error, 'conflict')) throw error;
  });
  const entries = await readdir(from, { withFileTypes: true });
  await eachOf(entries, async (entry) => {
    const [source, target] = [join(from, entry.name), `${to.replace(/\/$/, '')}/${entry.name}`];
    if (entry.isDirectory()) await copyTreeIn(source, sandbox, target, call, onSkipped);
    else if (entry.isFile()) await copyFileIn(source, sandbox, target, call);
    else await onSkipped(source, entry.isSymbolicLink() ? 'symbolic link' : 'special file');
  });
}

/** Copies what is in a directory inside to a folder of ours. Links are left out: they could lead our own writes anywhere. */
export async function copyTreeOut(
  sandbox: Sandbox,
  from: string,
  to: string,
  call: CopyCall,
  onSkipped: OnSkipped,
): Promise<void> {
  const rows = await sandbox.files.list(from, { ...call, depth: maxDepth });
  await mkdir(to, { recursive: true });
  const files: { readonly row: FileInfo; readonly target: string }[] = [];
  const directories: { readonly row: FileInfo; readonly target: string }[] = [];
  for (const row of rows) {
    const target = join(to, ...componentsBelow(from, row.path));
    if (row.type === 'directory') {
      await mkdir(target, { recursive: true });
      directories.push({ row, target });
    } else if (row.type === 'file') files.push({ row, target });
    else await onSkipped(row.path, row.type);
  }
  await eachOf(files, async ({ row, target }) => {
    await copyFileOut(sandbox, row.path, target, call);
    await chmod(target, row.mode & 0o777);
  });
  // Last, since one that may not be written could not be filled.
  for (const { row, target } of directories.reverse()) await chmod(target, row.mode & 0o777);
}

/**
 * The way from a directory of the guest down to one of its entries.
 * @throws GatewayError `guest_unreachable` for a path that leads elsewhere: the guest names its entries, and is not believed
 */
export function componentsBelow(directory: string, path: string): string[] {
  const base = directory.replace(/\/+$/, '');
  const components = path.slice(base.length + 1).split('/');
  const isBelow =
    path.startsWith(`${base}/`) &&
    components.every((name) => name !== '' && name !== '.' && name !== '..' && !name.includes('\0'));
  if (isBelow) return components;
  throw new GatewayError('guest_unreachable', 'the sandbox lists an entry that is not in its directory', {
    component: 'guest',
  });
}

/** Some at a time; the first failure is thrown when those that are under way are over. */
async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  let failure: { readonly error: unknown } | null = null;
  const take = async () => {
    for (const item of queue) {
      if (failure !== null) return;
      await work(item).catch((error: unknown) => {
        failure ??= { error };
      });
    }
  };
  await Promise.all(Array.from({ length: parallel }, take));
  if (failure !== null) throw (failure as { readonly error: unknown }).error;
}
