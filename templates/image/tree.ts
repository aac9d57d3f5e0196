import { constants } from 'node:fs';
import {
  appendFile,
  chmod,
  chown,
  copyFile,
  link,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises';
import { join } from 'node:path';

/** The unprivileged user of every guest. */
export const guestUser = {
  name: 'user',
  uid: 1000,
  gid: 1000,
  home: '/home/user',
  shell: '/bin/bash',
} as const;

/** Documentation is of no use in a guest; licence texts stay, as they must. */
const dpkgConfig = `path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/share/lintian/*
`;
const prunedDirectories = ['man', 'info', 'locale', 'lintian'];

const removeTree = (path: string): Promise<void> => rm(path, { recursive: true, force: true });

async function emptyDirectory(path: string): Promise<void> {
  for (const name of await readdir(path).catch(() => [])) await removeTree(join(path, name));
}

/** Makes what mmdebstrap left fit for being copied: no documentation now, and none from later packages. */
export async function trimSeed(tree: string): Promise<void> {
  await removeTree(join(tree, 'etc/dpkg/dpkg.cfg.d/99mmdebstrap'));
  await removeTree(join(tree, 'etc/apt/apt.conf.d/99mmdebstrap'));
  await writeFile(join(tree, 'etc/dpkg/dpkg.cfg.d/snapgate'), dpkgConfig);
  for (const name of prunedDirectories) await emptyDirectory(join(tree, 'usr/share', name));
  const docs = join(tree, 'usr/share/doc');
  for (const name of await readdir(docs)) {
    const entries = await readdir(join(docs, name)).catch(() => []);
    for (const entry of entries) if (entry !== 'copyright') await removeTree(join(docs, name, entry));
  }
}

const archivesIn = (tree: string): string => join(tree, 'var/cache/apt/archives');
const policyPath = (tree: string): string => join(tree, 'usr/sbin/policy-rc.d');

/** Lets apt run inside the tree: name resolution as on the host, packages fetched before, no services started. */
export async function prepareInstall(tree: string, archivesPath: string): Promise<void> {
  for (const name of ['resolv.conf', 'hosts']) {
    await rm(join(tree, 'etc', name), { force: true });
    await copyFile(join('/etc', name), join(tree, 'etc', name), constants.COPYFILE_FICLONE).catch(
      ignoreMissing,
    );
  }
  await writeFile(policyPath(tree), '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  await mkdir(archivesPath, { recursive: true });
  for (const name of await readdir(archivesPath)) {
    // apt checks size and hash of what it finds. A package that left the cache meanwhile is fetched again.
    await link(join(archivesPath, name), join(archivesIn(tree), name)).catch(ignoreExistingOrMissing);
  }
}

/** Keeps the packages that were fetched for the next root of the same suite. */
export async function keepArchives(tree: string, archivesPath: string): Promise<void> {
  await mkdir(archivesPath, { recursive: true });
  for (const name of await readdir(archivesIn(tree))) {
    if (name.endsWith('.deb')) await rename(join(archivesIn(tree), name), join(archivesPath, name));
  }
}

async function addUser(tree: string): Promise<void> {
  const { name, uid, gid, home, shell } = guestUser;
  if ((await readFile(join(tree, 'etc/passwd'), 'utf8')).includes(`\n${name}:`)) return;
  await appendFile(join(tree, 'etc/passwd'), `${name}:x:${uid}:${gid}::${home}:${shell}\n`);
  await appendFile(join(tree, 'etc/group'), `${name}:x:${gid}:\n`);
  // No password can match `*`; the day is fixed, so that two builds are alike.
  await appendFile(join(tree, 'etc/shadow'), `${name}:*:19000:0:99999:7:::\n`);
  await appendFile(join(tree, 'etc/gshadow'), `${name}:*::\n`).catch(ignoreMissing);
  const homePath = join(tree, home);
  await mkdir(homePath, { recursive: true });
  for (const file of await readdir(join(tree, 'etc/skel'))) {
    await copyFile(join(tree, 'etc/skel', file), join(homePath, file));
    await chown(join(homePath, file), uid, gid);
  }
  await chown(homePath, uid, gid);
  await chmod(homePath, 0o750);
}

/** Last step before packing: the guest's user and names are set, and all traces of the build are gone. */
export async function finishTree(tree: string): Promise<void> {
  await addUser(tree);
  const etc = join(tree, 'etc');
  await writeFile(join(etc, 'hostname'), 'snapgate\n');
  await writeFile(join(etc, 'hosts'), '127.0.0.1\tlocalhost snapgate\n::1\tlocalhost ip6-localhost\n');
  await rm(join(etc, 'resolv.conf'), { force: true });
  await writeFile(join(etc, 'resolv.conf'), '');
  await writeFile(join(etc, 'machine-id'), '');
  await mkdir(join(etc, 'default'), { recursive: true });
  await writeFile(join(etc, 'default/locale'), 'LANG=C.UTF-8\n');
  await rm(policyPath(tree), { force: true });
  for (const path of [
    'dev',
    'proc',
    'sys',
    'run',
    'tmp',
    'var/tmp',
    'var/lib/apt/lists',
    'var/cache/apt',
    'var/log',
  ]) {
    await emptyDirectory(join(tree, path));
  }
  for (const path of ['var/lib/dbus/machine-id', 'var/cache/ldconfig/aux-cache', 'root/.wget-hsts']) {
    await rm(join(tree, path), { force: true });
  }
  for (const path of ['var/lib/dpkg', 'var/cache/debconf']) {
    for (const name of await readdir(join(tree, path)).catch(() => [])) {
      if (name.endsWith('-old')) await rm(join(tree, path, name));
    }
  }
  for (const path of ['var/lib/apt/lists/partial', 'var/cache/apt/archives/partial']) {
    await mkdir(join(tree, path), { recursive: true });
  }
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}

function ignoreExistingOrMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') ignoreMissing(error);
}
