/** Names of the files in a machine's directory. The VMM works inside `vmm/` and sees those files by their short names. */
import { join } from 'node:path';

/** File names as the VMM sees them; its working directory is {@link MachineFiles.vmmDirectory}. */
export const vmmFileNames = {
  qmp: 'qmp.sock',
  agent: 'agent.sock',
  console: 'console.sock',
  incoming: 'incoming.sock',
  state: 'device.state',
  disk: 'disk.qcow2',
  kernel: 'kernel',
  initrd: 'initrd',
  shim: 'map-private.so',
} as const;

/** Paths of one machine as the edge sees them. */
export interface MachineFiles {
  readonly path: string;
  readonly ownerRecord: string;
  readonly stderr: string;
  readonly vmmDirectory: string;
  readonly qmpSocket: string;
  readonly agentSocket: string;
  readonly consoleSocket: string;
  readonly incomingSocket: string;
  readonly state: string;
  readonly disk: string;
  readonly kernel: string;
  readonly initrd: string;
  readonly shim: string;
}

/** The layout below `path`. Nothing in it is created. */
export function machineFiles(path: string): MachineFiles {
  const vmmDirectory = join(path, 'vmm');
  return {
    path,
    ownerRecord: join(path, 'owner.json'),
    stderr: join(path, 'stderr.log'),
    vmmDirectory,
    qmpSocket: join(vmmDirectory, vmmFileNames.qmp),
    agentSocket: join(vmmDirectory, vmmFileNames.agent),
    consoleSocket: join(vmmDirectory, vmmFileNames.console),
    incomingSocket: join(vmmDirectory, vmmFileNames.incoming),
    state: join(vmmDirectory, vmmFileNames.state),
    disk: join(vmmDirectory, vmmFileNames.disk),
    kernel: join(vmmDirectory, vmmFileNames.kernel),
    initrd: join(vmmDirectory, vmmFileNames.initrd),
    shim: join(vmmDirectory, vmmFileNames.shim),
  };
}

/** `sun_path` holds 108 bytes with its final NUL; longer run directories can't work. */
export const maxRunDirectoryBytes =
  107 - Buffer.byteLength(machineFiles(`/${'x'.repeat(20)}`).incomingSocket);
