import type { MachineId } from '../../sdk/index.ts';
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
