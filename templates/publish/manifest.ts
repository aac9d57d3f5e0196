/** What a version directory says about itself. Written last, so a directory with a manifest is complete. */
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { digestSchema, versionFactsSchema } from '../../sdk/index.ts';
import { canonicalJson, templateDefinitionSchema } from '../definition/index.ts';
import { snapshotFileNames } from './host-port.ts';

const imageSchema = z.strictObject({
  kernelPath: z.string().startsWith('/'),
  kernelDigest: z.string().min(1),
  initrdPath: z.string().startsWith('/'),
  initrdDigest: z.string().min(1),
  rootPath: z.string().startsWith('/'),
  rootDigest: z.string().min(1),
});

const fileSchema = z.strictObject({
  bytes: z.int().nonnegative().describe('apparent size; a cut file is found without reading it'),
  sha256: z.string().min(1),
});

/** Strict: a manifest of another release is not half-understood but rebuilt. */
const manifestSchema = z.strictObject({
  schema: z.literal(1),
  digest: digestSchema,
  definition: templateDefinitionSchema,
  contentDigest: z.string(),
  image: imageSchema,
  fingerprint: z.record(z.string(), z.string()),
  files: z.record(z.string(), fileSchema),
  facts: versionFactsSchema,
});
export type Manifest = z.infer<typeof manifestSchema>;

/** Makes the manifest durable before the caller renames the directory. */
export async function writeManifest(directory: string, manifest: Manifest): Promise<void> {
  await using file = await open(join(directory, snapshotFileNames.manifest), 'wx', 0o600);
  await file.writeFile(`${canonicalJson(manifest)}\n`);
  await file.sync();
}

/** @returns the manifest, or a sentence saying why it can't be used; undefined when there is none */
export async function readManifest(directory: string): Promise<Manifest | string | undefined> {
  const text = await readFile(join(directory, snapshotFileNames.manifest), 'utf8').catch(
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return undefined;
      throw error;
    },
  );
  if (text === undefined) return undefined;
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    return 'its manifest is not JSON';
  }
  const result = manifestSchema.safeParse(json);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  return `its manifest is not valid at ${issue?.path.join('.') || '(root)'}: ${issue?.message ?? 'unknown'}`;
}
