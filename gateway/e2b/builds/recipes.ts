/** How templates were built here, kept so that others can be built upon them. */
import { cp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { randomName } from '../../../sdk/index.ts';
import type { BuildState } from './script.ts';

const recipeSchema = z.strictObject({
  /** A template definition without what starts the service, as its author wrote it. */
  definition: z.record(z.string(), z.unknown()),
  state: z.strictObject({
    env: z.record(z.string(), z.string()),
    user: z.string(),
    workdir: z.string().nullable(),
  }),
  startCmd: z.string().nullable(),
  readyCmd: z.string().nullable(),
});

export interface Recipe {
  readonly definition: Readonly<Record<string, unknown>>;
  readonly state: BuildState;
  readonly startCmd: string | null;
  readonly readyCmd: string | null;
}

export interface Recipes {
  /** Undefined when the version was not built here. */
  find(digest: string): Promise<Recipe | undefined>;
  /** Copies what the recipe's steps need into a folder of the caller's. */
  copyFiles(digest: string, folder: string): Promise<void>;
  /** Keeps a recipe and a copy of the files in `folder`. */
  keep(digest: string, recipe: Recipe, folder: string): Promise<void>;
}

const placeOf = (directory: string, digest: string) => join(directory, digest.replace('sha256:', ''));

/** @param directory made when it is first needed */
export function createRecipes(directory: string): Recipes {
  return {
    async find(digest) {
      try {
        const text = await readFile(join(placeOf(directory, digest), 'recipe.json'), 'utf8');
        return recipeSchema.parse(JSON.parse(text));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
        throw error;
      }
    },
    copyFiles: (digest, folder) => cp(join(placeOf(directory, digest), 'files'), folder, { recursive: true }),
    async keep(digest, recipe, folder) {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const beside = join(directory, `.new-${randomName(12)}`);
      try {
        await mkdir(beside);
        await cp(folder, join(beside, 'files'), { recursive: true });
        await writeFile(join(beside, 'recipe.json'), JSON.stringify(recipe), { mode: 0o600 });
        await rm(placeOf(directory, digest), { recursive: true, force: true });
        await rename(beside, placeOf(directory, digest));
      } finally {
        await rm(beside, { recursive: true, force: true });
      }
    },
  };
}
