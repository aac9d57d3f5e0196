/** What travels over QMP (QEMU's `docs/interop/qmp-spec.txt` and QAPI schema), as far as this driver speaks it. */
import { z } from 'zod';

/** Every run state of QEMU's QAPI enum `RunState`. */
const runStates = [
  'debug',
  'inmigrate',
  'internal-error',
  'io-error',
  'paused',
  'postmigrate',
  'prelaunch',
  'finish-migrate',
  'restore-vm',
  'running',
  'save-vm',
  'shutdown',
  'suspended',
  'watchdog',
  'guest-panicked',
  'colo',
] as const;
export type RunState = (typeof runStates)[number];

/** Every state of QEMU's QAPI enum `MigrationStatus`. */
const migrationStates = [
  'none',
  'setup',
  'cancelling',
  'cancelled',
  'active',
  'postcopy-active',
  'postcopy-paused',
  'postcopy-recover',
  'completed',
  'failed',
  'colo',
  'pre-switchover',
  'device',
  'wait-unplug',
] as const;
export type MigrationState = (typeof migrationStates)[number];

const empty = z.object({});

/** What each command answers; the keys are all commands that this driver may send. */
export const qmpReturns = {
  qmp_capabilities: empty,
  'query-status': z.object({ status: z.enum(runStates), running: z.boolean() }),
  cont: empty,
  stop: empty,
  quit: empty,
  'migrate-set-capabilities': empty,
  'migrate-incoming': empty,
  'xen-save-devices-state': empty,
  'blockdev-add': empty,
  'blockdev-reopen': empty,
  'blockdev-snapshot': empty,
  'query-block': z.array(
    z.object({
      qdev: z.string().max(1024).optional(),
      inserted: z
        .object({ 'node-name': z.string().max(64), backing_file_depth: z.int().nonnegative() })
        .optional(),
    }),
  ),
  'query-named-block-nodes': z.array(
    z.object({ 'node-name': z.string().max(64), drv: z.string().max(64), file: z.string() }),
  ),
  'block-stream': empty,
  'query-block-jobs': z.array(z.object({ device: z.string().max(64) })),
} as const;
export type QmpCommand = keyof typeof qmpReturns;
export type QmpReturn<C extends QmpCommand> = z.infer<(typeof qmpReturns)[C]>;

type NoArguments = Readonly<Record<string, never>>;

/** A node of the block graph as QAPI's `BlockdevOptions` describes it, as far as layers of a disk need it. */
export interface BlockNode {
  readonly driver: 'qcow2';
  readonly 'node-name'?: string;
  readonly 'read-only'?: boolean;
  readonly discard?: 'unmap';
  readonly cache?: { readonly direct: boolean; readonly 'no-flush': boolean };
  readonly file: {
    readonly driver: 'file';
    readonly filename: string;
    readonly 'read-only'?: boolean;
    readonly locking: 'off';
    readonly discard?: 'unmap';
  };
  /** Null: none, whatever the header says. A text: another node's name. */
  readonly backing: BlockNode | string | null;
}

/** What each command takes. */
export interface QmpArguments {
  qmp_capabilities: NoArguments;
  'query-status': NoArguments;
  cont: NoArguments;
  stop: NoArguments;
  quit: NoArguments;
  'migrate-set-capabilities': {
    readonly capabilities: readonly { readonly capability: string; readonly state: boolean }[];
  };
  'migrate-incoming': { readonly uri: string };
  'xen-save-devices-state': { readonly filename: string; readonly live: boolean };
  'blockdev-add': BlockNode;
  'blockdev-reopen': { readonly options: readonly BlockNode[] };
  'blockdev-snapshot': { readonly node: string; readonly overlay: string };
  'query-block': NoArguments;
  'query-named-block-nodes': { readonly flat: true };
  'block-stream': { readonly 'job-id': string; readonly device: string; readonly 'base-node': string };
  'query-block-jobs': NoArguments;
}

/** Data of the events that this driver listens for; all others are dropped unread. */
export const qmpEvents = {
  MIGRATION: z.object({ status: z.enum(migrationStates) }),
  SHUTDOWN: z.object({ guest: z.boolean(), reason: z.string().max(64) }),
  STOP: empty,
  RESUME: empty,
  GUEST_PANICKED: z.object({ action: z.string().max(64) }),
} as const;
export type QmpEventName = keyof typeof qmpEvents;
export type QmpEventData<E extends QmpEventName> = z.infer<(typeof qmpEvents)[E]>;

/** The first line QEMU sends. */
export const greetingSchema = z.object({
  QMP: z.object({
    version: z.object({
      qemu: z.object({ major: z.int(), minor: z.int(), micro: z.int() }),
      package: z.string().max(256),
    }),
  }),
});
export type QmpGreeting = z.infer<typeof greetingSchema>['QMP'];

/** Every later line: an answer, a refusal, or an event. A refusal has no id when QEMU couldn't read the command. */
export const messageSchema = z.union([
  z.object({ return: z.unknown(), id: z.int() }).refine((message) => 'return' in message),
  z.object({
    error: z.object({ class: z.string().max(64), desc: z.string() }),
    id: z.int().optional(),
  }),
  z.object({ event: z.string().max(128), data: z.unknown().optional() }),
]);
