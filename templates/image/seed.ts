import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunCommand } from './command.ts';
import { buildEnvironment, type DebianOptions, seedCommand } from './debian.ts';
import { recipeKey } from './recipe.ts';
import type { OnProgress } from './single-flight.ts';
import { createStaging } from './staging.ts';
import { trimSeed } from './tree.ts';

/**
 * A minimal Debian tree with fresh package lists. Every root of a suite starts as a copy of it, because a copy takes
 * 1.5 s and bootstrapping 17–22 s (measured on two cores); kernels are found through its lists.
 */
export interface Seed {
  readonly path: string;
  /** Newest date of the archive it was made from, epoch seconds: stands in for "now" in all that is built on it. */
  readonly epochSeconds: number;
}

export interface SeedDeps {
  readonly run: RunCommand;
  readonly now: () => number;
}

export interface SeedOptions {
  /** `<data>/cache`. */
  readonly cachePath: string;
  /** Packages kept between builds; emptied with every new seed. */
  readonly archivesPath: string;
  readonly debian: DebianOptions;
  /** A seed older than this is made anew, since the archive drops packages that were superseded. */
  readonly maxAgeMs: number;
}

const directoryPattern = /^([0-9a-f]{64})-(\d+)$/;

/** Date of the newest release file among a tree's package lists. */
async function archiveEpoch(tree: string): Promise<number> {
  const listsPath = join(tree, 'var/lib/apt/lists');
  let newest = 0;
  for (const name of await readdir(listsPath)) {
    if (!name.endsWith('InRelease')) continue;
    const date = /^Date: (.+)$/m.exec(await readFile(join(listsPath, name), 'utf8'))?.[1];
    newest = Math.max(newest, Date.parse(date ?? '') || 0);
  }
  return Math.floor(newest / 1000);
}

/** Finds or makes the seed of a suite. Callers of one suite must not run at the same time (the builder sees to it). */
export async function ensureSeed(
  suite: string,
  deps: SeedDeps,
  options: SeedOptions,
  control: { readonly signal: AbortSignal; readonly onProgress: OnProgress },
): Promise<Seed> {
  const key = recipeKey('seed', { suite, mirror: options.debian.mirror });
  const seedsPath = join(options.cachePath, 'seeds');
  await mkdir(seedsPath, { recursive: true, mode: 0o700 });
  const found = (await readdir(seedsPath))
    .map((name) => ({ name, match: directoryPattern.exec(name) }))
    .filter(({ match }) => match?.[1] === key)
    .map(({ name, match }) => ({ path: join(seedsPath, name), builtAt: Number(match![2]) }))
    .sort((a, b) => b.builtAt - a.builtAt);
  const newest = found[0];
  if (newest !== undefined && deps.now() - newest.builtAt < options.maxAgeMs) {
    return { path: join(newest.path, 'tree'), epochSeconds: await readEpoch(newest.path) };
  }
  const task = `debian ${suite}`;
  const staging = createStaging(join(options.cachePath, 'staging'));
  await staging.clearAbandoned();
  await using directory = await staging.create();
  const tree = join(directory.path, 'tree');
  control.onProgress({ task, message: 'bootstrapping' });
  await deps.run('unshare', seedCommand(suite, tree, options.debian), {
    signal: control.signal,
    env: buildEnvironment,
    onLine: (line) => {
      if (line.startsWith('I: ')) control.onProgress({ task, message: line.slice(3) });
    },
  });
  await trimSeed(tree);
  const epochSeconds = await archiveEpoch(tree);
  await writeFile(join(directory.path, 'epoch'), `${epochSeconds}\n`);
  const path = join(seedsPath, `${key}-${deps.now()}`);
  // The staging directory itself becomes the seed; disposing it afterwards finds nothing.
  await rename(directory.path, path);
  // Packages kept for the previous seed are superseded or soon will be; this also bounds what is kept.
  await rm(options.archivesPath, { recursive: true, force: true });
  for (const old of found) {
    // Another process may still be copying the previous one; two generations back nobody is.
    if (old !== newest) await rm(old.path, { recursive: true, force: true });
  }
  return { path: join(path, 'tree'), epochSeconds };
}

const readEpoch = async (path: string): Promise<number> =>
  Number(await readFile(join(path, 'epoch'), 'utf8'));
