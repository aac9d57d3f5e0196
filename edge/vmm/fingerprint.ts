/** Compares what a snapshot was made with against what this node has. */
import type { VmmFingerprint } from './port.ts';

const meanings: { readonly [K in keyof VmmFingerprint]: string } = {
  vmm: 'VMM',
  vmmVersion: 'VMM version',
  accelerator: 'accelerator',
  cpuModel: 'CPU model',
  board: 'machine arguments',
  hostKernel: 'host kernel',
};

/** One phrase for each difference, such as `host kernel was 6.1, is 6.12`; empty when a snapshot may be restored. */
export function fingerprintDifferences(snapshot: VmmFingerprint, node: VmmFingerprint): string[] {
  return (Object.keys(meanings) as (keyof VmmFingerprint)[])
    .filter((key) => snapshot[key] !== node[key])
    .map((key) => `${meanings[key]} was ${snapshot[key]}, is ${node[key]}`);
}
