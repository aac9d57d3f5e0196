/** `npm run bench:memory`: what ten ready clones of `hello-python` hold each, and what it is made of. */
import { join } from 'node:path';
import { dataLayout } from '../../edge/index.ts';
import { readMemoryUse } from '../../edge/memory/index.ts';
import { createAdminClient } from '../../sdk/index.ts';
import { versionDirectory } from '../../templates/index.ts';
import {
  benchDirectory,
  median,
  publishExample,
  require,
  startBenchNode,
  writeResult,
} from './bench-node.ts';

const clones = 10;
const mib = (bytes: number) => bytes / 2 ** 20;

const service = await startBenchNode();
try {
  const digest = await publishExample(service, 'hello-python', {
    pool: { ready: clones, blank: 0, max: clones },
  });
  const client = createAdminClient(service);
  let ready = [] as Awaited<ReturnType<typeof client.machines>>;
  for (const deadline = Date.now() + 120_000; ready.length < clones; ) {
    if (Date.now() > deadline) throw new Error(`only ${ready.length} clones got ready`);
    await new Promise((resolve) => setTimeout(resolve, 500));
    ready = (await client.machines()).filter(
      (machine) => machine.state === 'ready' && machine.digest === digest,
    );
  }
  const memoryPath = join(
    versionDirectory(dataLayout(await benchDirectory()).versions, digest),
    'memory.img',
  );
  const uses = await Promise.all(ready.map(({ pid }) => readMemoryUse(pid, memoryPath)));
  const of = (pick: (use: (typeof uses)[number]) => number) => ({
    median: mib(median(uses.map(pick))),
    max: mib(Math.max(...uses.map(pick))),
  });
  const figures = {
    clones,
    guestMiB: 256,
    privateRamMiB: of((use) => use.ram.privateBytes),
    sharedRamProportionalMiB: of((use) => use.ram.proportionalBytes),
    translationCacheMiB: of((use) => use.translationCacheBytes),
    vmmOverheadMiB: of((use) => use.overheadBytes),
    pssMiB: of((use) => use.proportionalBytes),
  };
  console.table({
    'guest RAM private to the clone': figures.privateRamMiB,
    "guest RAM, the clone's share (PSS)": figures.sharedRamProportionalMiB,
    'translation cache (emulation only)': figures.translationCacheMiB,
    "VMM's heap, stacks, libraries": figures.vmmOverheadMiB,
    'PSS of the whole process': figures.pssMiB,
  });
  require('private guest RAM of the largest clone', figures.privateRamMiB.max, 8, ' MiB');
  await writeResult('memory', figures);
} finally {
  await service.close();
}
