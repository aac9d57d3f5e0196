import { access } from 'node:fs/promises';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import { createImageBuilder } from '../../templates/index.ts';
import { dataLayout } from '../config.ts';
import type { DoctorCheck, ExtraCheck } from '../doctor/index.ts';
import { type AcceleratorVerdict, createQemuVmm } from '../vmm/index.ts';

/** What a guest boots, as far as the probe is concerned. */
interface ProbeGuest {
  readonly kernelPath: string;
  readonly initrdPath: string;
}

export interface AcceleratorCheckDeps {
  /** The guest kernel of this node; null while none was built. */
  readonly guest: (options: { readonly signal: AbortSignal }) => Promise<ProbeGuest | null>;
  /** The verdict, by a probe boot where it is not known. */
  readonly judge: (
    guest: ProbeGuest,
    options: { readonly signal: AbortSignal },
  ) => Promise<AcceleratorVerdict>;
}

/** Whether guests run under KVM or are emulated here, why, and what that means for whose code may run. */
export function acceleratorCheck(deps: AcceleratorCheckDeps): ExtraCheck {
  const base = { id: 'accelerator', title: 'Accelerator' };
  return {
    ...base,
    async run(options): Promise<DoctorCheck> {
      const guest = await deps.guest(options);
      if (guest === null) {
        const detail =
          'not decided yet: the first start builds the guest kernel, and a probe boot of it decides';
        return { ...base, status: 'warn', detail };
      }
      const { accelerator, reason } = await deps.judge(guest, options);
      if (accelerator === 'kvm') return { ...base, status: 'ok', detail: reason };
      return {
        ...base,
        status: 'warn',
        detail: `${reason} Emulation is slow, and no boundary between tenants.`,
      };
    },
  };
}

export interface NodePlaces {
  /** Absolute. */
  readonly dataDirectory: string;
  readonly agentPath: string;
  readonly shimPath: string;
  /** Probe although the verdict is known. */
  readonly isProbeForced: boolean;
}

/** The check over the real node: it uses a guest kernel that is there and never builds one. */
export function nodeAcceleratorCheck(places: NodePlaces): ExtraCheck {
  const layout = dataLayout(places.dataDirectory);
  const images = createImageBuilder(
    {
      run: async () => {
        throw new GatewayError('host_not_ready', 'a check builds nothing', { component: 'edge' });
      },
    },
    { dataPath: places.dataDirectory, agentPath: places.agentPath },
  );
  return acceleratorCheck({
    async guest({ signal }) {
      try {
        // Without it the builder would make its folders, and a check changes nothing.
        await access(layout.images);
      } catch {
        return null;
      }
      try {
        const kernel = await images.ensureKernel({ signal, onProgress: () => {} });
        return { kernelPath: kernel.vmlinuzPath, initrdPath: kernel.initrdPath };
      } catch (error) {
        // Nothing built yet, or only root could read or build it.
        if (isGatewayError(error, 'host_not_ready', 'build_failed', 'internal')) return null;
        throw error;
      }
    },
    async judge(probeGuest, { signal }) {
      const vmm = await createQemuVmm(
        { now: Date.now },
        {
          runDirectory: layout.machines,
          cacheDirectory: layout.cache,
          shimPath: places.shimPath,
          probeGuest,
          isProbeForced: places.isProbeForced,
          signal,
        },
      );
      return vmm.verdict;
    },
  });
}
