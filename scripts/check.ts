// Everything that must hold before a commit: node scripts/check.ts [step…]   (all steps when none is named)
import { spawn } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const rootPath = dirname(dirname(fileURLToPath(import.meta.url)));
const bin = (name: string): string => join(rootPath, 'node_modules/.bin', name);
const folders = ['gateway', 'edge', 'pool', 'templates', 'sdk', 'loadtest'];

/** Answers whether the program succeeded, and what it printed. */
async function run(file: string, argv: readonly string[]): Promise<{ isGood: boolean; output: string }> {
  // The tools find their interpreter through PATH; it must be the one this checkout pins.
  const env = { ...process.env, PATH: `${join(rootPath, 'node_modules/.bin')}:${process.env.PATH}` };
  const child = spawn(file, argv, { cwd: rootPath, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const chunks: Buffer[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
  child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return { isGood: code === 0, output: Buffer.concat(chunks).toString('utf8') };
}

/** dependency-cruiser passes when it understood nothing, so seeing no module is a failure too. */
async function checkBoundaries(): Promise<{ isGood: boolean; output: string }> {
  const argv = ['--config', '.dependency-cruiser.mjs', '--output-type', 'json', ...folders];
  const { output } = await run(bin('depcruise'), argv);
  let summary: { totalCruised: number; violations: { rule: { name: string }; from: string; to: string }[] };
  try {
    ({ summary } = JSON.parse(output));
  } catch {
    return { isGood: false, output };
  }
  if (summary.totalCruised === 0) return { isGood: false, output: 'dependency-cruiser saw no module' };
  const lines = summary.violations.map(({ rule, from, to }) => `${rule.name}: ${from} → ${to}`);
  return { isGood: lines.length === 0, output: [...lines, `${summary.totalCruised} modules`].join('\n') };
}

const steps: Record<string, () => Promise<{ isGood: boolean; output: string }>> = {
  lint: () => run(bin('biome'), ['check', '--error-on-warnings']),
  types: () => run(bin('tsc'), ['--noEmit', '-p', '.']),
  boundaries: checkBoundaries,
  unused: () => run(bin('knip'), ['--config', 'scripts/knip.json', '--no-progress']),
  unit: () => run(process.execPath, [join(rootPath, 'scripts/test.ts'), '--unit']),
};

const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !Object.hasOwn(steps, name));
if (unknown.length > 0) {
  console.error(`✗ no step ${unknown.join(', ')}; there are: ${Object.keys(steps).join(', ')}`);
  process.exitCode = 1;
} else {
  for (const name of wanted.length > 0 ? wanted : Object.keys(steps)) {
    const startedAt = performance.now();
    const { isGood, output } = await steps[name]!();
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    console.log(`${isGood ? '✓' : '✗'} ${name} (${seconds} s)`);
    if (isGood) continue;
    console.log(output.trimEnd());
    process.exitCode = 1;
  }
}
