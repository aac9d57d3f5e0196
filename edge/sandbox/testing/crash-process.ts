/**
 * An edge in a process of its own that dies in the middle of a change, as if the power of the process had gone:
 * `node crash-process.ts DIRECTORY DIGEST OPERATION STEP`. Prints the sandbox's id before it begins.
 */
import type { SandboxId, VersionDigest } from '../../../sdk/index.ts';
import { anyTime, openNode } from './sandbox-node.ts';

const [directory = '', digest = '', operation = '', fatalStep = ''] = process.argv.slice(2);
let isArmed = false;

const node = await openNode(directory, {
  digest: digest as VersionDigest,
  step(name) {
    if (isArmed && name === fatalStep) process.kill(process.pid, 'SIGKILL');
  },
});
const { sandboxes } = node.edge;
const signal = { signal: anyTime() };
const sandbox = await node.create();
const id = sandbox.id as SandboxId;
await node.ask(id, '/count');
const snapshot = operation === 'rewind' ? await sandboxes.snapshot(id, { isPinned: false }, signal) : null;
await node.ask(id, '/count');
if (operation === 'resume') await sandboxes.pause(id, signal);
process.stdout.write(`${id}\n`);
isArmed = true;
switch (operation) {
  case 'pause':
    await sandboxes.pause(id, signal);
    break;
  case 'resume':
    await sandboxes.resume(id, signal);
    break;
  case 'snapshot':
    await sandboxes.snapshot(id, { isPinned: false }, signal);
    break;
  case 'rewind':
    await sandboxes.rewind(id, snapshot?.id ?? '', signal);
    break;
  case 'fork':
    await sandboxes.fork(id, { count: 1 }, signal);
    break;
}
process.stdout.write('the step was never reached\n');
process.exit(3);
