import { Command } from 'commander';
import type { AdminClient, MachineInfo, NodeInfo, PoolInfo } from '../../sdk/index.ts';
import { type CliContext, write, writeJson } from './context.ts';
import { type Column, formatAge, formatBytes, renderTable } from './table.ts';

interface Deps {
  readonly context: CliContext;
  readonly client: () => AdminClient;
}

interface Flags {
  readonly pools?: boolean;
  readonly nodes?: boolean;
  readonly json?: boolean;
}

/** `snapgate ps`: machines, or pools, or nodes. */
export function psCommand({ context, client }: Deps): Command {
  return new Command('ps')
    .description('list machines, and with --pools or --nodes what they belong to')
    .argument('[template]', 'only those of this template')
    .option('--pools', 'pools with their targets, counts of starts and last failure')
    .option('--nodes', 'nodes with their accelerator and capacity')
    .option('--json', 'print JSON')
    .action(async (template: string | undefined, flags: Flags) => {
      const options = { signal: context.interrupted };
      const show = async <T>(all: readonly T[], columns: readonly Column<T>[]): Promise<void> => {
        const rows = all.filter((row) => {
          const owner = (row as { template?: string }).template;
          return template === undefined || owner === undefined || owner === template;
        });
        if (flags.json) return writeJson(context, rows);
        await write(context.stdout, renderTable(rows, columns));
      };
      if (flags.nodes) return show(await client().nodes(options), nodeColumns(context.now()));
      if (flags.pools) return show(await client().pools(options), poolColumns);
      return show(await client().machines(options), machineColumns(context.now()));
    });
}

/** Columns of machines, as of `now`, epoch milliseconds. */
export const machineColumns = (now: number): readonly Column<MachineInfo>[] => [
  { title: 'MACHINE', cell: ({ id }) => id },
  { title: 'TEMPLATE', cell: ({ template, version }) => `${template}@${version}` },
  { title: 'STATE', cell: ({ state }) => state },
  { title: 'AGE', cell: ({ startedAt }) => formatAge(now - startedAt), align: 'right' },
  { title: 'CALLS', cell: ({ invocations }) => invocations, align: 'right' },
  { title: 'NOW', cell: ({ inFlight }) => inFlight, align: 'right' },
  {
    title: 'OWN RAM',
    cell: ({ privateBytes }) => (privateBytes === null ? '-' : formatBytes(privateBytes)),
    align: 'right',
  },
  { title: 'PID', cell: ({ pid }) => pid, align: 'right' },
  { title: 'NODE', cell: ({ node }) => node },
];

const poolColumns: readonly Column<PoolInfo>[] = [
  {
    title: 'POOL',
    cell: ({ template, version, isDraining }) => `${template}@${version}${isDraining ? ' (draining)' : ''}`,
  },
  { title: 'READY', cell: ({ ready, target }) => `${ready}/${target.ready}`, align: 'right' },
  { title: 'BLANK', cell: ({ blank, target }) => `${blank}/${target.blank}`, align: 'right' },
  { title: 'SERVING', cell: ({ serving, target }) => `${serving}/${target.max}`, align: 'right' },
  { title: 'RESTORING', cell: ({ restoring }) => restoring, align: 'right' },
  { title: 'WAITING', cell: ({ waiting }) => waiting, align: 'right' },
  {
    title: 'STARTS',
    cell: ({ starts }) =>
      `${starts.ready} ready, ${starts.restored} restored, ${starts.spawned} spawned, ${starts.reused} reused`,
  },
  { title: 'SIZE', cell: ({ sizing }) => sizing?.because ?? '-' },
  { title: 'FAILURES', cell: ({ failures }) => failures, align: 'right' },
  { title: 'LAST FAILURE', cell: ({ lastFailure }) => (lastFailure ?? '-').slice(0, 80) },
];

/** Columns of nodes, as of `now`, epoch milliseconds. */
export const nodeColumns = (now: number): readonly Column<NodeInfo>[] => [
  { title: 'NODE', cell: ({ id }) => id },
  {
    title: 'STATE',
    cell: ({ isReady, isDraining }) => (isDraining ? 'draining' : isReady ? 'ready' : 'starting'),
  },
  { title: 'UP', cell: ({ startedAt }) => formatAge(now - startedAt), align: 'right' },
  { title: 'MACHINES', cell: ({ machines, maxMachines }) => `${machines}/${maxMachines}`, align: 'right' },
  { title: 'VERSIONS', cell: ({ versions }) => versions, align: 'right' },
  { title: 'DISK', cell: ({ disk }) => (disk == null ? '-' : formatBytes(disk.usedBytes)), align: 'right' },
  { title: 'FREE', cell: ({ disk }) => (disk == null ? '-' : formatBytes(disk.freeBytes)), align: 'right' },
  {
    title: 'ACCELERATOR',
    cell: ({ accelerator, isTenantBoundary }) =>
      `${accelerator}${isTenantBoundary ? '' : ' (not a tenant boundary)'}`,
  },
  { title: 'WHY', cell: ({ acceleratorReason }) => acceleratorReason },
];
