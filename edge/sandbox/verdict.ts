/** Why a sandbox or a process ended, and whose doing it was. */
import type { Termination } from '../../sdk/index.ts';
import type { GuestMetrics, ProcessStatus } from '../guest/index.ts';
import type { VmmExit } from '../vmm/port.ts';

const maxEvidence = 8_000;
const panicPattern = /Kernel panic - not syncing: ?([^\r\n]*)/;
/**
 * A disk counts as full below this: ext4 keeps 2 % of it, at most 16 MiB, for its own (`s_resv_clusters`) and tells them as free; and
 * a few blocks are of no use to a process that wants more.
 */
const fullBelowBytes = (totalBytes: number) => Math.min(totalBytes * 0.021, 16 * 2 ** 20) + 64 * 1024;

const verdict = (
  reason: Termination['reason'],
  infra: boolean,
  evidence: string,
  at: number,
): Termination => ({ reason, infra, evidence: evidence.slice(-maxEvidence), at });

/** Somebody asked for it. */
export const killedVerdict = (at: number, evidence = 'asked for'): Termination =>
  verdict('killed', false, evidence, at);

/** Its time was over. */
export const deadlineVerdict = (
  { deadlineAt, generation }: { readonly deadlineAt: number; readonly generation: number },
  at: number,
): Termination =>
  verdict(
    'deadline',
    false,
    `its deadline (generation ${generation}) passed at ${new Date(deadlineAt).toISOString()}`,
    at,
  );

/** A process that was removed, or whose machine was replaced by an earlier state, while it ran. */
export const removedVerdict = (at: number): Termination => killedVerdict(at, 'removed while it ran');

/** How VMMs say that the host has no memory for them. */
const noMemoryPattern = /cannot allocate memory|cannot set up guest memory/i;

/**
 * The machine ended by itself. A guest that panics or powers off did that by what ran in it; everything else is ours.
 * @param exit null when the VMM ran on but its agent could not be reached any more
 * @param isNodePressed the host's kernel has just killed something for want of memory
 */
export function machineVerdict(exit: VmmExit | null, at: number, isNodePressed = false): Termination {
  if (exit === null) return verdict('vmm_lost', true, 'the channel to the guest was lost', at);
  const panic = panicPattern.exec(exit.consoleTail);
  if (panic !== null) {
    const isMemory = /out of memory|System is deadlocked on memory/i.test(panic[1] ?? '');
    return verdict(isMemory ? 'out_of_memory' : 'guest_panic', false, exit.consoleTail, at);
  }
  if (exit.exitCode === 0) return verdict('exited', false, `the guest shut down\n${exit.consoleTail}`, at);
  const how = exit.signalName ?? (exit.exitCode === null ? 'unknown' : `exit code ${exit.exitCode}`);
  const evidence = `VMM ended: ${how}\n${exit.stderrTail}\n${exit.consoleTail}`.trim();
  if (exit.signalName === 'SIGKILL' && isNodePressed)
    return verdict('node_pressure', true, `the host's kernel ran out of memory\n${evidence}`, at);
  if (noMemoryPattern.test(exit.stderrTail)) return verdict('node_pressure', true, evidence, at);
  return verdict('vmm_lost', true, evidence, at);
}

/** The edge came back and found no machine. */
export const lostVerdict = (evidence: string, at: number): Termination =>
  verdict('edge_lost', true, evidence, at);

/** Its machine or its snapshot is there and could not be brought back to life. */
export const restoreFailedVerdict = (evidence: string, at: number): Termination =>
  verdict('restore_failed', true, evidence, at);

/** What a verdict on a process rests on, beside its status. */
export interface ProcessEvidence {
  readonly at: number;
  /** Its last words on stderr; guest-made text. */
  readonly said?: string;
  /** Of the guest after its end; null when they could not be had. */
  readonly metrics?: GuestMetrics | null;
}

/** A process that has exited by itself, by a signal, its timeout or want of memory; always the task's own doing. */
export function processVerdict(status: ProcessStatus, evidence: ProcessEvidence): Termination {
  const { at, said = '', metrics = null } = evidence;
  const own = (reason: Termination['reason'], what: string) =>
    verdict(reason, false, said === '' ? what : `${what}\n${said}`, at);
  if (status.isTimedOut) return own('deadline', 'killed by its own timeout');
  if (status.isOutOfMemory) return own('out_of_memory', 'killed for want of memory in the sandbox');
  if (status.signal !== null) return own('signal', `signal ${status.signal}`);
  const exit = `exit code ${status.exitCode}`;
  if (status.exitCode === 0 || metrics === null) return own('exited', exit);
  const freeBytes = metrics.diskTotalBytes - metrics.diskUsedBytes;
  if (metrics.diskTotalBytes === 0 || freeBytes >= fullBelowBytes(metrics.diskTotalBytes))
    return own('exited', exit);
  return own('disk_full', `${exit}; ${freeBytes} of ${metrics.diskTotalBytes} bytes of disk are free`);
}
