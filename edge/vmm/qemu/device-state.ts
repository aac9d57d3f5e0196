/**
 * Device state out of a VMM. QEMU writes it with `xen-save-devices-state`, which is of no use to Xen alone: it saves what `migrate`
 * saves of devices, and no RAM at all. `migrate` takes three times as long (a thread, a socket, several round trips) and leaves the
 * disks inactive, so that `cont` has to open each layer again: 8 ms of a pause of 20 (measured).
 */
import { constants } from 'node:fs';
import { open, rm, statfs, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { GatewayError } from '../../../sdk/index.ts';
import { type MachineFiles, vmmFileNames } from './machine-files.ts';
import { type QmpClient, QmpError } from './qmp-client.ts';

/** Device state is 0.1–0.6 MB; a VMM that writes more than this has left the path. */
export const maxStateBytes = 64 * 2 ** 20;
/** With less left on its filesystem, a save that failed has failed for that. */
const scarceBytes = 4 * 2 ** 20;

/** A step that failed without harm to the VMM, which is as it was. */
export class SaveRefused extends Error {
  override readonly name = 'SaveRefused';
}

/** Has a stopped VMM write its state into its own directory. Throws {@link SaveRefused} with the cause when QEMU refused. */
export async function saveDevices(qmp: Pick<QmpClient, 'execute'>, files: MachineFiles): Promise<void> {
  try {
    await qmp.execute('xen-save-devices-state', { filename: vmmFileNames.state, live: false });
  } catch (cause) {
    if (!(cause instanceof QmpError) || cause.kind !== 'refused') throw cause;
    await rm(files.state, { force: true });
    throw new SaveRefused('could not save the state', { cause: (await fullDisk(files.state)) ?? cause });
  }
}

/** QEMU calls every failure an "IO error". */
async function fullDisk(path: string): Promise<GatewayError | null> {
  const { bavail, bsize } = await statfs(dirname(path));
  if (bavail * bsize > scarceBytes) return null;
  return new GatewayError('disk_full', 'could not save the state of the machine: no space left', {
    component: 'edge',
  });
}

/**
 * Moves what was saved to a path that must not exist. The file lies where the VMM can write, and the VMM may have it open wherever a
 * link is made: so its content is copied, from what is a plain file and not a name for another one.
 * @returns bytes
 */
export async function moveState({ state: from }: MachineFiles, to: string): Promise<number> {
  const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const content = await (async () => {
    await using file = await open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const found = await file.stat();
    if (!found.isFile() || found.size === 0 || found.size > maxStateBytes)
      throw new GatewayError('vmm_failed', `a device state of ${found.size} bytes can't be right`, {
        component: 'edge',
      });
    return await file.readFile();
  })();
  try {
    await writeFile(to, content, { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') await rm(to, { force: true });
    throw error;
  }
  await rm(from, { force: true });
  return content.length;
}
