/** The same machine on a bare VMM, and what a fork has to stop it for: pages and device state, no more. */
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { dataLayout } from '../../edge/index.ts';
import { createPageCopier, findRamMapping } from '../../edge/memory/index.ts';
import type { VersionDigest } from '../../sdk/index.ts';
import { openBareVmm } from './bare-vmm.ts';
import { root } from './bench-node.ts';

export async function openBareFork(
  digest: VersionDigest,
  options: {
    readonly layout: ReturnType<typeof dataLayout>;
    readonly dataDirectory: string;
    /** Requests that its guest answers before it is measured. */
    readonly requestsBefore: number;
    readonly signal: AbortSignal;
  },
) {
  const { layout, dataDirectory, requestsBefore, signal } = options;
  const directory = await mkdtemp(join(dataDirectory, 'b-'));
  const { source, restorable } = await openBareVmm(digest, {
    layout,
    runDirectory: join(directory, 'm'),
    signal,
  });
  const copier = createPageCopier({ toolPath: join(root, 'edge/native/build/page-copy'), helpers: 1 });
  const bare = source();
  const machine = await bare.restore(await bare.spawnBlank());
  for (let index = 0; index < requestsBefore; index++)
    await machine.http?.probe({ method: 'GET', path: '/' }, { signal });
  let running = machine.running;
  if (running === null) throw new Error('the bare machine does not run');
  const mapping = await findRamMapping(running.pid, restorable.snapshot.memoryPath);
  let files = 0;
  return {
    /** @returns milliseconds that the guest stood still */
    async round(): Promise<number> {
      const from = performance.now();
      const paused = await running!.pause();
      const { copied, written } = copier.capture(paused.pid, mapping, join(directory, `delta-${files++}`));
      await copied;
      await paused.saveState();
      const ms = performance.now() - from;
      running = await paused.resume();
      await written;
      return ms;
    },
    async [Symbol.asyncDispose]() {
      await machine.dispose('done');
      await copier[Symbol.asyncDispose]();
      await rm(directory, { recursive: true });
    },
  };
}
