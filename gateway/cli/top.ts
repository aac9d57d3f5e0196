import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import type { AdminClient, MachineInfo, NodeInfo, PoolInfo } from '../../sdk/index.ts';
import { wholeNumber } from './command-options.ts';
import { type CliContext, write, writeJson } from './context.ts';
import { machineColumns, nodeColumns } from './ps.ts';
import { type Column, renderTable } from './table.ts';

interface Deps {
  readonly context: CliContext;
  readonly client: () => AdminClient;
}

interface Flags {
  readonly every: number;
  readonly machines: number;
  readonly once?: boolean;
  readonly json?: boolean;
}

/** All that is shown, at one instant. Rates are over the time since the look before; null at the first. */
interface View {
  readonly nodes: readonly NodeInfo[];
  readonly pools: readonly (PoolInfo & {
    readonly callsPerSecond: number | null;
    readonly refusedPerSecond: number | null;
  })[];
  readonly machines: readonly MachineInfo[];
}

const home = '\x1b[H';
const eraseLine = '\x1b[K';
const eraseBelow = '\x1b[J';
const otherScreen = '\x1b[?1049h\x1b[?25l';
const ownScreen = '\x1b[?25h\x1b[?1049l';

/** `snapgate top`: pools, machines and rates, drawn again and again until Ctrl-C; into a pipe one block after the other. */
export function topCommand({ context, client }: Deps): Command {
  return new Command('top')
    .description('watch pools, machines and rates')
    .option('-e, --every <seconds>', 'how often', wholeNumber(1, 3600), 2)
    .option('-n, --machines <count>', 'busiest machines shown', wholeNumber(0, 1000), 10)
    .option('--once', 'one look, then end')
    .option('--json', 'print a line of JSON per look; with --once a document')
    .action(async (flags: Flags) => {
      const isDrawn = context.stdout.isTTY === true && !flags.once && !flags.json;
      const looker = createLooker(client(), context);
      if (isDrawn) await write(context.stdout, otherScreen);
      try {
        for (;;) {
          const view = await looker();
          if (flags.json && flags.once) await writeJson(context, view);
          else if (flags.json) await write(context.stdout, `${JSON.stringify(view)}\n`);
          else await write(context.stdout, drawn(render(view, flags.machines, context.now()), isDrawn));
          if (flags.once) return;
          await sleep(flags.every * 1000, undefined, { signal: context.interrupted }).catch(() => {});
          if (context.interrupted.aborted) return;
        }
      } finally {
        if (isDrawn) await write(context.stdout, ownScreen);
      }
    });
}

function createLooker(client: AdminClient, { interrupted, now }: CliContext): () => Promise<View> {
  let before: { readonly at: number; readonly totals: ReadonlyMap<string, Totals> } | null = null;
  return async () => {
    const options = { signal: interrupted };
    const [nodes, pools, machines] = await Promise.all([
      client.nodes(options),
      client.pools(options),
      client.machines(options),
    ]);
    const at = now();
    const totals = new Map(pools.map((pool) => [keyOf(pool), totalsOf(pool)]));
    const seconds = before === null ? 0 : (at - before.at) / 1000;
    const rate = (pool: PoolInfo, of: keyof Totals): number | null => {
      const earlier = before?.totals.get(keyOf(pool));
      if (earlier === undefined || seconds <= 0) return null;
      // A restarted edge counts from nothing again.
      return Math.max(0, totalsOf(pool)[of] - earlier[of]) / seconds;
    };
    const view = {
      nodes,
      pools: pools.map((pool) => ({
        ...pool,
        callsPerSecond: rate(pool, 'calls'),
        refusedPerSecond: rate(pool, 'refused'),
      })),
      machines,
    };
    before = { at, totals };
    return view;
  };
}

interface Totals {
  readonly calls: number;
  readonly refused: number;
}
const keyOf = ({ node, digest }: PoolInfo) => `${node} ${digest}`;
const sum = (counts: Readonly<Record<string, number>>) =>
  Object.values(counts).reduce((total, count) => total + count, 0);
const totalsOf = ({ starts, refusals }: PoolInfo): Totals => ({
  calls: sum(starts),
  refused: sum(refusals ?? {}),
});

function render({ nodes, pools, machines }: View, count: number, now: number): string {
  const busiest = [...machines]
    .sort((a, b) => b.inFlight - a.inFlight || (b.privateBytes ?? 0) - (a.privateBytes ?? 0))
    .slice(0, count);
  return [
    renderTable(nodes, watchedNodeColumns(now)),
    renderTable(pools, poolColumns),
    ...(busiest.length === 0 ? [] : [renderTable(busiest, machineColumns(now))]),
  ].join('\n');
}

/** On a terminal a block takes the place of the one before, without the flicker of an erased screen. */
const drawn = (text: string, isDrawn: boolean): string =>
  isDrawn ? `${home}${text.replaceAll('\n', `${eraseLine}\n`)}${eraseBelow}` : `${text}\n`;

const perSecond = (rate: number | null): string => (rate === null ? '-' : rate.toFixed(1));

/** Why a node emulates doesn't change while one watches. */
const watchedNodeColumns = (now: number) => nodeColumns(now).filter(({ title }) => title !== 'WHY');

const poolColumns: readonly Column<View['pools'][number]>[] = [
  {
    title: 'POOL',
    cell: ({ template, version, isDraining }) => `${template}@${version}${isDraining ? ' (draining)' : ''}`,
  },
  {
    title: 'READY',
    cell: ({ ready, sizing, target }) => `${ready}/${sizing?.ready ?? target.ready}`,
    align: 'right',
  },
  { title: 'BLANK', cell: ({ blank, target }) => `${blank}/${target.blank}`, align: 'right' },
  { title: 'SERVING', cell: ({ serving, target }) => `${serving}/${target.max}`, align: 'right' },
  { title: 'WAITING', cell: ({ waiting }) => waiting, align: 'right' },
  { title: 'CALLS/s', cell: ({ callsPerSecond }) => perSecond(callsPerSecond), align: 'right' },
  { title: 'REFUSED/s', cell: ({ refusedPerSecond }) => perSecond(refusedPerSecond), align: 'right' },
  {
    title: 'HITS',
    cell: ({ hitRate }) => (hitRate == null ? '-' : `${(hitRate * 100).toFixed(1)}%`),
    align: 'right',
  },
  {
    title: 'HELD',
    cell: ({ serviceMs }) => (serviceMs == null ? '-' : `${Math.round(serviceMs)}ms`),
    align: 'right',
  },
  { title: 'SIZE', cell: ({ sizing }) => sizing?.because ?? '-' },
];
