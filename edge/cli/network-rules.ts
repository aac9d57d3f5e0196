/** Whose rules a command asks: those of a folder, of a published template, or of a sandbox. */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { z } from 'zod';
import { type AdminClient, GatewayError, isGatewayError, type Snapgate } from '../../sdk/index.ts';
import { effectiveRules } from '../network/rules/choice.ts';
import { createFloor, type Floor } from '../network/rules/floor.ts';
import type { NetworkRules } from '../network/rules/rules.ts';

export interface FoundRules {
  readonly rules: NetworkRules;
  /** What every node of the gateway permits; none for a folder. */
  readonly permittedRanges: readonly string[];
}

interface Deps {
  readonly context: { readonly workingDirectory: string; readonly interrupted: AbortSignal };
  readonly client: () => AdminClient;
  readonly snapgate: () => Snapgate;
}

const rulesSchema = z.record(z.string(), z.boolean()).default({});
const idPattern = /^[a-z0-9]{20}$/;
const namePattern = /^[a-z0-9-]{1,63}(@[a-z0-9-]+)?$/;

/** A folder is asked when there is one, or when it can be nothing else. */
export async function findRules(deps: Deps, subject: string): Promise<FoundRules> {
  const path = join(resolve(deps.context.workingDirectory, subject), 'template.json');
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    if (namePattern.test(subject)) return null;
    throw unreadable(path, cause);
  });
  if (text !== null) return { rules: rulesOfText(path, text), permittedRanges: [] };
  const signal = deps.context.interrupted;
  const nodes = await deps.client().nodes({ signal });
  const [first = [], ...rest] = nodes.map(({ network }) => network?.permittedRanges ?? []);
  const permittedRanges = first.filter((range) => rest.every((ranges) => ranges.includes(range)));
  return { rules: await rulesOfGateway(deps, subject), permittedRanges };
}

async function rulesOfGateway({ client, snapgate, context }: Deps, subject: string): Promise<NetworkRules> {
  const signal = context.interrupted;
  if (idPattern.test(subject)) {
    const sandbox = await snapgate()
      .sandboxes.get(subject, { signal })
      .catch((error: unknown) => {
        if (isGatewayError(error, 'sandbox_not_found')) return null;
        throw error;
      });
    if (sandbox !== null) {
      const { template, own } = await sandbox.network({ signal });
      return effectiveRules(template, own);
    }
  }
  const [name = '', reference = 'latest'] = subject.split('@', 2);
  const { aliases, history } = await client().template(name, { signal });
  const version = aliases.find(({ alias }) => alias === reference)?.targets[0]?.version ?? reference;
  const found = history.find((each) => each.version === version);
  if (found === undefined)
    throw new GatewayError('version_not_found', `template ${name} has no version ${reference}`, {
      component: 'edge',
    });
  return effectiveRules(rulesSchema.parse(found.definition.network), null);
}

function rulesOfText(path: string, text: string): NetworkRules {
  try {
    return effectiveRules(z.object({ network: rulesSchema }).parse(JSON.parse(text)).network, null);
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

const unreadable = (path: string, cause: unknown) =>
  new GatewayError('invalid_definition', `${path} could not be read as a template with network rules`, {
    component: 'edge',
    cause,
  });

/** Throws `invalid_request` for what is no range. */
export function floorOf(permittedRanges: readonly string[]): Floor {
  try {
    return createFloor({ hostAddresses: [], permittedRanges });
  } catch (cause) {
    throw new GatewayError('invalid_request', `--permit: ${(cause as Error).message}`, {
      component: 'edge',
      field: 'permit',
      cause,
    });
  }
}
