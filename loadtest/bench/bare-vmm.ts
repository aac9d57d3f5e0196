/** Machines of one version on a VMM without edge, pool or gateway: what benchmarks set beside the product. */
import { join } from 'node:path';
import { readRestorable } from '../../edge/build/snapshot-host.ts';
import { connectGuest } from '../../edge/guest/index.ts';
import type { dataLayout } from '../../edge/index.ts';
import type { Machine } from '../../edge/machine/machine.ts';
import type { RestorableVersion } from '../../edge/machine/restorable-version.ts';
import { type Blank, createMachineSource, type SourceDeps } from '../../edge/machine/source.ts';
import { createQemuVmm } from '../../edge/vmm/qemu/index.ts';
import { newNodeId, systemClock, type VersionDigest } from '../../sdk/index.ts';
import { loadVersion } from '../../templates/index.ts';
import { root } from './bench-node.ts';

/** Product code that maps a template's memory privately. */
export const shimPath = join(root, 'edge/native/build/map-private.so');

/** Makes machines; whoever asked for one disposes of it. */
export interface BareSource {
  spawnBlank(): Promise<Blank>;
  /** Restores and wakes, or with `awake: false` leaves the machine parked. */
  restore(blank: Blank, options?: { readonly awake: boolean }): Promise<Machine>;
}

/**
 * A published version and a VMM for it, with nothing running. `runDirectory` is where its machines live; sockets in it must
 * have short paths.
 */
export async function openBareVmm(
  digest: VersionDigest,
  options: {
    readonly layout: ReturnType<typeof dataLayout>;
    readonly runDirectory: string;
    readonly signal: AbortSignal;
  },
) {
  const { layout, runDirectory, signal } = options;
  const version = await loadVersion(layout.versions, digest);
  const restorable = await readRestorable(digest, version.definition, version.image, version.directory);
  const vmm = await createQemuVmm(
    { now: Date.now },
    {
      ...{ runDirectory, shimPath, signal },
      cacheDirectory: layout.cache,
      accelerator: version.facts.accelerator,
    },
  );
  const deps = { vmm, node: newNodeId(), clock: systemClock, connectGuest };
  return {
    version,
    restorable,
    verdict: vmm.verdict,
    fingerprint: vmm.fingerprint,
    /** `changes` to the version are those of the measurement, such as leaving out a hook. */
    source(changes: Partial<RestorableVersion> = {}, own: Partial<SourceDeps> = {}): BareSource {
      const source = createMachineSource({ ...deps, ...own }, { ...restorable, ...changes });
      return {
        spawnBlank: async () => (await source.spawnBlank({ signal })) as Blank,
        restore: async (blank, { awake } = { awake: true }) =>
          (await source.restore(blank, { signal, awake })) as Machine,
      };
    },
  };
}
