/** Data directories of nodes that run real guests in tests, and what such a node may leave in them. */
import { link, mkdir, mkdtemp, readdir, readFile, readlink, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const store = join(import.meta.dirname, '../../../.snapgate');

/** A fresh data directory that shares guest images and scratch disks with `npm start`, since making those takes minutes. */
export async function makeDataDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'sg-'));
  await shareImages(directory);
  return directory;
}

/** Gives a data directory the images and scratch disks of the checkout. */
export async function shareImages(directory: string): Promise<void> {
  for (const name of ['images', 'cache']) {
    await mkdir(join(store, name), { recursive: true });
    await symlink(join(store, name), join(directory, name));
  }
}

const versionsOf = (name: string) => join(store, 'test-versions', name);

/**
 * Takes over the versions that an earlier test file has published under this name, by links: their files are never written again. The
 * next publish finds one whose content, agent and machine are still the same complete, which costs a boot otherwise.
 */
export async function takeVersions(directory: string, name: string): Promise<void> {
  await linkTree(versionsOf(name), join(directory, 'versions')).catch(unlessFar(join(directory, 'versions')));
}

/** Keeps the versions of a data directory for {@link takeVersions}, in place of those that were kept. */
export async function keepVersions(directory: string, name: string): Promise<void> {
  await rm(versionsOf(name), { recursive: true, force: true });
  await linkTree(join(directory, 'versions'), versionsOf(name)).catch(unlessFar(versionsOf(name)));
}

/** On different filesystems there are no links: each file then publishes for itself. */
const unlessFar = (target: string) => async (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EXDEV') throw error;
  await rm(target, { recursive: true });
};

async function linkTree(from: string, to: string): Promise<void> {
  const entries = await readdir(from, { withFileTypes: true }).catch(() => []);
  await mkdir(to, { recursive: true, mode: 0o700 });
  for (const entry of entries) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (entry.isDirectory()) await linkTree(source, target);
    else await link(source, target);
  }
}

/** VMMs whose files lie in this data directory, found without help from the product. */
export async function vmmsOf(dataDirectory: string): Promise<number[]> {
  const pids: number[] = [];
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const [command, cwd] = await Promise.all([
      readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => ''),
      readlink(`/proc/${name}/cwd`).catch(() => ''),
    ]);
    if (command.includes('qemu-system') && cwd.startsWith(dataDirectory)) pids.push(Number(name));
  }
  return pids;
}

/**
 * Everything that machines, sandboxes and publishes may leave: processes, mounts, directories with sockets and layers, snapshots and
 * the bases below them, drafts of versions. Empty when nothing is left.
 */
export async function leaksOf(dataDirectory: string): Promise<string[]> {
  const list = async (name: string) =>
    (await readdir(join(dataDirectory, name)).catch(() => [])).map((entry) => `${name}/${entry}`);
  const mounts = (await readFile('/proc/mounts', 'utf8'))
    .split('\n')
    .filter((line) => line.includes(dataDirectory));
  const drafts = (await list('versions')).filter((entry) => entry.startsWith('versions/.'));
  const pids = (await vmmsOf(dataDirectory)).map((pid) => `vmm ${pid}`);
  const directories = await Promise.all(['machines', 'snapshots', 'bases'].map(list));
  return [...mounts, ...directories.flat(), ...drafts, ...pids];
}
