/** A VMM process, whether this edge started it or found it: how it is ended, and how its end is noticed. */
import type { ChildProcess } from 'node:child_process';
import { isAlive, type ProcessIdentity } from './process-table.ts';

export interface ProcessEnd {
  readonly exitCode: number | null;
  readonly signalName: string | null;
}

export interface ProcessHandle {
  readonly pid: number;
  /** Settles once when the process is gone. Never rejects. */
  readonly ended: Promise<ProcessEnd>;
  /** SIGKILL; nothing happens when it is gone already. */
  kill(): void;
  /** Looks now instead of at the next tick; called when the control socket closed. */
  check(): void;
  /** Stops watching. `ended` then never settles unless it did already. */
  release(): void;
}

/** A process that this edge started: Node reaps it and says how it ended. */
export function childHandle(child: ChildProcess, pid: number): ProcessHandle {
  const ended = new Promise<ProcessEnd>((resolve) => {
    child.once('exit', (exitCode, signalName) => resolve({ exitCode, signalName }));
  });
  return {
    pid,
    ended,
    kill: () => void child.kill('SIGKILL'),
    check: () => {},
    release: () => child.unref(),
  };
}

/** How often an adopted process is looked at when nothing else hints at its end. */
const pollMs = 500;

/** A process that an earlier edge started: not our child, so its end is seen by looking. */
export function adoptedHandle(identity: ProcessIdentity): ProcessHandle {
  const { promise, resolve } = Promise.withResolvers<ProcessEnd>();
  const timer = setInterval(look, pollMs);
  timer.unref();
  let isGone = false;
  function look() {
    void isAlive(identity).then((alive) => {
      if (alive || isGone) return;
      isGone = true;
      clearInterval(timer);
      resolve({ exitCode: null, signalName: null });
    });
  }
  return {
    pid: identity.pid,
    ended: promise,
    kill() {
      if (!isGone) killIfAlive(identity);
    },
    check() {
      // The socket closes a moment before the process is gone.
      look();
      setTimeout(look, 20).unref();
    },
    release: () => clearInterval(timer),
  };
}

/** SIGKILL to a pid; false when there is no such process (any more). Throws EPERM. */
export function killIfAlive(identity: ProcessIdentity): boolean {
  try {
    return process.kill(identity.pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}
