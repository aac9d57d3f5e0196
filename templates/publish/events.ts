/** Progress of a build, line by line; the edge forwards these as they are. */
import type { TemplateName, VersionFacts } from '../../sdk/index.ts';

export type TaskState = 'started' | 'done' | 'failed' | 'skipped';

export interface TaskEvent {
  readonly type: 'task';
  readonly id: string;
  readonly title: string;
  readonly state: TaskState;
  /** How long it took, milliseconds; on `done` and `failed`. */
  readonly ms?: number;
}

export interface OutputEvent {
  readonly type: 'output';
  /** Task during which it was printed. */
  readonly id: string;
  /** Control characters escaped; a build's total is bounded. */
  readonly text: string;
}

export interface BuiltEvent {
  readonly type: 'built';
  readonly template: TemplateName;
  readonly definition: Readonly<Record<string, unknown>>;
  /** True when the very same version was there already and nothing was built. */
  readonly unchanged: boolean;
  readonly facts: VersionFacts;
}

/** The last one is `built`; failures reject the iteration with a `GatewayError`. */
export type BuildEvent = TaskEvent | OutputEvent | BuiltEvent;
