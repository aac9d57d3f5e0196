/**
 * The same guest under QEMU as it comes: booted from its kernel, or resumed with `-loadvm` from a snapshot inside its own
 * disk image, RAM and all. Neither the mapping shim nor shared memory is involved.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOverlay } from '../../../edge/disk/qcow2-overlay.ts';
import { connectGuest, type SandboxChannel } from '../../../edge/guest/index.ts';
import { GuestHttp } from '../../../edge/machine/guest-http.ts';
import { serviceId } from '../../../edge/machine/service-output.ts';
import { commandLine, inheritedFiles } from '../../../edge/vmm/qemu/command-line.ts';
import { newMachineId, newNodeId } from '../../../sdk/index.ts';
import type { openBareVmm } from '../bare-vmm.ts';
import { Qmp } from '../qmp.ts';
import { readAnswer } from './host-peers.ts';

type BareVmm = Awaited<ReturnType<typeof openBareVmm>>;

const binary = '/usr/bin/qemu-system-x86_64';
const snapshotName = 'warm';
/** As many as the pipeline's own warm-up of the template. */
const warmupRequests = 20;

/** Measures the two. Dispose of it to remove the snapshot. */
export interface PlainQemu extends AsyncDisposable {
  /** Milliseconds from nothing to the first answer of a machine that boots. */
  coldBoot(): Promise<number>;
  /** Milliseconds from nothing to the first answer of a machine that loads the snapshot; its copy of the disk is made before. */
  loadvm(): Promise<number>;
  /** Bytes of the image that each `-loadvm` machine needs for itself. */
  readonly imageBytes: number;
}

/** Boots the guest of a version once and keeps it as an internal snapshot. */
export async function openPlainQemu(bare: BareVmm, signal: AbortSignal): Promise<PlainQemu> {
  const root = await mkdtemp(join(tmpdir(), 'plain-'));
  const token = randomBytes(32).toString('hex');
  const imagePath = join(root, 'warm.qcow2');
  let machines = 0;

  async function start(extra: readonly string[], image?: string) {
    const directory = join(root, `m${machines++}`);
    await mkdir(directory);
    const disk = join(directory, 'disk.qcow2');
    if (image === undefined) await createOverlay({ path: disk, virtualMiB: bare.restorable.shape.diskMiB });
    else await cp(image, disk);
    const from = performance.now();
    const child = await startQemu(bare, directory, extra);
    return { directory, disk, child, from };
  }
  const bootArguments = [
    ...['-kernel', bare.version.image.kernelPath, '-initrd', bare.version.image.initrdPath],
    ...['-append', `console=ttyS0 panic=-1 quiet no_timer_check snapgate.token=${token}`],
  ];

  /** Runs `use` on a machine that answers, and removes the machine. */
  async function withMachine<T>(
    extra: readonly string[],
    image: string | undefined,
    use: (machine: {
      qmp: Qmp;
      channel: SandboxChannel;
      http: GuestHttp;
      ms: number;
      disk: string;
    }) => Promise<T>,
  ): Promise<T> {
    const { directory, disk, child, from } = await start(extra, image);
    try {
      const qmp = await Qmp.open(join(directory, 'qmp.sock'));
      await qmp.execute('cont');
      const channel = await connectGuest({ socketPath: join(directory, 'agent.sock'), token, signal });
      const http = new GuestHttp(channel, { port: 8000, connections: 1 });
      if (image === undefined) await startService(bare, channel, signal);
      await firstAnswer(http, signal);
      const ms = performance.now() - from;
      const result = await use({ qmp, channel, http, ms, disk });
      await http.destroy();
      channel.close();
      return result;
    } finally {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      await rm(directory, { recursive: true });
    }
  }

  await withMachine(bootArguments, undefined, async ({ qmp, http, channel, disk }) => {
    for (let request = 0; request < warmupRequests; request++)
      await http.probe({ method: 'GET', path: '/' }, { signal });
    await http.close();
    await channel.ping({ signal });
    const said = await qmp.execute('human-monitor-command', { 'command-line': `savevm ${snapshotName}` });
    if (said !== '') throw new Error(`savevm: ${said}`);
    await cp(disk, imagePath);
  });
  await using image = await open(imagePath, 'r');
  const { blocks } = await image.stat();
  return {
    imageBytes: blocks * 512,
    coldBoot: () => withMachine(bootArguments, undefined, async ({ ms }) => ms),
    loadvm: () => withMachine(['-loadvm', snapshotName], imagePath, async ({ ms }) => ms),
    async [Symbol.asyncDispose]() {
      await rm(root, { recursive: true, force: true });
    },
  };
}

/** The product's command line of a clone, with RAM of its own instead of a mapped file, and nothing to wait for. */
async function startQemu(
  { version, restorable, fingerprint }: BareVmm,
  directory: string,
  extra: readonly string[],
): Promise<ChildProcess> {
  const acceleration = { ...fingerprint, translationCacheMiB: 64 };
  const argv = commandLine(newMachineId(newNodeId()), restorable.shape, acceleration, { kind: 'clone' });
  const plain = argv.flatMap((argument, index) => {
    if (argument === '-incoming' || argv[index - 1] === '-incoming') return [];
    if (argument === '-object' || argv[index - 1] === '-object') return [];
    return [argument.replace(/memory-backend=[^,]+,/, '')];
  });
  const inherited = {
    [inheritedFiles.root]: version.image.rootPath,
    [inheritedFiles.disk]: version.diskPath,
  };
  // The number of memory is taken by a file that is not used, so that the others keep theirs.
  const files = await Promise.all(
    [version.diskPath, ...Object.values(inherited)].map((path) => open(path, 'r')),
  );
  try {
    return spawn(binary, [...plain, ...extra], {
      cwd: directory,
      stdio: ['ignore', 'ignore', 'inherit', ...files.map((file) => file.fd)],
    });
  } finally {
    await Promise.all(files.map((file) => file.close()));
  }
}

async function startService(
  { version }: BareVmm,
  channel: SandboxChannel,
  signal: AbortSignal,
): Promise<void> {
  const { command, user } = version.definition.start!;
  await channel.startProcess({ id: serviceId, argv: command, user, env: version.definition.env }, { signal });
}

/** Asks until the service listens. */
async function firstAnswer(http: GuestHttp, signal: AbortSignal): Promise<void> {
  for (;;) {
    const answer = await http.probe({ method: 'GET', path: '/' }, { signal }).catch(() => null);
    if (answer !== null) return void readAnswer(answer.body);
    await new Promise((resolve) => setTimeout(resolve, 20));
    signal.throwIfAborted();
  }
}
