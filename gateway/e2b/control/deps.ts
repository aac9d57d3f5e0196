/** What the routes of the control API share. */
import type { Logger } from 'pino';
import type { SandboxEdge } from '../../../edge/client/index.ts';
import type { Clock } from '../../../sdk/index.ts';
import type { TemplateRegistry } from '../../../templates/index.ts';
import type { KeyStore } from '../../keys/store.ts';
import type { Placement } from '../../placement.ts';
import type { IdempotencyStore } from '../../sandboxes/idempotency.ts';
import type { Serving } from '../../serving.ts';
import type { SandboxTokens } from '../access/tokens.ts';
import type { Builds } from '../builds/builds.ts';
import type { MetricsHistory } from './metrics-history.ts';

/** Collaborators; all of them belong to the gateway. */
export interface ControlDeps {
  readonly sandboxes: SandboxEdge;
  readonly registry: TemplateRegistry;
  readonly serving: Serving;
  readonly placement: Placement;
  readonly keys: KeyStore;
  readonly idempotency?: IdempotencyStore | undefined;
  readonly tokens: SandboxTokens;
  readonly history: MetricsHistory;
  /** Absent: template builds are refused. */
  readonly builds?: Builds | undefined;
  readonly tokenSecret: Uint8Array;
  readonly clock: Clock;
  readonly log: Logger;
}
