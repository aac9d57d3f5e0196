/** A guest for the driver's own tests: the project's kernel, initramfs and agent over a root that holds one program. */
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { newMachineId, newNodeId } from '../../../sdk/index.ts';
import { createImageBuilder } from '../../../templates/index.ts';
import { connectGuest } from '../../guest/index.ts';
import type { BlankVmm, MachineShape, RunningVmm, SnapshotFiles, Vmm, VmmProcess } from '../port.ts';

const run = promisify(execFile);
const checkout = join(import.meta.dirname, '../../..');
const bootTimeoutMs = 120_000;

/** Parts of the checkout that the driver's tests use. */
export const shimPath = join(checkout, 'edge/native/build/map-private.so');

export interface TestGuest {
  readonly kernelPath: string;
  readonly initrdPath: string;
  readonly shape: MachineShape;
  /** What the agent expects of us, in every clone. */
  readonly token: string;
}

/** Builds what the guest boots; the kernel comes from the checkout's own image store. */
export async function buildTestGuest(directory: string, signal: AbortSignal): Promise<TestGuest> {
  const builder = createImageBuilder(
    {},
    {
      dataPath: join(checkout, '.snapgate'),
      agentPath: join(checkout, 'templates/agent/build/agent'),
    },
  );
  const kernel = await builder.ensureKernel({ signal, onProgress: () => {} });
  const root = join(directory, 'root');
  await mkdir(join(root, 'etc'), { recursive: true });
  await writeFile(join(root, 'etc/passwd'), 'root:x:0:0:root:/:/bin/false\n');
  await writeFile(join(root, 'etc/group'), 'root:x:0:\n');
  const source = join(import.meta.dirname, 'test-guest.c');
  await run('gcc', ['-Wall', '-Wextra', '-Werror', '-O1', '-static', '-o', join(root, 'test-guest'), source]);
  const rootPath = join(directory, 'root, with comma.erofs');
  await run('mkfs.erofs', [rootPath, root]);
  await rm(root, { recursive: true });
  return {
    kernelPath: kernel.vmlinuzPath,
    initrdPath: kernel.initrdPath,
    shape: { vcpus: 1, memoryMiB: 128, diskMiB: 64, rootPath },
    token: randomBytes(32).toString('hex'),
  };
}

const node = newNodeId();
export const newId = () => newMachineId(node);

/** Where a snapshot named so has its files. */
export const snapshotAt = (directory: string, name: string): SnapshotFiles => ({
  memoryPath: join(directory, `${name}.memory`),
  statePath: join(directory, `${name}.state`),
  diskPath: join(directory, `${name}.disk`),
});

/** Boots the guest and starts its counter. */
export async function bootCounter(
  vmm: Vmm,
  guest: TestGuest,
  files: SnapshotFiles,
  signal: AbortSignal,
): Promise<RunningVmm> {
  const machine = await vmm.boot({
    id: newId(),
    shape: guest.shape,
    kernelPath: guest.kernelPath,
    initrdPath: guest.initrdPath,
    kernelArgs: [`snapgate.token=${guest.token}`],
    memoryPath: files.memoryPath,
    diskPath: files.diskPath,
    signal,
  });
  await startProgram(machine, guest, 'counter', []);
  await waitForCount(machine, 3);
  return machine;
}

/** Runs the guest's program through the agent. */
export async function startProgram(
  machine: VmmProcess,
  guest: TestGuest,
  id: string,
  args: string[],
): Promise<void> {
  await using channel = await connectGuest({
    socketPath: machine.agentSocketPath,
    token: guest.token,
    signal: AbortSignal.timeout(bootTimeoutMs),
  });
  const signal = AbortSignal.timeout(bootTimeoutMs);
  await channel.startProcess({ id, argv: ['/test-guest', ...args], user: 'root' }, { signal });
}

/** A blank VMM over a snapshot of this guest. */
export const spawnOver = (vmm: Vmm, guest: TestGuest, snapshot: SnapshotFiles): Promise<BlankVmm> =>
  vmm.spawnBlank({
    id: newId(),
    shape: guest.shape,
    snapshot,
    note: { purpose: 'test' },
    signal: AbortSignal.timeout(bootTimeoutMs),
  });

/** All counts on the console, oldest first, each checked against the size of the guest's file. */
export async function counts(machine: VmmProcess): Promise<number[]> {
  const lines = [...(await machine.consoleTail()).matchAll(/^COUNT (\d+) FILE (\d+)$/gm)];
  for (const [line, count, size] of lines)
    if (count !== size) throw new Error(`the guest's memory and disk have come apart: ${line}`);
  return lines.map(([, count]) => Number(count));
}

/** Waits until the guest has counted so far; answers all counts on the console. */
export async function waitForCount(machine: VmmProcess, atLeast: number): Promise<number[]> {
  const deadline = performance.now() + bootTimeoutMs;
  let isGone = false;
  void machine.exited.then(() => {
    isGone = true;
  });
  for (;;) {
    const seen = await counts(machine);
    if ((seen.at(-1) ?? 0) >= atLeast) return seen;
    if (isGone || performance.now() > deadline)
      throw new Error(`the guest did not count to ${atLeast}: ${await machine.consoleTail()}`);
    await sleep(10);
  }
}

/** Processes that belong to a run directory, found without the driver's own code. */
export async function vmmPids(ids: ReadonlySet<string>): Promise<number[]> {
  const pids = (await readdir('/proc')).map(Number).filter(Boolean);
  const found = await Promise.all(
    pids.map(async (pid) => {
      const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      return line.split('\0').some((argument) => ids.has(argument)) ? [pid] : [];
    }),
  );
  return found.flat();
}
