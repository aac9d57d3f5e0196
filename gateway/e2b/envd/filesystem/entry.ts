/** Rows of the agent as E2B's entries. */
import { posix } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { timestampFromMs } from '@bufbuild/protobuf/wkt';
import type { SandboxUse } from '../../../../edge/client/index.ts';
import { type EntryInfo, EntryInfoSchema, FileType } from '../../proto/gen/filesystem/filesystem_pb.js';

type FileRow = Awaited<ReturnType<SandboxUse['channel']['statFile']>>;

/** Extended attributes whose rest of the name is a key of E2B's metadata. */
export const metadataPrefix = 'user.e2b.';

const types: Partial<Record<FileRow['type'], FileType>> = {
  file: FileType.FILE,
  directory: FileType.DIRECTORY,
  symlink: FileType.SYMLINK,
};

const typeLetters: Record<FileRow['type'], string> = {
  file: '-',
  directory: 'd',
  symlink: 'L',
  fifo: 'p',
  socket: 'S',
  device: 'D',
};

/** Nine letters, and before them one for the type, as Go's `FileMode` writes them. */
function permissions({ type, mode }: FileRow): string {
  const bits = [...'rwxrwxrwx'].map((letter, at) => ((mode >> (8 - at)) & 1 ? letter : '-')).join('');
  return `${typeLetters[type]}${bits}`;
}

/** Metadata of a file by its extended attributes; empty when it has none. */
function metadataOf(row: Pick<FileRow, 'attributes'>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(row.attributes ?? {})
      .filter(([name]) => name.startsWith(metadataPrefix))
      .map(([name, value]) => [name.slice(metadataPrefix.length), value]),
  );
}

/** Special files are of no type there. */
export function entryOf(row: FileRow): EntryInfo {
  return create(EntryInfoSchema, {
    name: row.name,
    type: types[row.type] ?? FileType.UNSPECIFIED,
    path: row.path,
    size: BigInt(row.size),
    mode: row.mode & 0o777,
    permissions: permissions(row),
    owner: row.user,
    group: row.group,
    modifiedTime: timestampFromMs(row.mtimeMs),
    ...(row.target === undefined
      ? {}
      : { symlinkTarget: posix.resolve(posix.dirname(row.path), row.target) }),
    metadata: metadataOf(row),
  });
}
