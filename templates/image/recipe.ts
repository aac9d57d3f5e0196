import { createHash } from 'node:crypto';
import { GatewayError } from '../../sdk/index.ts';

/** What a root filesystem is made of. */
export interface RootRecipe {
  /** Debian release, such as `bookworm`. */
  readonly suite: string;
  /** Debian package names; order and repetition do not matter. */
  readonly packages: readonly string[];
}

/** 64 hex digits over a normalised recipe: the same wish always has the same key. */
export type RecipeKey = string;

/** Debian policy's form of package and suite names. Nothing that matches can be an option or a path. */
const namePattern = /^[a-z0-9][a-z0-9+.-]{1,127}$/;
const packageLimit = 256;

/** Changes whenever the same recipe would give another file system, so that old images are not taken for new ones. */
const recipeFormat = 2;

function assertName(kind: 'image.debian' | 'image.packages', name: string): void {
  if (namePattern.test(name)) return;
  throw new GatewayError('invalid_definition', `${JSON.stringify(name)} is not a Debian name`, {
    component: 'templates',
    field: kind,
  });
}

/**
 * Checks the names and sorts the packages.
 * Throws `invalid_definition` naming the field.
 */
export function normaliseRecipe(recipe: RootRecipe): RootRecipe {
  assertName('image.debian', recipe.suite);
  for (const name of recipe.packages) assertName('image.packages', name);
  const packages = [...new Set(recipe.packages)].sort();
  if (packages.length > packageLimit) {
    throw new GatewayError('invalid_definition', `more than ${packageLimit} packages`, {
      component: 'templates',
      field: 'image.packages',
    });
  }
  return { suite: recipe.suite, packages };
}

/** The key of anything that decides an image's content. Objects must be built with a fixed order of members. */
export function recipeKey(kind: 'root' | 'kernel' | 'initrd' | 'seed', parts: unknown): RecipeKey {
  return createHash('sha256')
    .update(JSON.stringify([recipeFormat, kind, parts]))
    .digest('hex');
}
