import { copyFile, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { gunzip, zstdDecompress } from 'node:zlib';
import { GatewayError } from '../../sdk/index.ts';
import type { RunCommand } from './command.ts';
import { buildEnvironment, type DebianOptions, hostAptOptions } from './debian.ts';
import type { ImageContents } from './image-store.ts';
import { resolveModules } from './kernel-modules.ts';
import type { Seed } from './seed.ts';
import type { OnProgress } from './single-flight.ts';

/** Debian's kernel for virtual machines: small, and it has all virtio drivers. */
const kernelPackage = 'linux-image-cloud-amd64';
const concreteKernel = /\blinux-image-[0-9][a-z0-9.+~-]*-cloud-amd64\b/;

/** What the agent needs before it can mount the root; the rest of the kernel's modules stay out of the guest. */
const wantedModules = [
  'virtio_pci',
  'virtio_blk',
  'virtio_console',
  'virtio_net',
  'virtio_rng',
  'erofs',
  'overlay',
  'ext4',
];
/** Faster checksums where the processor has the instruction; absent in some kernels, which is no harm. */
const welcomeModules = ['crc32c_intel'];

export const kernelFileName = 'vmlinuz';
export const modulesOrderFileName = 'modules.order';

/**
 * Fetches the kernel package named by the seed's lists, and keeps the kernel and the few modules in `stagingPath`.
 * The package is unpacked, not installed: no boot loader, no initramfs-tools.
 */
export async function buildKernel(
  seed: Seed,
  stagingPath: string,
  deps: { readonly run: RunCommand },
  options: { readonly debian: DebianOptions },
  control: { readonly signal: AbortSignal; readonly onProgress: OnProgress },
): Promise<ImageContents> {
  const { signal } = control;
  const report = (message: string): void => control.onProgress({ task: 'kernel', message });
  const unpackedPath = join(stagingPath, 'unpacked');
  await mkdir(join(stagingPath, 'cache/archives/partial'), { recursive: true });
  const apt = hostAptOptions(seed.path, join(stagingPath, 'cache'), options.debian);
  const run = (file: string, argv: readonly string[]) =>
    deps.run(file, argv, { signal, env: buildEnvironment, cwd: stagingPath });

  const shown = await run('apt-cache', [...apt, 'show', '--no-all-versions', kernelPackage]);
  const name = concreteKernel.exec(/^Depends: (.*)$/m.exec(shown.stdout)?.[1] ?? '')?.[0];
  if (name === undefined) throw failed(`${kernelPackage} does not name a kernel`);
  report(`fetching ${name}`);
  await run('apt-get', [...apt, 'download', name]);
  const archive = (await readdir(stagingPath)).find((file) => file.endsWith('.deb'));
  if (archive === undefined) throw failed(`apt-get fetched no ${name}`);
  report('unpacking');
  await run('dpkg-deb', ['--extract', join(stagingPath, archive), unpackedPath]);

  // From Debian 13 on, packages put modules below /usr only.
  const libPath = join(unpackedPath, (await readdir(unpackedPath)).includes('lib') ? 'lib' : 'usr/lib');
  const version = (await readdir(join(libPath, 'modules')))[0];
  if (version === undefined) throw failed(`${name} holds no modules`);
  await mkdir(join(unpackedPath, 'depmod/lib'), { recursive: true });
  await rename(join(libPath, 'modules'), join(unpackedPath, 'depmod/lib/modules'));
  await run('depmod', ['--basedir', join(unpackedPath, 'depmod'), version]);
  const modulesPath = join(unpackedPath, 'depmod/lib/modules', version);
  const text = (file: string): Promise<string> => readFile(join(modulesPath, file), 'utf8').catch(() => '');
  const index = {
    dependencies: await text('modules.dep'),
    softDependencies: await text('modules.softdep'),
    builtin: await text('modules.builtin'),
  };
  const welcome = welcomeModules.filter((module) => index.dependencies.includes(module.replaceAll('_', '-')));
  const names: string[] = [];
  for (const path of resolveModules(index, [...welcome, ...wantedModules])) {
    const module = basename(path).replace(/\.(xz|zst|gz)$/, '');
    await writeFile(join(stagingPath, module), await readModule(join(modulesPath, path), run));
    names.push(module);
  }
  await writeFile(join(stagingPath, modulesOrderFileName), names.map((module) => `${module}\n`).join(''));
  await copyFile(join(unpackedPath, 'boot', `vmlinuz-${version}`), join(stagingPath, kernelFileName));
  return {
    files: [kernelFileName, modulesOrderFileName, ...names],
    facts: { kernelVersion: version, package: archive },
  };
}

/** A module as the kernel's loader takes it: not compressed. */
async function readModule(
  path: string,
  run: (file: string, argv: readonly string[]) => Promise<unknown>,
): Promise<Uint8Array> {
  if (path.endsWith('.xz')) {
    await run('unxz', ['--keep', path]);
    return readFile(path.slice(0, -'.xz'.length));
  }
  const content = await readFile(path);
  if (path.endsWith('.zst')) return promisify(zstdDecompress)(content);
  return path.endsWith('.gz') ? promisify(gunzip)(content) : content;
}

const failed = (message: string): GatewayError =>
  new GatewayError('build_failed', message, { component: 'templates' });
