import { randomBytes } from 'node:crypto';
import type { BlankMachine, MachineSource } from '../../pool/index.ts';
import { type Clock, GatewayError, type MachineId, type NodeId, newMachineId } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../../templates/index.ts';
import { toMessage } from '../errors.ts';
import type { ConnectOptions, SandboxChannel } from '../guest/index.ts';
import type { BlankVmm, Vmm } from '../vmm/port.ts';
import { GuestHttp } from './guest-http.ts';
import { machineIdentity, resumeGuest, wakeFor } from './identity.ts';
import { Machine } from './machine.ts';
import type { RestorableVersion } from './restorable-version.ts';
import { serviceTail } from './service-output.ts';

export interface SourceDeps {
  readonly vmm: Vmm;
  readonly node: NodeId;
  readonly clock: Clock;
  readonly connectGuest: (options: ConnectOptions) => Promise<SandboxChannel>;
  /** Told of each machine as it starts to exist and when it restored; lets the edge list and log machines. */
  readonly onBlank?: (blank: Blank, version: RestorableVersion) => void;
  /** Puts the version's network rules in force for a machine that just started and waits for state. */
  readonly enterNetwork?: (machine: MachineId, version: RestorableVersion) => Promise<void>;
  readonly onMachine?: (machine: Machine, version: RestorableVersion) => void;
}

/** A blank VMM as the pool sees it. */
export class Blank implements BlankMachine {
  readonly id: MachineId;
  readonly gone: Promise<{ readonly reason: string }>;
  readonly vmm: BlankVmm;
  readonly startedAt: number;

  constructor(vmm: BlankVmm, startedAt: number) {
    this.vmm = vmm;
    this.id = vmm.id;
    this.startedAt = startedAt;
    this.gone = vmm.exited.then((exit) => ({
      reason: `vmm ended (${exit.signalName ?? `exit code ${exit.exitCode}`})`,
    }));
  }

  async dispose(): Promise<void> {
    await this.vmm.dispose();
  }
}

/** Time for a guest that failed to say why. */
const lastWordsMs = 1_000;

/** A restore that failed after the guest could speak. */
class LastWords extends Error {
  readonly output: string;

  constructor(output: string, cause: unknown) {
    super('a restored machine was unfit', { cause });
    this.output = output;
  }
}

/** Runs the hook that lets a template reseed what the kernel can't, and fails closed. */
export async function runHook(
  http: GuestHttp,
  hook: NonNullable<TemplateDefinition['hooks']['afterRestore']>,
  options: { readonly signal: AbortSignal },
): Promise<void> {
  const signal = AbortSignal.any([options.signal, AbortSignal.timeout(hook.timeoutMs)]);
  const answer = await http
    .probe({ method: hook.method, path: hook.http }, { signal })
    .catch((cause: unknown) => {
      throw new GatewayError('restore_failed', `hook ${hook.http} got no answer: ${toMessage(cause)}`, {
        component: 'guest',
        cause,
      });
    });
  if (answer.status >= 300) {
    throw new GatewayError('restore_failed', `hook ${hook.http} answered ${answer.status}`, {
      component: 'guest',
      output: answer.body.slice(0, 2_000),
    });
  }
}

/**
 * Restores machines of one version: state into a blank, channel, clock, entropy, identity, hook. See DESIGN section 4 for
 * the order. Unless a live invocation waits, it also primes the machine with the readiness request and parks it.
 */
export function createMachineSource(deps: SourceDeps, version: RestorableVersion): MachineSource {
  const { definition } = version;
  const start = definition.start;

  async function restoreInto(
    vmm: BlankVmm,
    options: { readonly signal: AbortSignal; readonly awake: boolean },
  ): Promise<Machine> {
    const running = await (await vmm.load(version.snapshot.statePath, options)).resume();
    const identity = machineIdentity(definition.name, vmm.id);
    const channel = await deps.connectGuest({
      socketPath: vmm.agentSocketPath,
      token: version.channelToken,
      signal: options.signal,
      wake: wakeFor(deps.vmm.verdict.accelerator),
    });
    const http =
      start === undefined
        ? null
        : new GuestHttp(channel, { port: start.port, connections: definition.admission.concurrency });
    const hook = definition.hooks.afterRestore;
    const token = randomBytes(32).toString('hex');
    const machine = new Machine({
      version,
      channelToken: token,
      digest: version.digest,
      channel,
      http,
      vmm: running,
      startedAt: deps.clock.now(),
      enter: async (guest, guestHttp, wake) => {
        await resumeGuest(guest, identity, { ...wake, token });
        if (hook !== null && guestHttp !== null) await runHook(guestHttp, hook, wake);
      },
    });
    try {
      await machine.enter(options);
      if (!options.awake) {
        if (http !== null && start !== undefined) {
          const ready = await http.probe({ method: 'GET', path: start.ready.http }, options);
          if (ready.status >= 400)
            throw new GatewayError(
              'restore_failed',
              `readiness request answered ${ready.status} after restore`,
              { component: 'guest' },
            );
        }
        await machine.park();
      }
      return machine;
    } catch (error) {
      const output = await lastWords(machine);
      await machine.dispose('restore failed');
      throw new LastWords(output, error);
    }
  }

  /** What service and console said last; empty when the guest tells nothing any more. */
  async function lastWords(machine: Machine): Promise<string> {
    const signal = AbortSignal.timeout(lastWordsMs);
    const service = start === undefined ? '' : await serviceTail(machine.channel, { signal }).catch(() => '');
    return service + (await machine.consoleTail().catch(() => ''));
  }

  return {
    digest: version.digest,
    async spawnBlank({ signal }) {
      const vmm = await deps.vmm.spawnBlank({
        id: newMachineId(deps.node),
        shape: version.shape,
        snapshot: version.snapshot,
        signal,
      });
      await deps.enterNetwork?.(vmm.id, version).catch(async (error: unknown) => {
        await vmm.dispose();
        throw error;
      });
      const blank = new Blank(vmm, deps.clock.now());
      deps.onBlank?.(blank, version);
      return blank;
    },
    async restore(blank, options) {
      const { vmm } = blank as Blank;
      try {
        const machine = await restoreInto(vmm, options);
        deps.onMachine?.(machine, version);
        return machine;
      } catch (error) {
        const output = error instanceof LastWords ? error.output : await vmm.consoleTail().catch(() => '');
        const cause = error instanceof LastWords ? error.cause : error;
        await vmm.dispose();
        if (options.signal.aborted) throw cause;
        if (cause instanceof GatewayError && cause.details.output !== undefined) throw cause;
        throw new GatewayError('restore_failed', `${definition.name}: ${toMessage(cause)}`, {
          component: 'edge',
          cause,
          output,
        });
      }
    },
  };
}
