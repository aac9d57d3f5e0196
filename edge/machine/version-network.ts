import { GatewayError, isGatewayError, type MachineId } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../../templates/index.ts';
import { effectiveRules, type MachineNetworks } from '../network/index.ts';
import type { RestorableVersion } from './restorable-version.ts';

/** Gives machines the network rules of their version, before they have any state. */
export const versionNetworks =
  (networks: MachineNetworks) =>
  async (machine: MachineId, { definition, digest }: RestorableVersion): Promise<void> => {
    if (definition.network === undefined) return;
    await networks.setRules(
      machine,
      { digest, sandbox: null, ruleSet: `template ${definition.name}` },
      effectiveRules(definition.network, null),
    );
  };

/**
 * Whether this node can enforce a template's rules. Rules that have no effect here are told to whoever builds it.
 * @throws GatewayError `host_not_ready` with the command that changes it, `invalid_definition` for rules that mean nothing
 */
export function admitNetwork(
  networks: Pick<MachineNetworks, 'requireSupport' | 'shut'>,
  { network }: Pick<TemplateDefinition, 'network'>,
  onOutput: (text: string) => void,
): void {
  if (network === undefined) return;
  networks.requireSupport();
  for (const rule of networks.shut(rulesOf(network)))
    onOutput(
      `network rule "${rule}" allows nothing on this node: its operator does not permit the range (permittedRanges in network.json)\n`,
    );
}

function rulesOf(network: Readonly<Record<string, boolean>>) {
  try {
    return effectiveRules(network, null);
  } catch (cause) {
    if (!isGatewayError(cause)) throw cause;
    throw new GatewayError('invalid_definition', cause.message, {
      component: 'edge',
      field: 'network',
      cause,
    });
  }
}
