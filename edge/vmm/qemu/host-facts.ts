/** What a snapshot and a verdict depend on outside of ourselves: QEMU's build, the host's kernel and CPU. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { release } from 'node:os';
import { promisify } from 'node:util';
import { GatewayError, type MachineId } from '../../../sdk/index.ts';
import type { VmmFingerprint } from '../port.ts';
import { type Acceleration, board, commandLine } from './command-line.ts';

const run = promisify(execFile);

export interface HostFacts {
  /** As in `7.2.22 (Debian 1:7.2+dfsg-7)`. */
  readonly qemuVersion: string;
  readonly hostKernel: string;
  readonly cpuName: string;
}

/** Asks the host. Throws `host_not_ready` when the binary can't be run. */
export async function readHostFacts(binary: string): Promise<HostFacts> {
  const { stdout } = await run(binary, ['--version'], { timeout: 10_000, env: {} }).catch(
    (cause: unknown) => {
      throw new GatewayError('host_not_ready', `${binary} can't be run`, { component: 'edge', cause });
    },
  );
  const version = /version ([^\n]{1,128})/.exec(stdout)?.[1];
  if (version === undefined)
    throw new GatewayError('host_not_ready', `${binary} does not tell its version`, { component: 'edge' });
  const cpuName = /^model name\s*:\s*(.+)$/m.exec(await readFile('/proc/cpuinfo', 'utf8'))?.[1] ?? 'unknown';
  return { qemuVersion: version, hostKernel: release(), cpuName };
}

/** What the snapshots of this node are made with. Pure. */
export function fingerprintOf(facts: HostFacts, acceleration: Acceleration): VmmFingerprint {
  return {
    vmm: 'qemu',
    vmmVersion: facts.qemuVersion,
    accelerator: acceleration.accelerator,
    cpuModel: acceleration.cpuModel,
    board: `${board}#${argumentsDigest(acceleration)}`,
    hostKernel: facts.hostKernel,
  };
}

/** Device state loads only into the machine it came from, so every change of the command line must show. */
function argumentsDigest(acceleration: Acceleration): string {
  const shape = { vcpus: 1, memoryMiB: 256, diskMiB: 1024, rootPath: '/root', hasNetworkCard: true };
  const argv = commandLine('0'.repeat(20) as MachineId, shape, acceleration, {
    kind: 'clone',
  });
  return createHash('sha256').update(argv.join('\0')).digest('hex').slice(0, 12);
}

/** True when the device node exists; says nothing about whether guests run. */
export async function hasKvmDevice(): Promise<boolean> {
  return await stat('/dev/kvm').then(
    (found) => found.isCharacterDevice(),
    () => false,
  );
}
