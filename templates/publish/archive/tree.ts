/** A folder as a sorted list of entries. Symbolic links are seen as links and never followed. */
import { lstat, readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { GatewayError } from '../../../sdk/index.ts';

interface EntryBase {
  /** Relative to the folder, `/` between steps, no `.` or `..`. */
  readonly path: string;
}
interface FileEntry extends EntryBase {
  readonly kind: 'file';
  readonly size: number;
  readonly isExecutable: boolean;
}
interface DirectoryEntry extends EntryBase {
  readonly kind: 'directory';
}
export interface LinkEntry extends EntryBase {
  readonly kind: 'link';
  /** As stored; relative. */
  readonly target: string;
}
/** The three kinds a template may hold; anything else is refused where it is met. */
export type TreeEntry = FileEntry | DirectoryEntry | LinkEntry;

/** Bounds on a template's files; the same on both sides of an upload. */
export interface ArchiveLimits {
  /** Compressed bytes. */
  readonly archiveBytes: number;
  /** Sum of all file sizes. */
  readonly contentBytes: number;
  readonly entries: number;
  /** Length of one path in bytes. */
  readonly pathBytes: number;
  /** Steps of one path. */
  readonly depth: number;
}

export const defaultArchiveLimits: ArchiveLimits = {
  archiveBytes: 256 * 1024 * 1024,
  contentBytes: 1024 * 1024 * 1024,
  entries: 50_000,
  pathBytes: 1024,
  depth: 64,
};

/** Byte order of UTF-8, the same on every machine whatever its locale. */
export const byPath = (a: EntryBase, b: EntryBase): number =>
  Buffer.compare(Buffer.from(a.path), Buffer.from(b.path));

const refuse = (message: string): GatewayError =>
  new GatewayError('invalid_request', message, { component: 'templates' });

/**
 * @returns the entry at `path` below `folder`, or undefined when nothing is there
 * @throws GatewayError `invalid_request` for sockets, devices and pipes
 */
export async function readEntry(folder: string, path: string): Promise<TreeEntry | undefined> {
  const absolute = join(folder, path);
  const stats = await lstat(absolute).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
    throw error;
  });
  if (stats === undefined) return undefined;
  if (stats.isDirectory()) return { kind: 'directory', path };
  if (stats.isFile())
    return { kind: 'file', path, size: stats.size, isExecutable: (stats.mode & 0o111) !== 0 };
  if (stats.isSymbolicLink()) return { kind: 'link', path, target: await readlink(absolute) };
  throw refuse(`${path} is neither a file, a folder nor a symbolic link`);
}

/**
 * The entry at `from` and everything below it, sorted. `.` means the whole folder (without an entry for itself).
 * @throws GatewayError `invalid_request` over a limit or for a kind that can't be packed
 */
export async function readTree(folder: string, from: string, limits: ArchiveLimits): Promise<TreeEntry[]> {
  const entries: TreeEntry[] = [];
  let contentBytes = 0;
  const pending = from === '.' ? [...(await readdir(folder))] : [from];
  for (let path = pending.pop(); path !== undefined; path = pending.pop()) {
    const entry = await readEntry(folder, path);
    if (entry === undefined) throw refuse(`${path} vanished while it was read`);
    entries.push(entry);
    if (entries.length > limits.entries) throw refuse(`the template has more than ${limits.entries} files`);
    if (entry.kind === 'file') contentBytes += entry.size;
    if (contentBytes > limits.contentBytes) {
      throw refuse(`the files of the template are larger than ${limits.contentBytes} bytes`);
    }
    if (entry.kind === 'directory') {
      for (const name of await readdir(join(folder, path))) pending.push(`${path}/${name}`);
    }
  }
  return entries.sort(byPath);
}
