/** Network rules of sandboxes: those of their template until they get their own, which forks and snapshots inherit. */
import {
  GatewayError,
  type MachineId,
  type NetworkChoice,
  type NetworkRefusal,
  type SandboxNetwork,
} from '../../sdk/index.ts';
import { allowsAnything, effectiveRules, type MachineNetworks } from '../network/index.ts';
import type { SandboxContext } from './context.ts';
import type { Entry } from './entry.ts';
import type { SandboxRecord } from './record.ts';

type Origin = SandboxRecord['origin'];

/** What sandbox keeping asks of the node's networks. */
export interface SandboxNetworks {
  /** Puts the rules of a sandbox in force for its machine; before the guest runs, where it is restored. */
  enter(
    machine: MachineId,
    sandbox: { readonly id: string; readonly origin: Origin; readonly network: NetworkChoice | null },
  ): Promise<void>;
  refusals(sandbox: string): Promise<NetworkRefusal[]>;
  /** Machines that were left running have been taken over: what else was kept for them goes. */
  settled(): Promise<void>;
}

/** Throws `invalid_request` for rules that mean nothing, `conflict` where they need a card that the template does not have. */
export function checkChoice(origin: Pick<Origin, 'definition'>, choice: NetworkChoice | null): void {
  if (choice === null) return;
  const rules = effectiveRules({}, choice);
  if (origin.definition.network === undefined && allowsAnything(rules))
    throw new GatewayError(
      'conflict',
      `template ${origin.definition.name} has no network card: give it "network": {} or rules, and publish it again`,
      { component: 'edge', field: 'network' },
    );
}

export function createSandboxNetworks(networks: MachineNetworks): SandboxNetworks {
  return {
    async enter(machine, { id, origin, network }) {
      if (!networks.hasCard(machine)) return;
      const ruleSet = network === null ? `template ${origin.template}` : `sandbox ${id}`;
      await networks.setRules(
        machine,
        { digest: origin.digest, sandbox: id, ruleSet },
        effectiveRules(origin.definition.network ?? {}, network),
      );
    },
    refusals: (sandbox) => networks.refusals({ sandbox }),
    settled: () => networks.forget(),
  };
}

/** Replaces the rules of a running or paused sandbox. What can't be put in force is not written down. */
export async function setNetwork(
  context: SandboxContext,
  entry: Entry,
  choice: NetworkChoice | null,
): Promise<void> {
  const { record } = entry;
  checkChoice(record.origin, choice);
  const { signal } = new AbortController();
  await entry.change('being given other network rules', signal, async () => {
    if (entry.live !== null)
      await context.networks.enter(entry.live.id, {
        id: record.id,
        origin: record.origin,
        network: choice,
      });
    entry.update({ network: choice }, { type: 'network_changed', data: { network: choice } });
  });
}

export async function networkOf(context: SandboxContext, record: SandboxRecord): Promise<SandboxNetwork> {
  const { network } = record.origin.definition;
  return {
    hasCard: network !== undefined,
    own: record.network,
    template: network ?? {},
    refusals: await context.networks.refusals(record.id),
  };
}
