/**
 * An edge in a process of its own that dies in the middle of many changes at once: each sandbox is held at one step, then the process
 * ends itself as if its power had gone. `node crash-process.ts DIRECTORY DIGEST OPERATION:STEP…`; prints `STEP ID` for each.
 */
import type { SandboxId, VersionDigest } from '../../../sdk/index.ts';
import { anyTime, openNode } from './sandbox-node.ts';

const [directory = '', digest = '', ...cases] = process.argv.slice(2);
let fatal: { readonly step: string; readonly reached: () => void } | null = null;

const node = await openNode(directory, {
  digest: digest as VersionDigest,
  async step(name) {
    if (fatal?.step !== name) return;
    fatal.reached();
    fatal = null;
    await new Promise(() => {});
  },
});
const { sandboxes } = node.edge;
const signal = { signal: anyTime() };

/** Prepares a sandbox and answers the change that shall not end. */
async function prepare(operation: string, id: SandboxId): Promise<() => Promise<unknown>> {
  const snapshot = operation === 'rewind' ? await sandboxes.snapshot(id, { isPinned: false }, signal) : null;
  await node.ask(id, '/count');
  if (operation === 'resume') await sandboxes.pause(id, signal);
  const changes: Record<string, () => Promise<unknown>> = {
    pause: () => sandboxes.pause(id, signal),
    resume: () => sandboxes.resume(id, signal),
    snapshot: () => sandboxes.snapshot(id, { isPinned: false }, signal),
    rewind: () => sandboxes.rewind(id, snapshot?.id ?? '', signal),
    fork: () => sandboxes.fork(id, { count: 1 }, signal),
  };
  const change = changes[operation];
  if (change === undefined) throw new Error(`no such operation: ${operation}`);
  return change;
}

for (const one of cases) {
  const [operation = '', step = ''] = one.split(':');
  const id = (await node.create()).id as SandboxId;
  await node.ask(id, '/count');
  const change = await prepare(operation, id);
  const { promise, resolve } = Promise.withResolvers<void>();
  fatal = { step, reached: resolve };
  await Promise.race([
    promise,
    change().then(() => {
      throw new Error(`${one} was never reached`);
    }),
  ]);
  process.stdout.write(`${step} ${id}\n`);
}
process.kill(process.pid, 'SIGKILL');
