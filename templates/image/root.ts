import { open } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunCommand } from './command.ts';
import { buildEnvironment, type DebianOptions, installCommand } from './debian.ts';
import type { ImageContents } from './image-store.ts';
import { unmountBelow } from './mounts.ts';
import type { RootRecipe } from './recipe.ts';
import type { Seed } from './seed.ts';
import type { OnProgress } from './single-flight.ts';
import { finishTree, keepArchives, prepareInstall } from './tree.ts';

export interface RootOptions {
  /** `<data>/cache/archives`: packages shared by all builds. */
  readonly archivesPath: string;
  readonly debian: DebianOptions;
}

/** Name of the file system inside its image directory. */
export const rootFileName = 'root.erofs';

/** Any fixed value: it only must be the same in every build, so that equal trees give equal files. */
const fileSystemUuid = '5a4e6a7e-0000-4000-8000-736e61706774';
const interestingLine = /^(Get:|Unpacking |Setting up )/;

/**
 * Makes an EROFS root in `stagingPath` from a seed and packages.
 *
 * File times are kept (Python's compiled files are valid only for the source's exact time); those newer than the
 * archive, which come from the build itself, are set to the archive's date, so that two builds are alike.
 * Not compressed: a guest under emulation spends the same CPU time on reading either way (12–14 s for starting Python
 * twice and reading all libraries), while lz4hc adds 3 s to each build to bring 117 MB down to 68.
 */
export async function buildRoot(
  recipe: RootRecipe,
  seed: Seed,
  stagingPath: string,
  deps: { readonly run: RunCommand },
  options: RootOptions,
  control: { readonly signal: AbortSignal; readonly onProgress: OnProgress },
): Promise<ImageContents> {
  const { signal } = control;
  const task = rootTask(recipe);
  const run = (file: string, argv: readonly string[], onLine?: (line: string) => void) =>
    deps.run(file, argv, { signal, env: buildEnvironment, ...(onLine === undefined ? {} : { onLine }) });
  const tree = join(stagingPath, 'tree');
  control.onProgress({ task, message: 'copying the base system' });
  await run('cp', ['--archive', '--reflink=auto', '--no-target-directory', seed.path, tree]);
  if (recipe.packages.length > 0) {
    await prepareInstall(tree, options.archivesPath);
    control.onProgress({ task, message: 'installing packages' });
    await run('unshare', installCommand(tree, recipe.packages, options.debian), (line) => {
      if (interestingLine.test(line)) control.onProgress({ task, message: line });
    });
    await unmountBelow(tree);
    await keepArchives(tree, options.archivesPath);
  }
  const listed = await run('dpkg-query', [
    `--admindir=${join(tree, 'var/lib/dpkg')}`,
    '--show',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg's own placeholders
    '--showformat=${Package}=${Version}\\n',
  ]);
  await finishTree(tree);
  const newest = `@${seed.epochSeconds}`;
  await run('find', [
    tree,
    '-newermt',
    newest,
    '-exec',
    'touch',
    '--no-dereference',
    `--date=${newest}`,
    '{}',
    '+',
  ]);
  control.onProgress({ task, message: 'packing' });
  const imagePath = join(stagingPath, rootFileName);
  await run('mkfs.erofs', ['--quiet', '-Enosbcrc', `-U${fileSystemUuid}`, imagePath, tree]);
  await pinCreationTime(imagePath, seed.epochSeconds);
  return {
    files: [rootFileName],
    facts: { suite: recipe.suite, wanted: [...recipe.packages], packages: listed.stdout.trim().split('\n') },
  };
}

/**
 * Replaces the file system's creation time, so that equal trees give equal files. mkfs.erofs 1.5 can set it only
 * together with the times of all files (`-T`), which would make every compiled Python file stale: a guest then spends
 * seconds compiling its standard library at each start. Layout: `struct erofs_super_block` in the kernel's
 * fs/erofs/erofs_fs.h; there is no checksum to mend (`nosbcrc`).
 */
async function pinCreationTime(imagePath: string, epochSeconds: number): Promise<void> {
  const superBlockOffset = 1024;
  const magic = 0xe0f5e1e2;
  const buildTimeOffset = 24;
  await using image = await open(imagePath, 'r+');
  const { buffer } = await image.read(Buffer.alloc(4), 0, 4, superBlockOffset);
  if (buffer.readUInt32LE(0) !== magic) throw new Error('mkfs.erofs wrote no EROFS super block');
  const time = Buffer.alloc(12);
  time.writeBigUInt64LE(BigInt(epochSeconds), 0); // build_time; build_time_nsec after it stays zero
  await image.write(time, 0, time.length, superBlockOffset + buildTimeOffset);
}

/** How progress and errors name a root. */
export const rootTask = (recipe: RootRecipe): string =>
  `root ${recipe.suite}${recipe.packages.length === 0 ? '' : ` + ${recipe.packages.join(' ')}`}`;
