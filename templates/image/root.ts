import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunCommand } from './command.ts';
import { buildEnvironment, type DebianOptions, installCommand } from './debian.ts';
import type { ImageContents } from './image-store.ts';
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
 * Not compressed: under emulation the guest's own decompression costs more than reading (figures in README).
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
  await mkdir(stagingPath, { recursive: true });
  await run('mkfs.erofs', [
    '--quiet',
    `-T${seed.epochSeconds}`,
    '--preserve-mtime',
    `-U${fileSystemUuid}`,
    join(stagingPath, rootFileName),
    tree,
  ]);
  return {
    files: [rootFileName],
    facts: { suite: recipe.suite, wanted: [...recipe.packages], packages: listed.stdout.trim().split('\n') },
  };
}

/** How progress and errors name a root. */
export const rootTask = (recipe: RootRecipe): string =>
  `root ${recipe.suite}${recipe.packages.length === 0 ? '' : ` + ${recipe.packages.join(' ')}`}`;
