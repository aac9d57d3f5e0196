/**
 * An edge that is killed: starts a blank VMM over a made-up snapshot and dies by SIGKILL at the instant named.
 * Run as `node test-edge.ts DIRECTORY INSTANT`; the parent looks at what is left.
 */
import { join } from 'node:path';
import { createQemuVmm } from './driver.ts';
import { type Launch, launchDetached } from './launch.ts';
import { newId, shimPath } from './test-guest.ts';

export const instants = ['beforeLaunch', 'afterLaunch', 'whileConnecting', 'afterSpawn'] as const;
type Instant = (typeof instants)[number];

/** A machine this small needs no guest: a blank VMM never runs one. */
export const shape = { vcpus: 1, memoryMiB: 32, diskMiB: 64 };

/** Options of a driver over a directory; the parent's and the child's are the same. */
export const optionsIn = (directory: string) => ({
  runDirectory: join(directory, 'run'),
  cacheDirectory: join(directory, 'cache'),
  shimPath,
  accelerator: 'tcg' as const,
  signal: new AbortController().signal,
});

async function main(directory: string, instant: Instant): Promise<void> {
  const die = () => process.kill(process.pid, 'SIGKILL');
  const launch: Launch = async (spec) => {
    if (instant === 'beforeLaunch') die();
    const launched = await launchDetached(spec);
    if (instant === 'afterLaunch') die();
    if (instant === 'whileConnecting') setTimeout(die, 10);
    return launched;
  };
  const vmm = await createQemuVmm({ now: Date.now, launch }, optionsIn(directory));
  const path = (name: string) => join(directory, name);
  await vmm.spawnBlank({
    id: newId(),
    shape: { ...shape, rootPath: path('root') },
    snapshot: { memoryPath: path('memory'), statePath: path('state'), diskPath: path('disk') },
    signal: new AbortController().signal,
  });
  die();
}

if (import.meta.main) await main(process.argv[2] ?? '', process.argv[3] as Instant);
