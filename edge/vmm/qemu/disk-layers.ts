/**
 * The layers of a machine's scratch disk while it lives. At the bottom is the snapshot's disk, inherited open; above it the
 * frozen layers that a forked or resumed machine started from (`layer-0.qcow2` …, links); then the machine's own, of which
 * all but the newest are frozen (`disk.qcow2`, `disk-1.qcow2` …).
 *
 * No layer names its backing file in its header, or the name is not used: each node is told what is below it.
 *
 * The VMM's directory is the VMM's own, so nothing in it is trusted: frozen layers have links in `layers/` beside it, and
 * those are what others are given.
 */
import { constants } from 'node:fs';
import {
  chown,
  type FileHandle,
  link,
  lstat,
  mkdir,
  open,
  readdir,
  rename,
  rm,
  stat,
} from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../../../sdk/index.ts';
import { createOverlay } from '../../disk/qcow2-overlay.ts';
import { SaveRefused } from './device-state.ts';
import { type MachineFiles, vmmFileNames } from './machine-files.ts';
import { type QmpClient, QmpError } from './qmp-client.ts';
import type { BlockNode } from './qmp-message.ts';

/** The descriptor set of the snapshot's disk, as `command-line.ts` names it. */
const baseFile = '/dev/fdset/2';
const stackNode = 'layers';
const foldJob = 'fold';
const foldLookMs = 50;
const nodePattern = /^scratch(\d{1,6})$/;
const stackFilePattern = /^layer-(\d{1,4})\.qcow2$/;

const nodeName = (number: number) => `scratch${number}`;
const stackName = (index: number) => `layer-${index}.qcow2`;
const fileName = (number: number) => (number === 0 ? vmmFileNames.disk : `disk-${number}.qcow2`);

const readOnlyLayer = (filename: string, backing: BlockNode | null): BlockNode => ({
  driver: 'qcow2',
  'read-only': true,
  file: { driver: 'file', filename, 'read-only': true, locking: 'off' },
  backing,
});

/** As the command line describes the writable layer. */
const writableLayer = (number: number, backing: string | null): BlockNode => ({
  driver: 'qcow2',
  'node-name': nodeName(number),
  discard: 'unmap',
  cache: { direct: false, 'no-flush': true },
  file: { driver: 'file', filename: fileName(number), locking: 'off', discard: 'unmap' },
  backing,
});

export class DiskLayers {
  readonly #files: MachineFiles;
  readonly #qmp: () => QmpClient;
  /** Number of the layer that the guest writes to; null until asked. */
  #top: number | null = null;
  /** Frozen layers between the base and the one that the guest writes to; known when `#top` is. */
  #depth = 0;
  /** Number of an empty layer that QEMU has open already. */
  #prepared: number | null = null;

  constructor(files: MachineFiles, qmp: () => QmpClient) {
    this.#files = files;
    this.#qmp = qmp;
  }

