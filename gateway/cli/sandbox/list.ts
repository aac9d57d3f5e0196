import { Command, Option } from 'commander';
import { type SandboxInfo, sandboxStates } from '../../../sdk/index.ts';
import { write, writeJson } from '../context.ts';
import { type Column, formatAge, renderTable } from '../table.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { keyValue } from './pairs.ts';

interface Flags {
  readonly state?: SandboxInfo['state'];
  readonly template?: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly json?: boolean;
}

/** `snapgate sandbox ls`. */
export function listCommand({ context, snapgate }: SandboxCommandDeps): Command {
  return new Command('ls')
    .description('list sandboxes, newest first')
    .addOption(new Option('--state <state>', 'only these (default: all but ended)').choices(sandboxStates))
    .option('--template <name>', 'only of this template')
    .option('-m, --metadata <key=value>', 'only with this; may be repeated', keyValue, {})
    .option('--json', 'print JSON')
    .action(async ({ state, template, metadata, json }: Flags) => {
      const states = state === undefined ? undefined : [state];
      const rows: SandboxInfo[] = [];
      const query = { states, template, metadata, signal: context.interrupted };
      for await (const { info } of snapgate().sandboxes.list(query)) rows.push(info);
      if (json) return writeJson(context, rows);
      await write(context.stdout, renderTable(rows, columns(context.now())));
    });
}

const columns = (now: number): readonly Column<SandboxInfo>[] => [
  { title: 'SANDBOX', cell: ({ id }) => id },
  { title: 'TEMPLATE', cell: ({ template, version }) => `${template}@${version}` },
  { title: 'STATE', cell: stateOf },
  { title: 'AGE', cell: ({ createdAt }) => formatAge(now - createdAt), align: 'right' },
  { title: 'LEFT', cell: ({ deadlineAt, state }) => leftOf(deadlineAt - now, state), align: 'right' },
  { title: 'PARENT', cell: ({ parent }) => parent?.id ?? '' },
  { title: 'METADATA', cell: ({ metadata }) => pairsOf(metadata) },
];

/** The state; of an ended one also why, and whether that was our fault. */
export const stateOf = ({ state, termination }: SandboxInfo): string =>
  termination === null ? state : `${state} (${termination.reason}${termination.infra ? ', infra' : ''})`;

const leftOf = (ms: number, state: SandboxInfo['state']) =>
  state === 'ended' || state === 'paused' ? '' : formatAge(ms);

const pairsOf = (metadata: Readonly<Record<string, string>>) =>
  Object.entries(metadata)
    .map(([key, value]) => `${key}=${value}`)
    .join(' ');
