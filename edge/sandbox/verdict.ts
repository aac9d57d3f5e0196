/** Why a sandbox ended, and whose doing it was. */
import type { Termination } from '../../sdk/index.ts';
import type { VmmExit } from '../vmm/port.ts';

const maxEvidence = 8_000;
const panicPattern = /Kernel panic - not syncing: ?([^\r\n]*)/;

const verdict = (
  reason: Termination['reason'],
  infra: boolean,
  evidence: string,
  at: number,
): Termination => ({ reason, infra, evidence: evidence.slice(-maxEvidence), at });

/** Somebody asked for it, or its time was over. */
export const killedVerdict = (reason: 'killed' | 'deadline', at: number): Termination =>
  verdict(reason, false, reason === 'killed' ? 'asked for' : 'its deadline passed', at);

/**
 * The machine ended by itself. A guest that panics or powers off did that by what ran in it; everything else is ours.
 * @param exit null when the VMM ran on but its agent could not be reached any more
 */
export function machineVerdict(exit: VmmExit | null, at: number): Termination {
  if (exit === null) return verdict('vmm_lost', true, 'the channel to the guest was lost', at);
  const panic = panicPattern.exec(exit.consoleTail);
  if (panic !== null) {
    const isMemory = /out of memory|System is deadlocked on memory/i.test(panic[1] ?? '');
    return verdict(isMemory ? 'out_of_memory' : 'guest_panic', false, exit.consoleTail, at);
  }
  if (exit.exitCode === 0) return verdict('exited', false, `the guest shut down\n${exit.consoleTail}`, at);
  const how = exit.signalName ?? (exit.exitCode === null ? 'unknown' : `exit code ${exit.exitCode}`);
  return verdict('vmm_lost', true, `VMM ended: ${how}\n${exit.stderrTail}\n${exit.consoleTail}`.trim(), at);
}

/** The edge came back and found no machine. */
export const lostVerdict = (evidence: string, at: number): Termination =>
  verdict('edge_lost', true, evidence, at);
