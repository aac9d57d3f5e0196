/** Writes a tar that depends on nothing but its input: no clock, no accounts of this machine, no directory order. */
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { Header, Pax } from 'tar';
import { GatewayError } from '../../../sdk/index.ts';
import type { TreeEntry } from './tree.ts';

const blockBytes = 512;
const chunkBytes = 256 * 1024;
/** Two empty blocks end an archive. */
const endOfArchive = Buffer.alloc(2 * blockBytes);

/** One member of an archive and where its bytes come from. */
export interface TarMember {
  readonly entry: TreeEntry;
  /** Name inside the archive. */
  readonly name: string;
  /** Bytes of a file: in memory, or read from this absolute path without following a link. */
  readonly source: Buffer | string;
}

export interface TarOwner {
  readonly uid: number;
  readonly gid: number;
}

function headerOf(member: TarMember, size: number, owner: TarOwner): Buffer {
  const { entry } = member;
  const isTree = entry.kind === 'directory';
  const fields = {
    path: isTree ? `${member.name}/` : member.name,
    mode: isTree || (entry.kind === 'file' && entry.isExecutable) ? 0o755 : 0o644,
    ...owner,
    size,
    mtime: new Date(0),
    type: isTree
      ? ('Directory' as const)
      : entry.kind === 'link'
        ? ('SymbolicLink' as const)
        : ('File' as const),
    ...(entry.kind === 'link' ? { linkpath: entry.target } : {}),
  };
  const header = new Header(fields);
  // encode() answers whether something did not fit into the 512 bytes; then a pax header carries the long names.
  if (!header.encode()) return header.block!;
  const { path, size: paxSize, linkpath } = fields as typeof fields & { linkpath?: string };
  const pax = new Pax({ path, size: paxSize, ...(linkpath === undefined ? {} : { linkpath }) });
  return Buffer.concat([pax.encode(), header.block!]);
}

async function* fileBytes(path: string, size: number, name: string): AsyncGenerator<Buffer> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW);
  let position = 0;
  while (position < size) {
    const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, size - position));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, position);
    if (bytesRead === 0) {
      throw new GatewayError('invalid_request', `${name} changed while it was read`, {
        component: 'templates',
      });
    }
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** Pull-driven, so memory use is one chunk whatever the size. All members get `owner` (root by default). */
export async function* writeTar(
  members: Iterable<TarMember>,
  owner: TarOwner = { uid: 0, gid: 0 },
): AsyncGenerator<Buffer> {
  for (const member of members) {
    const { entry, source } = member;
    const size = entry.kind !== 'file' ? 0 : typeof source === 'string' ? entry.size : source.length;
    yield headerOf(member, size, owner);
    if (entry.kind !== 'file') continue;
    if (typeof source === 'string') yield* fileBytes(source, size, member.name);
    else yield source;
    const padding = (blockBytes - (size % blockBytes)) % blockBytes;
    if (padding > 0) yield Buffer.alloc(padding);
  }
  yield endOfArchive;
}

/** Members for entries of a folder, under the names they have there or under those `rename` gives them. */
export const membersOf = (
  folder: string,
  entries: readonly TreeEntry[],
  rename: (path: string) => string = (path) => path,
): TarMember[] =>
  entries.map((entry) => ({ entry, name: rename(entry.path), source: join(folder, entry.path) }));
