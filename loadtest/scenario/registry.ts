import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { GatewayError } from '../../sdk/index.ts';
import { burst, coldVsWarm } from './burst.ts';
import type { Scenario } from './define.ts';
import { agentTree, forkFanout, pauseResumeChurn } from './fork-scenarios.ts';
import { invoke } from './invoke.ts';
import { overload, soak } from './overload.ts';
import { publishUnderLoad } from './publish-under-load.ts';
import { sandboxSession, tti } from './sandbox-session.ts';

/** The scenarios that come with the harness, in the order in which they are listed. */
export const builtInScenarios: readonly Scenario[] = [
  invoke,
  burst,
  coldVsWarm,
  publishUnderLoad,
  overload,
  soak,
  tti,
  sandboxSession,
  forkFanout,
  agentTree,
  pauseResumeChurn,
] as readonly Scenario[];

/** A built-in by its name, or the default export of a file by its path. Rejects with `invalid_request`. */
export async function loadScenario(nameOrFile: string): Promise<Scenario> {
  const builtIn = builtInScenarios.find((scenario) => scenario.name === nameOrFile);
  if (builtIn !== undefined) return builtIn;
  if (!/\.[cm]?[jt]s$/.test(nameOrFile)) {
    throw new GatewayError(
      'invalid_request',
      `there is no scenario \`${nameOrFile}\`; built in are ${builtInScenarios.map(({ name }) => name).join(', ')}`,
      { field: 'scenario' },
    );
  }
  let module: { readonly default?: unknown };
  try {
    module = await import(pathToFileURL(resolve(nameOrFile)).href);
  } catch (cause) {
    throw new GatewayError(
      'invalid_request',
      `scenario file ${nameOrFile} can't be loaded: ${cause instanceof Error ? cause.message : String(cause)}`,
      { field: 'scenario', cause },
    );
  }
  if (!isScenario(module.default)) {
    throw new GatewayError(
      'invalid_request',
      `scenario file ${nameOrFile} must export the answer of defineScenario as default`,
      { field: 'scenario' },
    );
  }
  return module.default;
}

function isScenario(value: unknown): value is Scenario {
  if (typeof value !== 'object' || value === null) return false;
  const scenario = value as Partial<Record<string, unknown>>;
  const isNamed = typeof scenario.name === 'string' && typeof scenario.proves === 'string';
  const hasOptions =
    typeof (scenario.options as { safeParse?: unknown } | undefined)?.safeParse === 'function';
  const runs =
    (scenario.kind === 'requests' && typeof scenario.prepare === 'function') ||
    (scenario.kind === 'sessions' && typeof scenario.run === 'function' && Array.isArray(scenario.steps));
  return isNamed && hasOptions && runs;
}
