import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, readFile, rename, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { randomName } from '../../sdk/index.ts';
import type { RecipeKey } from './recipe.ts';
import { createStaging } from './staging.ts';

const digestSchema = z.string().regex(/^[0-9a-f]{64}$/);
const manifestSchema = z.strictObject({
  format: z.literal(1),
  kind: z.enum(['root', 'kernel', 'initrd']),
  digest: digestSchema,
  files: z.record(
    z.string(),
    z.strictObject({ bytes: z.number().int().nonnegative(), sha256: digestSchema }),
  ),
  facts: z.record(z.string(), z.union([z.string(), z.array(z.string())])),
});

/** What is written beside the files of an image. */
export type ImageManifest = z.infer<typeof manifestSchema>;

/** A finished image. Immutable; shared by everything that refers to its digest. */
export interface StoredImage {
  /** Absolute directory, named after the digest. */
  readonly path: string;
  readonly manifest: ImageManifest;
}

/** What a builder put into its staging directory. */
export interface ImageContents {
  /** Names of the files that make up the image; others are not kept. */
  readonly files: readonly string[];
  /** For people and for later steps; not part of the digest. */
  readonly facts: ImageManifest['facts'];
}

/**
 * Images by content digest, found by recipe. An image appears under its digest by one rename, its recipe points to it
 * afterwards: a crash or a full disk leaves at most a staging directory, which the next start removes.
 */
export interface ImageStore {
  /** Null when the recipe was never built or its image is damaged (a file is missing or has another size). */
  find(key: RecipeKey): Promise<StoredImage | null>;
  /** Gives `fill` an empty directory and publishes what it made. Nothing is kept when it throws. */
  build(
    key: RecipeKey,
    kind: ImageManifest['kind'],
    fill: (stagingPath: string) => Promise<ImageContents>,
  ): Promise<StoredImage>;
  /** Removes what dead processes left half-made. */
  clearAbandoned(): Promise<void>;
}

async function hashFile(path: string): Promise<{ bytes: number; sha256: string }> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path, { highWaterMark: 1 << 20 }), hash);
  return { bytes: (await stat(path)).size, sha256: hash.digest('hex') };
}

async function syncPath(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Keeps images below `rootPath` (`<data>/images`). */
export function createImageStore(rootPath: string): ImageStore {
  const recipesPath = join(rootPath, 'recipes');
  const staging = createStaging(join(rootPath, 'staging'));

  async function readImage(digest: string): Promise<StoredImage | null> {
    const path = join(rootPath, digest);
    try {
      const manifest = manifestSchema.parse(JSON.parse(await readFile(join(path, 'manifest.json'), 'utf8')));
      for (const [name, file] of Object.entries(manifest.files)) {
        if ((await stat(join(path, name))).size !== file.bytes) return null;
      }
      return manifest.digest === digest ? { path, manifest } : null;
    } catch {
      // Missing or unreadable means "not built": building it again is the cure for each of these.
      return null;
    }
  }

  async function publish(stagedPath: string, manifest: ImageManifest): Promise<void> {
    await writeFile(join(stagedPath, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`);
    for (const name of [...Object.keys(manifest.files), 'manifest.json'])
      await syncPath(join(stagedPath, name));
    const target = join(rootPath, manifest.digest);
    if ((await readImage(manifest.digest)) !== null) return;
    // A damaged image of the same digest is moved into the staging directory, to go with it.
    await rename(target, join(stagedPath, 'damaged')).catch(ignoreMissing);
    const keptPath = join(stagedPath, 'image');
    await mkdir(keptPath, { mode: 0o755 });
    for (const name of [...Object.keys(manifest.files), 'manifest.json']) {
      await rename(join(stagedPath, name), join(keptPath, name));
    }
    await rename(keptPath, target).catch((error: NodeJS.ErrnoException) => {
      // Another process published the same content between the look and the rename.
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    });
    await syncPath(rootPath);
  }

  async function pointTo(key: RecipeKey, digest: string): Promise<void> {
    await mkdir(recipesPath, { recursive: true });
    const temporary = join(recipesPath, `.${key}.${randomName(8)}`);
    await writeFile(temporary, `${digest}\n`, { flush: true });
    await rename(temporary, join(recipesPath, key));
  }

  return {
    async find(key) {
      const digest = (await readFile(join(recipesPath, key), 'utf8').catch(() => '')).trim();
      return digestSchema.safeParse(digest).success ? readImage(digest) : null;
    },
    async build(key, kind, fill) {
      // VMMs run as users of their own and read images, so the way to them is open; staging is not.
      await mkdir(rootPath, { recursive: true, mode: 0o755 });
      await using directory = await staging.create();
      const contents = await fill(directory.path);
      const files: Record<string, { bytes: number; sha256: string }> = {};
      for (const name of [...contents.files].sort()) files[name] = await hashFile(join(directory.path, name));
      const digest = createHash('sha256')
        .update(JSON.stringify([kind, files]))
        .digest('hex');
      const manifest: ImageManifest = { format: 1, kind, digest, files, facts: contents.facts };
      await publish(directory.path, manifest);
      await pointTo(key, digest);
      return { path: join(rootPath, digest), manifest };
    },
    clearAbandoned: () => staging.clearAbandoned(),
  };
}

function ignoreMissing(error: NodeJS.ErrnoException): void {
  if (error.code !== 'ENOENT') throw error;
}
