/** Decides between KVM and emulation, says why in a sentence, and remembers it for as long as nothing changed. */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { z } from 'zod';
import type { AcceleratorVerdict } from '../port.ts';
import type { HostFacts } from './host-facts.ts';

/** What a verdict depends on; any change asks for a new probe. */
export interface VerdictKey extends HostFacts {
  /** CPU model that the probe tried. */
  readonly cpuModel: string;
}

const cacheSchema = z.strictObject({
  format: z.literal(1),
  key: z.strictObject({
    qemuVersion: z.string(),
    hostKernel: z.string(),
    cpuName: z.string(),
    cpuModel: z.string(),
  }),
  verdict: z.strictObject({
    accelerator: z.enum(['kvm', 'tcg']),
    reason: z.string(),
    decidedAt: z.number(),
  }),
});

export interface DecisionDeps {
  readonly hasKvmDevice: () => Promise<boolean>;
  /** See `probeBoot`: null when the guest came up. */
  readonly probe: () => Promise<string | null>;
  readonly now: () => number;
}

export interface DecisionOptions {
  readonly key: VerdictKey;
  readonly cachePath: string;
  /** Ask the host again even if the answer is known. */
  readonly isProbeForced?: boolean;
}

/** The verdict for this host. A host without the device is never cached: the answer costs nothing and may change. */
export async function decideAccelerator(
  deps: DecisionDeps,
  options: DecisionOptions,
): Promise<AcceleratorVerdict> {
  const emulate = (reason: string): AcceleratorVerdict => ({
    accelerator: 'tcg',
    reason,
    decidedAt: deps.now(),
  });
  if (!(await deps.hasKvmDevice())) return emulate('Guests are emulated because this host has no /dev/kvm.');
  const known = options.isProbeForced ? null : await readVerdict(options.cachePath, options.key);
  if (known !== null) return known;
  const failure = await deps.probe();
  const verdict: AcceleratorVerdict =
    failure === null
      ? {
          accelerator: 'kvm',
          reason: 'Guests run under KVM: a probe boot of the guest kernel came up.',
          decidedAt: deps.now(),
        }
      : emulate(`Guests are emulated: /dev/kvm is there, but in a probe boot under KVM ${failure}.`);
  await writeVerdict(options.cachePath, options.key, verdict);
  return verdict;
}

async function readVerdict(path: string, key: VerdictKey): Promise<AcceleratorVerdict | null> {
  try {
    const parsed = cacheSchema.safeParse(JSON.parse(await readFile(path, 'utf8')));
    if (!parsed.success) return null;
    const isSame = (Object.keys(parsed.data.key) as (keyof VerdictKey)[]).every(
      (name) => parsed.data.key[name] === key[name],
    );
    return isSame ? parsed.data.verdict : null;
  } catch {
    return null;
  }
}

async function writeVerdict(path: string, key: VerdictKey, verdict: AcceleratorVerdict): Promise<void> {
  const { qemuVersion, hostKernel, cpuName, cpuModel } = key;
  const text = JSON.stringify({
    format: 1,
    key: { qemuVersion, hostKernel, cpuName, cpuModel },
    verdict,
  });
  await mkdir(dirname(path), { recursive: true });
  await writeFile(`${path}.new`, text, { mode: 0o600 });
  await rename(`${path}.new`, path);
}
