/**
 * Base memory images and the disks below all layers, kept for as long as a sandbox or a snapshot stands on them: links, so
 * that a version may be removed or rebuilt without taking them away.
 */
import { link, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { GatewayError, randomName } from '../../sdk/index.ts';
import { syncPath } from './durable.ts';
import { baseIdSchema } from './record.ts';

/** The two files of a base. */
export interface Base {
  readonly id: string;
  readonly memoryPath: string;
  readonly diskPath: string;
}

export class Bases {
  readonly #directory: string;
  readonly #pending = new Map<string, Promise<Base>>();

  /** @param directory on the filesystem of versions and machines; made when missing */
  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Where the base of this id is, whether it exists or not. */
  at(id: string): Base {
    const directory = join(this.#directory, baseIdSchema.parse(id));
    return { id, memoryPath: join(directory, 'memory.img'), diskPath: join(directory, 'disk.qcow2') };
  }

  /** Links these files as a base, or finds that they are one. Rejects with the system's error. */
  async keep(files: { readonly memoryPath: string; readonly diskPath: string }): Promise<Base> {
    const [memory, disk] = await Promise.all([stat(files.memoryPath), stat(files.diskPath)]);
    const id = `${memory.ino}-${disk.ino}`;
    const pending = this.#pending.get(id) ?? this.#link(id, files).finally(() => this.#pending.delete(id));
    this.#pending.set(id, pending);
    return await pending;
  }

  async #link(id: string, files: { readonly memoryPath: string; readonly diskPath: string }): Promise<Base> {
    const base = this.at(id);
    const target = join(this.#directory, id);
    if (await exists(target)) return base;
    const draft = join(this.#directory, `.${randomName(12)}`);
    await mkdir(draft, { recursive: true, mode: 0o700 });
    try {
      await link(files.memoryPath, join(draft, 'memory.img'));
      await link(files.diskPath, join(draft, 'disk.qcow2'));
      await syncPath(draft);
      await rename(draft, target);
      await syncPath(this.#directory);
      return base;
    } catch (error) {
      await rm(draft, { recursive: true, force: true });
      throw error;
    }
  }

  /** Throws `snapshot_corrupt` when a file of the base is missing. */
  async require(id: string): Promise<Base> {
    const base = this.at(id);
    for (const path of [base.memoryPath, base.diskPath])
      if (!(await exists(path)))
        throw new GatewayError('snapshot_corrupt', `the base image ${id} is missing`, { component: 'edge' });
    return base;
  }

  /** Removes the bases that nobody stands on. */
  async sweep(used: ReadonlySet<string>): Promise<void> {
    const names = await readdir(this.#directory).catch(() => []);
    for (const name of names)
      if (!used.has(name) && !this.#pending.has(name))
        await rm(join(this.#directory, name), { recursive: true, force: true });
  }
}

const exists = (path: string) =>
  stat(path).then(
    () => true,
    () => false,
  );
