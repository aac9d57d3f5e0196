/** A VMM driver whose machines with a network card get a slot before they start, and give it back when they are no more. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { MachineId } from '../../sdk/index.ts';
import type { BlankOptions, BootOptions, Leftover, Vmm, VmmProcess } from '../vmm/port.ts';
import type { MachineNetworks } from './machine-networks.ts';

/** Beside the owner record: which slot a later edge finds the machine in. */
const slotFileName = 'network.json';
const slotFileSchema = z.strictObject({ slot: z.int().nonnegative() });

export interface NetworkedVmmDeps {
  readonly vmm: Vmm;
  readonly networks: Pick<MachineNetworks, 'attach' | 'takeOver' | 'detach'>;
  readonly onError: (error: unknown, what: string) => void;
}

/** The slot of a leftover; null when it has no network card. */
export async function slotOfLeftover({ directory }: Leftover): Promise<number | null> {
  const text = await readFile(join(directory.path, slotFileName), 'utf8').catch(() => null);
  if (text === null) return null;
  const parsed = slotFileSchema.safeParse(JSON.parse(text));
  return parsed.success ? parsed.data.slot : null;
}

/** Machines without a network card are not touched. */
export function withNetworkCards({ vmm, networks, onError }: NetworkedVmmDeps): Vmm {
  const releaseWith = (machine: VmmProcess): void => {
    void machine.exited
      .then(() => networks.detach(machine.id))
      .catch((error: unknown) => onError(error, 'network slot left behind'));
  };

  async function start<T extends VmmProcess, O extends BootOptions | BlankOptions>(
    options: O,
    begin: (options: O) => Promise<T>,
  ): Promise<T> {
    if (!options.shape.hasNetworkCard) return await begin(options);
    const tap = await networks.attach(options.id);
    let machine: T | null = null;
    try {
      machine = await begin({ ...options, tap });
      const { slot } = tap;
      await writeFile(join(machine.directory.path, slotFileName), JSON.stringify({ slot }), { mode: 0o600 });
      releaseWith(machine);
      return machine;
    } catch (error) {
      await machine?.dispose().catch((left: unknown) => onError(left, 'machine left behind'));
      await networks.detach(options.id);
      throw error;
    }
  }

  return {
    fingerprint: vmm.fingerprint,
    verdict: vmm.verdict,
    boot: (options) => start(options, (more) => vmm.boot(more)),
    spawnBlank: (options) => start(options, (more) => vmm.spawnBlank(more)),
    leftovers: () => vmm.leftovers(),
    async adopt(leftover) {
      const slot = await slotOfLeftover(leftover);
      const adopted = await vmm.adopt(leftover);
      if (slot === null) return adopted;
      try {
        networks.takeOver(leftover.id as MachineId, slot);
      } catch (error) {
        await adopted.dispose();
        throw error;
      }
      releaseWith(adopted);
      return adopted;
    },
    remove: (leftover) => vmm.remove(leftover),
  };
}
