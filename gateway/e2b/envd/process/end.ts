/** How a process ended, in the words of Go's `os/exec`, which clients show. */
import type { ProcessRecord } from './selection.ts';

/** Signals that have a text of their own there. */
const texts: Readonly<Record<number, string>> = {
  1: 'hangup',
  2: 'interrupt',
  3: 'quit',
  4: 'illegal instruction',
  5: 'trace/breakpoint trap',
  6: 'aborted',
  7: 'bus error',
  8: 'floating point exception',
  9: 'killed',
  10: 'user defined signal 1',
  11: 'segmentation fault',
  12: 'user defined signal 2',
  13: 'broken pipe',
  14: 'alarm clock',
  15: 'terminated',
};

/** Members of an `EndEvent`. */
export interface EndFacts {
  readonly exitCode: number;
  /** False when a signal ended it. */
  readonly exited: boolean;
  readonly status: string;
  readonly error?: string;
}

/** @param record of a process that has exited */
export function endOf({ exitCode, signal }: Pick<ProcessRecord, 'exitCode' | 'signal'>): EndFacts {
  if (signal !== null) {
    const status = `signal: ${texts[signal] ?? `signal ${signal}`}`;
    return { exitCode: -1, exited: false, status, error: status };
  }
  const status = `exit status ${exitCode ?? 0}`;
  return { exitCode: exitCode ?? 0, exited: true, status, ...(exitCode === 0 ? {} : { error: status }) };
}
