/** After a restart: running sandboxes are taken over, half-done changes are completed or undone, what is lost is said to be. */
import { GatewayError, type Termination } from '../../sdk/index.ts';
import type { ConnectOptions, SandboxChannel } from '../guest/index.ts';
import type { Leftover, RunningVmm, Vmm } from '../vmm/port.ts';
import type { SandboxContext } from './context.ts';
import { LiveMachine } from './live-machine.ts';
import { machineOf, type SandboxRecord } from './record.ts';
import type { Room } from './room.ts';
import type { NewEvent } from './store.ts';
import { lostVerdict, restoreFailedVerdict } from './verdict.ts';

export interface RecoveryDeps {
  readonly vmm: Vmm;
  readonly connectGuest: (options: ConnectOptions) => Promise<SandboxChannel>;
  /** A machine that is taken over has a place, whether or not there is one. */
  readonly room: Room;
  readonly onTakenOver: (vmm: RunningVmm, record: SandboxRecord) => void;
  /** A sandbox without a machine becomes known. */
  readonly addPaused: (record: SandboxRecord) => void;
}

/**
 * A guest that was stopped when the old connection ended hears of that and of the new one at once, and may miss the greeting; it takes
 * the next one.
 */
const connectAttemptsMs = [3_000, 5_000, 15_000];

/**
 * Takes over what the records say. Machines that no record names are the caller's to remove.
 * @param leftovers machines found on this node
 */
export async function recover(
  context: SandboxContext,
  deps: RecoveryDeps,
  leftovers: readonly Leftover[],
): Promise<void> {
  const { store, files, log } = context;
  const machines = new Map(leftovers.map((leftover) => [leftover.id as string, leftover]));
  await files.sweep(new Set(store.snapshots().map(({ id }) => id)));
  for (const record of store.sandboxes()) {
    if (record.state === 'ended') continue;
    try {
      await recoverOne(context, deps, record, machines.get(record.machine?.id ?? ''));
    } catch (err) {
      log.error({ err, 'sandbox.id': record.id }, 'sandbox not recovered');
      const evidence = err instanceof Error ? err.message : String(err);
      end(context, record, restoreFailedVerdict(evidence, context.clock.now()));
    }
  }
  await context.collect();
}

async function recoverOne(
  context: SandboxContext,
  deps: RecoveryDeps,
  record: SandboxRecord,
  leftover: Leftover | undefined,
): Promise<void> {
  const { store, log } = context;
  // A snapshot that holds it and no record of a machine: paused, whether or not a resume had begun.
  if (record.pausedAs !== null) {
    if (!(await context.files.has(record.pausedAs)))
      throw new GatewayError('snapshot_corrupt', `the files of its pause ${record.pausedAs} are gone`, {
        component: 'edge',
      });
    const paused = { ...record, state: 'paused' as const, machine: null };
    if (record.state !== 'paused') store.apply({ sandboxes: [paused], events: [settled(paused)] });
    deps.addPaused(paused);
    return;
  }
  if (record.machine === null || leftover === undefined || leftover.pid === null) {
    const evidence = 'its machine was gone when the edge came back';
    return end(context, record, lostVerdict(evidence, context.clock.now()));
  }
  const live = await takeOver(deps, leftover, record.machine.channelToken);
  const place = deps.room.force();
  void live.running.exited.then(() => place[Symbol.dispose]());
  deps.onTakenOver(live.running, record);
  await context.networks.enter(live.id, record);
  const running = { ...record, state: 'running' as const };
  // A pause, a snapshot or a rewind that was not written down did not happen.
  if (record.state !== 'running') store.apply({ sandboxes: [running], events: [settled(running)] });
  context.adopt(running, live, 'missed');
  log.info({ 'sandbox.id': record.id, 'machine.id': machineOf(record) }, 'sandbox taken over');
}

/** Connects to a machine of an earlier edge; one that had been stopped goes on. Ends it when that fails. */
async function takeOver(deps: RecoveryDeps, leftover: Leftover, channelToken: string): Promise<LiveMachine> {
  const adopted = await deps.vmm.adopt(leftover);
  try {
    const running = await toRunning(adopted);
    const channel = await connect(deps, running.agentSocketPath, channelToken);
    return new LiveMachine({ vmm: running, channel, channelToken, lease: null });
  } catch (error) {
    await adopted.dispose();
    throw error;
  }
}

async function connect(deps: RecoveryDeps, socketPath: string, token: string): Promise<SandboxChannel> {
  let lastError: unknown;
  for (const ms of connectAttemptsMs) {
    try {
      return await deps.connectGuest({ socketPath, token, signal: AbortSignal.timeout(ms) });
    } catch (error) {
      lastError = error;
    }
  }
  throw lastError;
}

async function toRunning(vmm: Awaited<ReturnType<Vmm['adopt']>>): Promise<RunningVmm> {
  switch (vmm.phase) {
    case 'running':
      return vmm;
    case 'paused':
      return await vmm.resume();
    case 'blank':
      throw new GatewayError('vmm_failed', 'the machine has no state yet', { component: 'edge' });
  }
}

/** What an edge that stopped had begun is over. */
const settled = ({ id, state, generation }: SandboxRecord): NewEvent => ({
  sandbox: id,
  type: 'settled',
  data: { generation, state, after: 'a restart of the edge' },
});

function end({ store }: SandboxContext, record: SandboxRecord, termination: Termination): void {
  store.apply({
    sandboxes: [
      { ...record, state: 'ended', machine: null, pausedAs: null, sealedSecrets: null, termination },
    ],
    removedSnapshots: record.pausedAs === null ? [] : [record.pausedAs],
    events: [{ sandbox: record.id, type: 'ended', data: { termination } }],
  });
}
