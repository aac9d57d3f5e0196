/** What `/proc` says about processes: which one is really ours, and is it alive. */
import { readdir, readFile } from 'node:fs/promises';

/** A process named beyond doubt within one boot of the host: pids are reused, pid and start time together are not. */
export interface ProcessIdentity {
  readonly pid: number;
  /** Field 22 of `/proc/PID/stat`: clock ticks since the host booted. */
  readonly startTime: number;
}

/** Start time of a process; null when there is none, or only a zombie. */
export async function processStartTime(pid: number): Promise<number | null> {
  let stat: string;
  try {
    stat = await readFile(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return null;
  }
  // The second field is the command in parentheses and may itself hold spaces and parentheses.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const startTime = Number(fields[19]);
  return fields[0] === 'Z' || fields[0] === 'X' || !Number.isSafeInteger(startTime) ? null : startTime;
}

/** True while this very process runs. */
export async function isAlive(identity: ProcessIdentity): Promise<boolean> {
  return (await processStartTime(identity.pid)) === identity.startTime;
}

/** Value after `-name` on a process's command line; null when there is no such process or option. */
async function machineNameOf(pid: number): Promise<string | null> {
  try {
    const argv = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0');
    const index = argv.indexOf('-name');
    return index === -1 ? null : (argv[index + 1] ?? null);
  } catch {
    return null;
  }
}

/**
 * True when the process was started for this machine, which a record alone does not prove. One that can't be asked any
 * more (it is dying) is not.
 */
export async function isMachineProcess(identity: ProcessIdentity, id: string): Promise<boolean> {
  return (await machineNameOf(identity.pid)) === id && (await isAlive(identity));
}

/** All processes with a `-name`, keyed by it; for machines whose record did not get its pid. */
export async function namedProcesses(): Promise<Map<string, ProcessIdentity>> {
  const found = new Map<string, ProcessIdentity>();
  for (const entry of await readdir('/proc')) {
    if (!/^[1-9]\d*$/.test(entry)) continue;
    const pid = Number(entry);
    const name = await machineNameOf(pid);
    if (name === null) continue;
    const startTime = await processStartTime(pid);
    if (startTime !== null) found.set(name, { pid, startTime });
  }
  return found;
}
