import { Command } from 'commander';
import type { AdminClient, KeyInfo } from '../../sdk/index.ts';
import { wholeNumber } from './command-options.ts';
import { type CliContext, write, writeJson } from './context.ts';
import { type Column, formatInstant, renderTable } from './table.ts';

interface Deps {
  readonly context: CliContext;
  readonly client: () => AdminClient;
}

/** `snapgate keys create|list|rm`. */
export function keysCommand({ context, client }: Deps): Command {
  const options = { signal: context.interrupted };
  const keys = new Command('keys').description('make, list and withdraw API keys');

  keys
    .command('create')
    .description('make a key; it is shown this once')
    .argument('<name>', 'what it is for, such as "ci"')
    .option('--rate <per-second>', 'requests a second at the most', wholeNumber(1, 1_000_000))
    .option('--per-day <requests>', 'requests a UTC day at the most', wholeNumber(1, 2 ** 40))
    .option('--json', 'print JSON')
    .action(async (name: string, flags: { rate?: number; perDay?: number; json?: boolean }) => {
      const isLimited = flags.rate !== undefined || flags.perDay !== undefined;
      const limits = { ratePerSecond: flags.rate ?? null, requestsPerDay: flags.perDay ?? null };
      const created = await client().createKey(name, { ...options, ...(isLimited ? { limits } : {}) });
      if (flags.json) return writeJson(context, created);
      await write(context.stderr, `Key ${created.id} for "${name}"; keep it, it is not shown again:\n`);
      await write(context.stdout, `${created.key}\n`);
    });

  keys
    .command('list')
    .alias('ls')
    .description('list keys (never the keys themselves)')
    .option('--json', 'print JSON')
    .action(async (flags: { json?: boolean }) => {
      const all = await client().keys(options);
      if (flags.json) return writeJson(context, all);
      await write(context.stdout, renderTable(all, keyColumns));
    });

  keys
    .command('rm')
    .description('withdraw a key; it stops working at once')
    .argument('<id>', 'id from `snapgate keys list`')
    .action(async (id: string) => {
      await client().removeKey(id, options);
      await write(context.stderr, `Withdrew key ${id}.\n`);
    });

  return keys;
}

const keyColumns: readonly Column<KeyInfo>[] = [
  { title: 'ID', cell: ({ id }) => id },
  { title: 'NAME', cell: ({ name }) => name },
  { title: 'KEY', cell: ({ prefix }) => `${prefix}…` },
  { title: 'CREATED (UTC)', cell: ({ createdAt }) => formatInstant(createdAt) },
  {
    title: 'LAST USED (UTC)',
    cell: ({ lastUsedAt }) => (lastUsedAt === null ? 'never' : formatInstant(lastUsedAt)),
  },
  { title: 'TODAY', cell: ({ requestsToday }) => requestsToday ?? '-', align: 'right' },
  { title: 'PER DAY', cell: ({ limits }) => limits?.requestsPerDay ?? '-', align: 'right' },
  { title: 'PER SECOND', cell: ({ limits }) => limits?.ratePerSecond ?? '-', align: 'right' },
];
