// Runs the tests: node scripts/test.ts [--unit] [path…]
// First everything that needs no guest, two files at a time; then what boots guests, one file at a time, after the
// guests' images have been built. One summary at the end, in node:test's own form.
import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { fileURLToPath } from 'node:url';
import { GatewayError } from '../sdk/index.ts';
import { createImageBuilder } from '../templates/image/index.ts';

const rootPath = dirname(dirname(fileURLToPath(import.meta.url)));
const guestPattern = /\.(guest|e2e)\.test\.ts$/;
/** A file that hangs ends the run with its name rather than never. */
const fileTimeoutMs = { unit: 5 * 60_000, guest: 20 * 60_000 };

const selection = process.argv.slice(2);
const isUnitOnly = selection.includes('--unit');
const filters = selection
  .filter((argument) => argument !== '--unit')
  .map((path) => path.replace(/^\.\//, ''));

const files = globSync('**/*.test.ts', {
  cwd: rootPath,
  exclude: (path) => /(^|\/)(node_modules|dist|examples|\.snapgate|\.git)$/.test(path),
})
  .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter)))
  .sort();
const unitFiles = files.filter((file) => !guestPattern.test(file));
const guestFiles = isUnitOnly ? [] : files.filter((file) => guestPattern.test(file));

/** Builds what guests boot, so that its cost is in no test: kernel, initramfs and the roots of all examples. */
async function prepareImages(): Promise<void> {
  const startedAt = performance.now();
  console.log('• preparing guest images …');
  const builder = createImageBuilder(
    {},
    {
      dataPath: join(rootPath, '.snapgate'),
      agentPath: join(rootPath, 'templates/agent/build/agent'),
    },
  );
  const shown = new Set<string>();
  const flight = {
    signal: AbortSignal.timeout(30 * 60_000),
    onProgress: ({ task }: { task: string }) => {
      if (!shown.has(task)) console.log(`  ${task}`);
      shown.add(task);
    },
  };
  const recipes = globSync('templates/examples/*/template.json', { cwd: rootPath }).map((path) => {
    const { image } = JSON.parse(readFileSync(join(rootPath, path), 'utf8')) as {
      image: { debian: string; packages: string[] };
    };
    return { suite: image.debian, packages: image.packages };
  });
  await Promise.all([
    builder.ensureKernel(flight),
    ...recipes.map((recipe) => builder.ensureRoot(recipe, flight)),
  ]);
  console.log(`✓ guest images (${((performance.now() - startedAt) / 1000).toFixed(1)} s)`);
}

type TestEvent = { readonly type: string; readonly data: Record<string, unknown> };
const totals = { tests: 0, suites: 0, passed: 0, failed: 0, cancelled: 0, skipped: 0, todo: 0 };
/** The lines with which each of the two runs would sum itself up. */
const summaryLine = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

async function* runFiles(
  selected: string[],
  concurrency: number,
  timeout: number,
): AsyncGenerator<TestEvent> {
  if (selected.length === 0) return;
  const events = run({
    files: selected.map((file) => join(rootPath, file)),
    concurrency,
    timeout,
    cwd: rootPath,
  });
  for await (const event of events as AsyncIterable<TestEvent>) {
    const { type, data } = event;
    if (type === 'test:diagnostic' && data.nesting === 0 && summaryLine.test(String(data.message))) continue;
    if (type === 'test:summary') {
      if (data.file !== undefined) continue;
      const counts = data.counts as typeof totals;
      for (const name of Object.keys(totals) as (keyof typeof totals)[]) totals[name] += counts[name];
      if (data.success === false) process.exitCode = 1;
      continue;
    }
    yield event;
  }
}

async function* runAll(): AsyncGenerator<TestEvent> {
  const startedAt = performance.now();
  yield* runFiles(unitFiles, 2, fileTimeoutMs.unit);
  yield* runFiles(guestFiles, 1, fileTimeoutMs.guest);
  const lines = [
    `tests ${totals.tests}`,
    `suites ${totals.suites}`,
    `pass ${totals.passed}`,
    `fail ${totals.failed}`,
    `cancelled ${totals.cancelled}`,
    `skipped ${totals.skipped}`,
    `todo ${totals.todo}`,
    `duration_ms ${(performance.now() - startedAt).toFixed(3)}`,
  ];
  for (const message of lines)
    yield { type: 'test:diagnostic', data: { nesting: 0, message, level: 'info' } };
}

if (unitFiles.length + guestFiles.length === 0) {
  console.error(`✗ no test file matches ${filters.join(' ')}`);
  process.exitCode = 1;
} else {
  try {
    if (guestFiles.length > 0) await prepareImages();
    for await (const text of Readable.from(runAll()).compose(new spec())) process.stdout.write(String(text));
    if (totals.tests === 0) {
      console.error('✗ no test ran');
      process.exitCode = 1;
    }
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    console.error(`✗ ${error.message}\n${error.details.output ?? ''}\n${error.remediation}`);
    process.exitCode = 1;
  }
}
