/**
 * Snapshots on disk: `<id>/` with `memory.delta` (what differs from the base image), `device.state`, all disk layers above the
 * base's (`layer-0.qcow2` …, links) and `manifest.json`, which is written last. A directory without a dot in front is
 * complete and durable.
 */
import { link, mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import { type FileDigest, syncPath } from './durable.ts';
import { baseIdSchema, type Origin, originSchema } from './record.ts';

const fileSchema = z.strictObject({
  name: z.string().regex(/^[a-z0-9.-]{1,64}$/),
  bytes: z.int(),
  digest: z.string(),
});
const manifestSchema = z.strictObject({
  format: z.literal(1),
  origin: originSchema,
  base: baseIdSchema,
  baseDigests: z.strictObject({ memory: z.string(), disk: z.string() }),
  /** What the agent inside expects of its host. */
  channelToken: z.string().regex(/^[0-9a-f]{64}$/),
  fingerprint: z.record(z.string(), z.string()),
  delta: fileSchema,
  state: fileSchema,
  /** Bottom first. */
  layers: z.array(fileSchema).max(256),
});
export type SnapshotManifest = z.output<typeof manifestSchema>;
const maxManifestBytes = 4 * 2 ** 20;

/** Everything a child is made from; paths are absolute. */
export interface RestorableSnapshot {
  readonly origin: Origin;
  readonly base: string;
  readonly channelToken: string;
  readonly deltaPath: string;
  readonly statePath: string;
  readonly layers: readonly string[];
}

const names = { delta: 'memory.delta', state: 'device.state', manifest: 'manifest.json' } as const;

/** A directory that a capture fills. Disposing removes it unless it was published. */
export interface SnapshotDraft extends AsyncDisposable {
  readonly deltaPath: string;
  readonly statePath: string;
  /** Takes the disk layers in. */
  link(layers: readonly string[]): Promise<readonly string[]>;
  /**
   * Sums, syncs and renames: afterwards the snapshot exists.
   * @returns bytes that are its own: delta, state and newest layer
   */
  publish(
    facts: Pick<SnapshotManifest, 'origin' | 'base' | 'channelToken' | 'fingerprint'>,
    basePaths: { readonly memoryPath: string; readonly diskPath: string },
    options: { readonly signal: AbortSignal },
  ): Promise<number>;
}

export class SnapshotFiles {
  readonly #directory: string;
  readonly #digest: FileDigest;

  /** @param directory on the filesystem of machines; made when missing */
  constructor(directory: string, digest: FileDigest) {
    this.#directory = directory;
    this.#digest = digest;
  }

  async draft(id: string): Promise<SnapshotDraft> {
    const draft = join(this.#directory, `.${id}`);
    await mkdir(draft, { recursive: true, mode: 0o700 });
    const layers: string[] = [];
    let isPublished = false;
    return {
      deltaPath: join(draft, names.delta),
      statePath: join(draft, names.state),
      async link(paths) {
        for (const [index, path] of paths.entries()) {
          const target = join(draft, layerName(index));
          await link(path, target);
          layers.push(target);
        }
        return layers;
      },
      publish: async (facts, basePaths, options) => {
        const entry = async (name: string) => {
          const path = join(draft, name);
          await syncPath(path);
          return { name, bytes: (await stat(path)).size, digest: await this.#digest(path, options) };
        };
        const manifest: SnapshotManifest = {
          format: 1,
          ...facts,
          baseDigests: {
            memory: await this.#digest(basePaths.memoryPath, options),
            disk: await this.#digest(basePaths.diskPath, options),
          },
          delta: await entry(names.delta),
          state: await entry(names.state),
          layers: await Promise.all(layers.map((_, index) => entry(layerName(index)))),
        };
        await writeDurably(join(draft, names.manifest), JSON.stringify(manifest));
        await syncPath(draft);
        await rename(draft, join(this.#directory, id));
        isPublished = true;
        await syncPath(this.#directory);
        return ownBytes(manifest);
      },
      async [Symbol.asyncDispose]() {
        if (!isPublished) await rm(draft, { recursive: true, force: true });
      },
    };
  }

  async has(id: string): Promise<boolean> {
    return stat(join(this.#directory, id)).then(
      () => true,
      () => false,
    );
  }

  /** Throws `snapshot_corrupt`. */
  async manifest(id: string): Promise<SnapshotManifest> {
    try {
      const text = await readFile(join(this.#directory, id, names.manifest), 'utf8');
      if (text.length > maxManifestBytes) throw new RangeError('it is too long');
      return manifestSchema.parse(JSON.parse(text));
    } catch (cause) {
      throw damaged('its manifest can not be read', cause);
    }
  }

  /**
   * What children of a snapshot are made from, every layer checked. `fingerprint`: what this host makes snapshots with.
   * @throws GatewayError `snapshot_corrupt` naming the layer that is damaged; `restore_failed` on another kind of host
   */
  async open(
    id: string,
    fingerprint: Readonly<Record<string, string>>,
    basePaths: { readonly memoryPath: string; readonly diskPath: string },
    options: { readonly signal: AbortSignal },
  ): Promise<RestorableSnapshot> {
    const manifest = await this.manifest(id);
    const changed = Object.keys(fingerprint).filter((key) => manifest.fingerprint[key] !== fingerprint[key]);
    if (changed.length > 0)
      throw new GatewayError(
        'restore_failed',
        `the snapshot was taken on a host with another ${changed.join(', ')}`,
        { component: 'edge' },
      );
    const check = async (layer: string, path: string, expected: string, bytes?: number) => {
      const found = await stat(path).catch(() => null);
      if (found === null) throw damaged(`${layer} is missing`);
      if (bytes !== undefined && found.size !== bytes) throw damaged(`${layer} has a wrong size`);
      if ((await this.#digest(path, options)) !== expected) throw damaged(`${layer} has a wrong checksum`);
      return path;
    };
    const own = ({ name, digest, bytes }: z.output<typeof fileSchema>) =>
      check(name, join(this.#directory, id, name), digest, bytes);
    await check('the base memory image', basePaths.memoryPath, manifest.baseDigests.memory);
    await check('the base disk', basePaths.diskPath, manifest.baseDigests.disk);
    return {
      origin: manifest.origin,
      base: manifest.base,
      channelToken: manifest.channelToken,
      deltaPath: await own(manifest.delta),
      statePath: await own(manifest.state),
      layers: await Promise.all(manifest.layers.map(own)),
    };
  }

  /** A second snapshot of the same state, by links. @returns its own bytes */
  async copy(from: string, to: string): Promise<number> {
    const manifest = await this.manifest(from);
    const draft = join(this.#directory, `.${to}`);
    await mkdir(draft, { recursive: true, mode: 0o700 });
    try {
      const files = [manifest.delta, manifest.state, ...manifest.layers].map(({ name }) => name);
      for (const name of [...files, names.manifest])
        await link(join(this.#directory, from, name), join(draft, name));
      await syncPath(draft);
      await rename(draft, join(this.#directory, to));
      await syncPath(this.#directory);
      return ownBytes(manifest);
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      throw error;
    }
  }

  /** Idempotent. */
  async remove(id: string): Promise<void> {
    await rm(join(this.#directory, id), { recursive: true, force: true });
  }

  /** Removes what was never completed, and what no record names. */
  async sweep(known: ReadonlySet<string>): Promise<void> {
    const found = await readdir(this.#directory).catch(() => []);
    for (const name of found) if (!known.has(name)) await this.remove(name);
  }
}

const layerName = (index: number) => `layer-${index}.qcow2`;
const damaged = (what: string, cause?: unknown) =>
  new GatewayError('snapshot_corrupt', `the snapshot is damaged: ${what}`, { component: 'edge', cause });

function ownBytes({ delta, state, layers }: SnapshotManifest): number {
  return delta.bytes + state.bytes + (layers.at(-1)?.bytes ?? 0);
}

async function writeDurably(path: string, text: string): Promise<void> {
  await using file = await open(path, 'wx', 0o600);
  await file.writeFile(text);
  await file.sync();
}
