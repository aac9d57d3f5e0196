/** The phases a VMM goes through, and which step may follow which. */
import assert from 'node:assert/strict';

export type Lifecycle =
  | { readonly phase: 'starting' }
  | { readonly phase: 'blank' }
  | { readonly phase: 'paused' }
  | { readonly phase: 'running' }
  /** A step is under way; where it leads is known when it is done. */
  | { readonly phase: 'busy'; readonly step: Step }
  /** Let go of, disposed, or dead. */
  | { readonly phase: 'over' };

/** Every step with the phase it needs and the one it leads to. */
export const steps = {
  boot: { from: 'starting', to: 'running' },
  expectState: { from: 'starting', to: 'blank' },
  stackDisk: { from: 'blank', to: 'blank' },
  load: { from: 'blank', to: 'paused' },
  resume: { from: 'paused', to: 'running' },
  pause: { from: 'running', to: 'paused' },
  freezeDisk: { from: 'paused', to: 'paused' },
  saveState: { from: 'paused', to: 'paused' },
  quit: { from: 'paused', to: 'over' },
} as const satisfies Record<string, { from: Lifecycle['phase']; to: Lifecycle['phase'] }>;
export type Step = keyof typeof steps;

/** Begins a step. Asking for one at the wrong time is a mistake of the caller, hence an assertion. */
export function begin(lifecycle: Lifecycle, step: Step): Lifecycle {
  const doing = lifecycle.phase === 'busy' ? `busy (${lifecycle.step})` : lifecycle.phase;
  assert.equal(lifecycle.phase, steps[step].from, `${step} of a VMM that is ${doing}`);
  return { phase: 'busy', step };
}

/** Ends the step under way; an end that came in between stays. */
export function finish(lifecycle: Lifecycle): Lifecycle {
  return lifecycle.phase === 'busy' ? { phase: steps[lifecycle.step].to } : lifecycle;
}

/** Takes the step back: it failed and left the VMM as it was. */
export function revert(lifecycle: Lifecycle): Lifecycle {
  return lifecycle.phase === 'busy' ? { phase: steps[lifecycle.step].from } : lifecycle;
}
