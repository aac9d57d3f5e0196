import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type CpioEntry, packCpio } from './cpio.ts';
import type { ImageContents, StoredImage } from './image-store.ts';
import { modulesOrderFileName } from './kernel.ts';

export const initrdFileName = 'initrd.cpio';

/** Mount points and work space of the agent before it has a root. */
const directories = ['dev', 'proc', 'sys', 'run', 'tmp', 'newroot', 'modules'];

/**
 * The initramfs: the agent as `/init`, `/modules/*.ko`, and `/modules.order` (a file name a line, in the order to
 * insert them). Not compressed: the kernel would unpack it with emulated instructions, and QEMU reads 5 MB in no time.
 */
export async function buildInitrd(
  kernel: StoredImage,
  agent: Uint8Array,
  stagingPath: string,
): Promise<ImageContents> {
  const order = await readFile(join(kernel.path, modulesOrderFileName));
  const entries: CpioEntry[] = directories.map((path) => ({ type: 'directory', path, mode: 0o755 }));
  entries.push({ type: 'device', path: 'dev/console', mode: 0o600, major: 5, minor: 1 });
  entries.push({ type: 'file', path: 'init', mode: 0o755, content: agent });
  entries.push({ type: 'file', path: 'modules.order', mode: 0o644, content: order });
  for (const name of order.toString('utf8').trim().split('\n')) {
    const content = await readFile(join(kernel.path, name));
    entries.push({ type: 'file', path: `modules/${name}`, mode: 0o644, content });
  }
  await writeFile(join(stagingPath, initrdFileName), packCpio(entries));
  return { files: [initrdFileName], facts: { kernel: kernel.manifest.digest } };
}
