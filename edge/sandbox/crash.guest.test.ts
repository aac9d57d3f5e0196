import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { SandboxId } from '../../sdk/index.ts';
import {
  anyTime,
  endNode,
  leaksOf,
  makeDataDirectory,
  openNode,
  type SandboxNode,
  vmmsOf,
} from './testing/sandbox-node.ts';

const program = fileURLToPath(new URL('./testing/crash-process.ts', import.meta.url));

/** What each crash must leave: the state, and what the guest has counted to. */
const crashes = [
  ['pause', 'pause.prepared', 'running', 2],
  ['pause', 'pause.stopped', 'running', 2],
  ['pause', 'pause.frozen', 'running', 2],
  ['pause', 'pause.saved', 'running', 2],
  ['pause', 'pause.published', 'running', 2],
  ['pause', 'pause.committed', 'paused', 2],
  ['resume', 'resume.opened', 'paused', 2],
  ['resume', 'resume.restored', 'paused', 2],
  ['resume', 'resume.committed', 'running', 2],
  ['snapshot', 'snapshot.stopped', 'running', 2],
  ['snapshot', 'snapshot.resumed', 'running', 2],
  ['snapshot', 'snapshot.published', 'running', 2],
  ['rewind', 'rewind.opened', 'running', 2],
  ['rewind', 'rewind.restored', 'running', 2],
  ['rewind', 'rewind.committed', 'running', 1],
  ['fork', 'fork.frozen', 'running', 2],
  ['fork', 'fork.resumed', 'running', 2],
  ['fork', 'fork.restored', 'running', 2],
] as const;

describe('a crash of the edge in the middle of changes of sandboxes', () => {
  let directory = '';
  let node: SandboxNode;
  const ids = new Map<string, SandboxId>();

  before(async () => {
    directory = await makeDataDirectory();
    const first = await openNode(directory);
    const { digest } = first.origin;
    await first.edge.dispose();
    const cases = crashes.map(([operation, step]) => `${operation}:${step}`);
    const child = spawn(process.execPath, [program, directory, digest, ...cases], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const [output, [, signalName]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    assert.equal(signalName, 'SIGKILL', output);
    for (const line of output.trim().split('\n')) {
      const [step = '', id = ''] = line.split(' ');
      ids.set(step, id as SandboxId);
    }
    node = await openNode(directory, { digest });
  });
  after(async () => {
    assert.deepEqual(await endNode(node, directory), []);
  });

  test('leaves no child, no machine and no file that no sandbox owns', async () => {
    const all = await node.edge.sandboxes.list({});
    assert.deepEqual(new Set(all.map(({ id }) => id)), new Set(ids.values()));
    const owned = new Set((await node.edge.machines()).map(({ pid }) => pid));
    assert.deepEqual(
      (await vmmsOf(directory)).filter((pid) => !owned.has(pid)),
      [],
    );
    const paused = crashes.filter(([, , state]) => state === 'paused').length;
    const taken = (await node.edge.sandboxes.snapshots({})).length;
    const files = (await leaksOf(directory)).filter((leak) => leak.startsWith('snapshots/'));
    assert.equal(files.length, paused + taken);
  });

  // Two at a time, as the node restores them.
  describe('step by step', { concurrency: 2 }, () => {
    for (const [, step, state, counter] of crashes) {
      test(`at ${step} leaves the sandbox ${state} and whole`, async () => {
        const { sandboxes } = node.edge;
        const id = ids.get(step) as SandboxId;
        assert.equal((await sandboxes.get(id)).state, state);
        if (state === 'paused') await sandboxes.resume(id, { signal: anyTime() });
        const said = await node.ask(id);
        assert.deepEqual([said.counter, said.lines], [counter, counter]);
        // It works as before.
        await sandboxes.pause(id, { signal: anyTime() });
        await sandboxes.resume(id, { signal: anyTime() });
        assert.equal((await node.ask(id, '/count')).counter, counter + 1);
        for (const snapshot of await sandboxes.snapshots({ sandbox: id }))
          await sandboxes.removeSnapshot(snapshot.id);
        await sandboxes.kill(id);
      });
    }
  });
});
