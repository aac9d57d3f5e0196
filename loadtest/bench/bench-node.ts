/** A node for benchmarks: its own data directory beside that of `npm start`, sharing its images. */

import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { cpus, totalmem } from 'node:os';
import { join } from 'node:path';
import type { RunningService } from '../../gateway/runtime.ts';
import { up } from '../../gateway/up.ts';
import { createAdminClient, type VersionDigest } from '../../sdk/index.ts';
import { packTemplate, parseDefinition } from '../../templates/index.ts';

/** The checkout. */
export const root = join(import.meta.dirname, '../..');

/** Where benchmarks keep their versions between runs. */
export async function benchDirectory(): Promise<string> {
  const directory = join(root, '.snapgate', 'bench');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  for (const name of ['images', 'cache']) {
    await mkdir(join(root, '.snapgate', name), { recursive: true });
    await symlink(join(root, '.snapgate', name), join(directory, name)).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code !== 'EEXIST') throw error;
      },
    );
  }
  return directory;
}

export const startBenchNode = async (): Promise<RunningService> =>
  up({ dataDirectory: await benchDirectory(), listen: '127.0.0.1:0', logLevel: 'error', onStep: () => {} });

/** Publishes an example, changed as wanted; quick when the version is there already. */
export const publishExample = (
  service: RunningService,
  example: string,
  changes: Record<string, unknown> = {},
): Promise<VersionDigest> => publishFolder(service, join('templates/examples', example), changes);

/** The same for any template folder of the checkout. */
export async function publishFolder(
  service: RunningService,
  path: string,
  changes: Record<string, unknown> = {},
): Promise<VersionDigest> {
  const folder = join(root, path);
  const definition = parseDefinition({
    ...JSON.parse(await readFile(join(folder, 'template.json'), 'utf8')),
    ...changes,
  });
  const client = createAdminClient(service);
  for await (const event of client.publish(definition.name, await packTemplate(folder, definition))) {
    if (event.type === 'result') return event.digest as VersionDigest;
  }
  throw new Error('the publish ended without a result');
}

/** Publishes through a whole node that is closed again, so that none of its machines runs beside what is measured. */
export async function publishAndClose(
  ...examples: readonly { readonly example: string; readonly changes?: Record<string, unknown> }[]
): Promise<VersionDigest[]> {
  const service = await startBenchNode();
  try {
    const digests: VersionDigest[] = [];
    for (const { example, changes } of examples)
      digests.push(await publishExample(service, example, changes));
    return digests;
  } finally {
    await service.close();
  }
}

/** A number of the middle; `values` is not changed. */
export const median = (values: readonly number[]): number => quantile(values, 0.5);

/** Nearest-rank quantile of measured values. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(q * sorted.length) - 1)] ?? Number.NaN;
}

/** Writes `loadtest/results/<name>.json` with the machine it was measured on. */
export async function writeResult(name: string, figures: unknown): Promise<void> {
  const machine = {
    cpus: cpus().length,
    cpu: cpus()[0]?.model,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    kernel: (await readFile('/proc/sys/kernel/osrelease', 'utf8')).trim(),
    node: process.version,
  };
  const directory = join(root, 'loadtest/results');
  await mkdir(directory, { recursive: true });
  await writeFile(
    join(directory, `${name}.json`),
    `${JSON.stringify({ name, measuredAt: new Date().toISOString(), machine, figures }, null, 2)}\n`,
  );
}

/** Fails the run when a requirement does not hold; prints it in any case. */
export function require(label: string, value: number, limit: number, unit: string, isUpper = true): void {
  const holds = isUpper ? value <= limit : value >= limit;
  console.log(
    `${holds ? '✓' : '✗'} ${label}: ${value.toFixed(2)}${unit} (required ${isUpper ? '≤' : '≥'} ${limit}${unit})`,
  );
  if (!holds) process.exitCode = 1;
}
