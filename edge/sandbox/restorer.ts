/** Makes a running machine out of a snapshot: blank, disk layers, dirty pages, device state, then an identity of its own. */
import { randomBytes } from 'node:crypto';
import { type Clock, GatewayError, type MachineId } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../../templates/index.ts';
import type { ConnectOptions, SandboxChannel } from '../guest/index.ts';
import { GuestHttp } from '../machine/guest-http.ts';
import { machineIdentity, resumeGuest } from '../machine/identity.ts';
import { runHook } from '../machine/source.ts';
import { findRamMapping, type PageCopier } from '../memory/index.ts';
import type { BlankVmm } from '../vmm/port.ts';
import type { Bases } from './bases.ts';
import type { BlankStock } from './blank-stock.ts';
import { LiveMachine, type RestoreParts } from './live-machine.ts';
import type { RestorableSnapshot } from './snapshot-files.ts';

export interface RestorerDeps {
  readonly clock: Clock;
  readonly bases: Bases;
  readonly stock: BlankStock;
  readonly copier: PageCopier;
  readonly connectGuest: (options: ConnectOptions) => Promise<SandboxChannel>;
  /** How a restored guest is woken while it is greeted. */
  readonly wake: ConnectOptions['wake'];
  /** One of the node's permits to start or load a VMM. */
  readonly permit: (signal: AbortSignal) => Promise<Disposable>;
}

/** How long a restore may take, from blank to identity. */
const restoreMs = 60_000;

export class Restorer {
  readonly #deps: RestorerDeps;

  constructor(deps: RestorerDeps) {
    this.#deps = deps;
  }

  /**
   * The machine runs, and no sibling has its clock, entropy, name or token; if any step fails it is gone. The caller owns it.
   * @param snapshot checked files, see `SnapshotFiles.open`
   * @throws GatewayError `node_at_capacity`, `restore_failed`, `restore_timeout`, `vmm_failed`, `snapshot_corrupt`
   */
  async restore(
    snapshot: RestorableSnapshot,
    options: {
      readonly signal: AbortSignal;
      /** What its machine needs before the guest runs, such as network rules; without it a network card is shut. */
      readonly prepare?: (machine: MachineId) => Promise<void>;
    },
  ): Promise<LiveMachine> {
    const deadline = AbortSignal.timeout(restoreMs);
    const signal = AbortSignal.any([options.signal, deadline]);
    const lap = stopwatch(this.#deps.clock);
    using _permit = await this.#deps.permit(signal);
    const waitMs = lap();
    const base = await this.#deps.bases.require(snapshot.base);
    const blank = await this.#deps.stock.take(base, snapshot.origin, signal);
    const before = { waitMs, blankMs: lap() };
    try {
      return await this.#enter(blank, snapshot, {
        ...{ memoryPath: base.memoryPath, signal, lap, before },
        prepare: options.prepare ?? (async () => {}),
      });
    } catch (cause) {
      const output = await blank.consoleTail().catch(() => '');
      await blank.dispose();
      if (cause instanceof GatewayError) throw cause;
      const code = deadline.aborted
        ? 'restore_timeout'
        : options.signal.aborted
          ? 'cancelled'
          : 'restore_failed';
      const message = cause instanceof Error ? cause.message : String(cause);
      throw new GatewayError(code, message, { component: 'edge', cause, output });
    } finally {
      this.#deps.stock.replenish(base, snapshot.origin);
    }
  }

  async #enter(
    blank: BlankVmm,
    snapshot: RestorableSnapshot,
    options: {
      readonly memoryPath: string;
      readonly signal: AbortSignal;
      readonly lap: () => number;
      readonly before: Pick<RestoreParts, 'waitMs' | 'blankMs'>;
      prepare(machine: MachineId): Promise<void>;
    },
  ): Promise<LiveMachine> {
    const { memoryPath, signal, lap, prepare } = options;
    const prepared = prepare(blank.id);
    const stacked = blank.stackDisk(snapshot.layers);
    // Whoever fails first ends the others, which then fail unheard.
    for (const one of [prepared, stacked]) one.catch(() => {});
    const mapping = await findRamMapping(blank.pid, memoryPath);
    const applied = this.#deps.copier.apply(blank.pid, mapping, snapshot.deltaPath).catch(async (error) => {
      // A VMM that gave up on its disk has no memory any more: the disk says more.
      await stacked;
      throw error;
    });
    await Promise.all([prepared, stacked, applied]);
    const fillMs = lap();
    const running = await (await blank.load(snapshot.statePath, { signal })).resume();
    const loadMs = lap();
    const channel = await this.#deps.connectGuest({
      socketPath: running.agentSocketPath,
      token: snapshot.channelToken,
      signal,
      wake: this.#deps.wake,
    });
    const greetMs = lap();
    try {
      const token = randomBytes(32).toString('hex');
      const { definition } = snapshot.origin;
      await resumeGuest(channel, machineIdentity(definition.name, running.id), { signal, token });
      const identityMs = lap();
      await runOwnHook(channel, definition, signal);
      const parts = { ...options.before, fillMs, loadMs, greetMs, identityMs, hookMs: lap() };
      return new LiveMachine({ vmm: running, channel, channelToken: token, lease: null, parts });
    } catch (error) {
      channel.close();
      throw error;
    }
  }
}

/** The template's own hook, which reseeds what the kernel can't. */
async function runOwnHook(
  channel: SandboxChannel,
  definition: TemplateDefinition,
  signal: AbortSignal,
): Promise<void> {
  const hook = definition.hooks.afterRestore;
  if (hook === null || definition.start === undefined) return;
  const http = new GuestHttp(channel, { port: definition.start.port, connections: 1 });
  try {
    await runHook(http, hook, { signal });
  } finally {
    await http.destroy();
  }
}

/** Each call answers the milliseconds since the last one. */
function stopwatch(clock: Clock): () => number {
  let from = clock.monotonic();
  return () => {
    const now = clock.monotonic();
    const ms = now - from;
    from = now;
    return ms;
  };
}
