/**
 * `npm run bench [-- --quick]`: every benchmark, one after the other, each in a process of its own. Their figures lie in
 * `loadtest/results/` afterwards, and `table.md` there holds what each required and what it measured, for the README.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const isQuick = process.argv.includes('--quick');
/** Rounds that are enough to see that a benchmark works, and roughly where it stands. */
const quickRounds: Readonly<Record<string, number>> = {
  fork: 2,
  invoke: 100,
  network: 4,
  peers: 1,
  restore: 4,
};
const results = join(import.meta.dirname, '../results');

/** One requirement as a benchmark prints it: `✓ label: 1.00 ms (required ≤ 2 ms)`. */
const requirement = /^([✓✗]) (.+): (\S+(?: \S+)?) \(required (.+)\)$/;

interface Row {
  readonly suite: string;
  readonly label: string;
  readonly measured: string;
  readonly required: string;
  readonly holds: boolean;
}

async function runSuite(suite: string): Promise<Row[]> {
  const rounds = isQuick ? quickRounds[suite] : undefined;
  const argv = [
    join(import.meta.dirname, `${suite}.bench.ts`),
    ...(rounds === undefined ? [] : [String(rounds)]),
  ];
  const child = spawn(process.execPath, argv, { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = new Promise<number | null>((resolve) => child.once('close', resolve));
  const rows: Row[] = [];
  for await (const line of createInterface(child.stdout)) {
    console.log(line);
    const [, mark, label, measured, required] = requirement.exec(line) ?? [];
    if (label !== undefined && measured !== undefined && required !== undefined)
      rows.push({ suite, label, measured, required, holds: mark === '✓' });
  }
  if ((await exit) !== 0) {
    process.exitCode = 1;
    // One that failed before it measured must not be missing from the table.
    if (rows.every(({ holds }) => holds))
      rows.push({ suite, label: 'ran to its end', measured: 'failed', required: 'yes', holds: false });
  }
  return rows;
}

const suites = readdirSync(import.meta.dirname)
  .filter((name) => name.endsWith('.bench.ts'))
  .map((name) => name.replace('.bench.ts', ''))
  .sort();
const rows: Row[] = [];
const load = loadavg()[0] ?? 0;
for (const suite of suites) {
  const from = performance.now();
  console.log(`\n== ${suite}`);
  rows.push(...(await runSuite(suite)));
  console.log(`-- ${suite} took ${((performance.now() - from) / 1000).toFixed(0)} s`);
}
const table = [
  '| suite | what | required | measured | |',
  '|---|---|---|---|---|',
  ...rows.map(
    ({ suite, label, required, measured, holds }) =>
      `| \`${suite}\` | ${label} | ${required} | ${measured} | ${holds ? 'holds' : '**not reached**'} |`,
  ),
  '',
  `${isQuick ? 'Quick run, few rounds' : 'Full run'}, ${new Date().toISOString().slice(0, 10)}, load average ${load.toFixed(1)} before it.`,
].join('\n');
mkdirSync(results, { recursive: true });
writeFileSync(join(results, 'table.md'), `${table}\n`);
console.log(`\n${table}\n\nwritten to loadtest/results/table.md`);
