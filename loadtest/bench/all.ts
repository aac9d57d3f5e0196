/** `npm run bench`: every benchmark, one after the other, each in a process of its own. */
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';

for (const file of readdirSync(import.meta.dirname)
  .filter((name) => name.endsWith('.bench.ts'))
  .sort()) {
  console.log(`\n== ${file.replace('.bench.ts', '')}`);
  const { status } = spawnSync(process.execPath, [join(import.meta.dirname, file)], { stdio: 'inherit' });
  if (status !== 0) process.exitCode = 1;
}
