/** A member of an initramfs. Owner is root, times are zero, so that the same members give the same bytes. */
export type CpioEntry =
  | { readonly type: 'directory'; readonly path: string; readonly mode: number }
  | { readonly type: 'file'; readonly path: string; readonly mode: number; readonly content: Uint8Array }
  | {
      readonly type: 'device';
      readonly path: string;
      readonly mode: number;
      readonly major: number;
      readonly minor: number;
    };

/** `S_IFDIR`, `S_IFREG` and `S_IFCHR` of stat(2). */
const typeBits = { directory: 0o040000, file: 0o100000, device: 0o020000 } as const;
const pathPattern = /^[A-Za-z0-9._][A-Za-z0-9._/-]{0,254}$/;

const hex = (value: number): string => value.toString(16).toUpperCase().padStart(8, '0');
const padding = (length: number): Buffer => Buffer.alloc((4 - (length % 4)) % 4);

interface Member {
  readonly mode: number;
  readonly links: number;
  readonly inode: number;
  readonly content: Uint8Array;
  readonly device: readonly [major: number, minor: number];
}

function header(path: string, member: Member): Buffer {
  // Order of fields: cpio(5), "New ASCII Format"; the kernel reads it in init/initramfs.c.
  const fields = [
    member.inode,
    member.mode,
    0, // uid
    0, // gid
    member.links,
    0, // mtime
    member.content.byteLength,
    0, // major of the device it lies on
    0, // minor of it
    member.device[0],
    member.device[1],
    Buffer.byteLength(path) + 1,
    0, // checksum: unused by this variant
  ];
  const head = Buffer.from(`070701${fields.map(hex).join('')}${path}\0`, 'latin1');
  return Buffer.concat([head, padding(head.length)]);
}

/**
 * A cpio archive in the "newc" form that the kernel unpacks as its initramfs. Directories must come before what is in
 * them. Paths are relative, at most 255 characters of `[A-Za-z0-9._/-]`; anything else is a programmer's mistake.
 */
export function packCpio(entries: readonly CpioEntry[]): Buffer {
  const parts: Uint8Array[] = [];
  entries.forEach((entry, index) => {
    if (!pathPattern.test(entry.path) || entry.path.split('/').includes('..')) {
      throw new TypeError(`not a path of an initramfs: ${JSON.stringify(entry.path)}`);
    }
    const content = entry.type === 'file' ? entry.content : new Uint8Array();
    const member: Member = {
      inode: index + 1,
      mode: typeBits[entry.type] | entry.mode,
      links: entry.type === 'directory' ? 2 : 1,
      content,
      device: entry.type === 'device' ? [entry.major, entry.minor] : [0, 0],
    };
    parts.push(header(entry.path, member), content, padding(content.byteLength));
  });
  parts.push(
    header('TRAILER!!!', { inode: 0, mode: 0, links: 1, content: new Uint8Array(), device: [0, 0] }),
  );
  return Buffer.concat(parts);
}