  /** See the port's `stackDisk`. */
  async stack(layers: readonly string[]): Promise<void> {
    if (layers.length === 0) return;
    await mkdir(this.#kept, { mode: 0o700 });
    let below = readOnlyLayer(baseFile, null);
    for (const [index, path] of layers.entries()) {
      const name = stackName(index);
      await link(path, join(this.#kept, name));
      await link(path, this.#path(name));
      below = readOnlyLayer(name, below);
    }
    await this.#qmp().execute('blockdev-add', { ...below, 'node-name': stackNode });
    await this.#qmp().execute('blockdev-reopen', { options: [writableLayer(0, stackNode)] });
    this.#top = null;
  }

  /** Creates the next writable layer and has QEMU open it. Does nothing when there is one. */
  async prepare(): Promise<void> {
    const top = await this.#look();
    if (this.#prepared !== null) return;
    const next = top + 1;
    const path = this.#path(fileName(next));
    const { uid, gid } = await stat(this.#files.vmmDirectory);
    // One that QEMU did not take after all.
    const draft = join(this.#files.path, 'new-layer.qcow2');
    await rm(path, { force: true });
    await rm(draft, { force: true });
    try {
      await createOverlay({ path: draft, virtualMiB: await virtualMiB(this.#path(fileName(top))) });
      await chown(draft, uid, gid);
      await rename(draft, path);
      await this.#qmp().execute('blockdev-add', writableLayer(next, null));
      this.#prepared = next;
    } catch (error) {
      await rm(draft, { force: true });
      await rm(path, { force: true });
      throw error;
    }
  }

  /** See the port's `freezeDisk`. Throws {@link SaveRefused} when the disk is as it was. */
  async freeze(): Promise<void> {
    await this.prepare().catch((cause: unknown) => {
      throw new SaveRefused('no new layer', { cause });
    });
    const top = await this.#look();
    const next = this.#prepared ?? top + 1;
    await this.#qmp()
      .execute('blockdev-snapshot', { node: nodeName(top), overlay: nodeName(next) })
      .catch((cause: unknown) => {
        if (cause instanceof QmpError && cause.kind === 'refused')
          throw new SaveRefused('could not freeze', { cause });
        throw cause;
      });
    this.#top = next;
    this.#depth += 1;
    this.#prepared = null;
  }

  /** See the port's `foldDisk`. The layers' files go when QEMU needs them no more. */
  async fold(): Promise<void> {
    const top = await this.#look();
    if (this.#depth === 0) return;
    const qmp = this.#qmp();
    const nodes = await qmp.execute('query-named-block-nodes', { flat: true });
    const base = nodes.find(({ drv, file }) => drv === 'qcow2' && file === baseFile);
    if (base === undefined) throw new QmpError('refused', 'the disk has no base');
    await qmp.execute('block-stream', {
      'job-id': foldJob,
      device: nodeName(top),
      'base-node': base['node-name'],
    });
    const isDone = async () =>
      (await qmp.execute('query-block-jobs', {})).every(({ device }) => device !== foldJob);
    while (!(await isDone())) await sleep(foldLookMs);
    this.#top = null;
    await this.#look();
    if (this.#depth > 0) throw new QmpError('refused', 'the layers could not be copied');
    await rm(this.#kept, { recursive: true, force: true });
    for (let number = 0; number < top; number++) await rm(this.#path(fileName(number)), { force: true });
  }

  /** See the port's `frozenLayers`. */
  async frozen(): Promise<string[]> {
    const top = await this.#look();
    await mkdir(this.#kept, { recursive: true, mode: 0o700 });
    const kept = new Set(await readdir(this.#kept));
    const stacked = [...kept]
      .filter((name) => stackFilePattern.test(name))
      .map((_, index) => stackName(index));
    const own = Array.from({ length: top }, (_, number) => fileName(number));
    // What was folded is below no more.
    const layers = this.#depth === 0 ? [] : [...stacked, ...own].slice(-this.#depth);
    for (const name of layers) if (!kept.has(name)) await keep(this.#path(name), join(this.#kept, name));
    return layers.map((name) => join(this.#kept, name));
  }

  /** Links of the frozen layers, out of the VMM's reach. */
  get #kept(): string {
    return join(this.#files.path, 'layers');
  }

  #path(name: string): string {
    return join(this.#files.vmmDirectory, name);
  }

  /** Asks QEMU, which alone knows after an edge's restart. */
  async #look(): Promise<number> {
    if (this.#top !== null) return this.#top;
    const devices = await this.#qmp().execute('query-block', {});
    const nodes = await this.#qmp().execute('query-named-block-nodes', { flat: true });
    const disk = devices
      .map(({ inserted }) => inserted)
      .find((inserted) => nodePattern.test(inserted?.['node-name'] ?? ''));
    if (disk === undefined)
      throw new GatewayError('vmm_failed', 'the machine has no scratch disk', { component: 'edge' });
    const top = nodePattern.exec(disk['node-name'])?.[1];
    this.#depth = Math.max(0, disk.backing_file_depth - 1);
    const numbers = nodes.map((node) => Number(nodePattern.exec(node['node-name'])?.[1] ?? -1));
    this.#prepared = numbers.find((number) => number > Number(top)) ?? null;
    this.#top = Number(top);
    return this.#top;
  }
}

/** Opens a file in the VMM's directory; never through a link of its making. */
const openOwn = (path: string) => open(path, constants.O_RDONLY | constants.O_NOFOLLOW);

/**
 * Gives a frozen layer a second name, which the VMM can't reach, and takes the right to write away. It can then be read by
 * the VMMs of other users that get a link of it; the directories keep everybody else out.
 */
async function keep(path: string, keptPath: string): Promise<void> {
  await using file = await openOwn(path);
  const found = await file.stat();
  await requirePlain(file);
  await file.chown(process.getuid?.() ?? found.uid, process.getgid?.() ?? found.gid);
  await file.chmod(0o444);
  await link(path, keptPath);
  const { ino } = await lstat(keptPath);
  if (found.isFile() && ino === found.ino) return;
  await rm(keptPath, { force: true });
  throw notPlain();
}

const notPlain = () =>
  new GatewayError('snapshot_corrupt', 'a frozen disk layer is not a plain qcow2', { component: 'edge' });

/**
 * The VMM has written this file, so its header is not trusted: features that make QEMU open further files, or that we never
 * use, are refused.
 */
async function requirePlain(file: FileHandle): Promise<void> {
  const header = Buffer.alloc(80);
  await file.read(header, 0, header.length, 0);
  const isPlain =
    header.toString('latin1', 0, 4) === 'QFI\xfb' &&
    header.readUInt32BE(4) === 3 &&
    header.readBigUInt64BE(72) === 0n;
  if (!isPlain) throw notPlain();
}

/** Size that the guest sees. */
async function virtualMiB(path: string): Promise<number> {
  await using file = await openOwn(path);
  const header = Buffer.alloc(32);
  await file.read(header, 0, header.length, 0);
  return Number(header.readBigUInt64BE(24)) / 2 ** 20;
}
