import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import type { SandboxId, VersionDigest } from '../../sdk/index.ts';
import { anyTime, endNode, leaksOf, makeDataDirectory, openNode, vmmsOf } from './testing/sandbox-node.ts';

const program = join(import.meta.dirname, 'testing/crash-process.ts');

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

describe('a crash of the edge in the middle of a change of a sandbox', () => {
  let directory = '';
  let digest: VersionDigest;
  before(async () => {
    directory = await makeDataDirectory();
    const node = await openNode(directory);
    digest = node.origin.digest;
    await node.edge.dispose();
  });
  after(async () => {
    const node = await openNode(directory, { digest });
    assert.deepEqual(await endNode(node, directory), []);
  });

  for (const [operation, step, state, counter] of crashes) {
    test(`at ${step} leaves the sandbox ${state}, and nothing half-done`, async () => {
      const child = spawn(process.execPath, [program, directory, digest, operation, step], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      const [output, [, signalName]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
      assert.equal(signalName, 'SIGKILL', output);
      const id = output.trim() as SandboxId;
      const node = await openNode(directory, { digest });
      try {
        const { sandboxes } = node.edge;
        const all = await sandboxes.list({});
        assert.deepEqual(
          all.map((one) => [one.id, one.state]),
          [[id, state]],
          'no child, and the sandbox itself',
        );
        if (state === 'paused') await sandboxes.resume(id, { signal: anyTime() });
        const said = await node.ask(id);
        assert.deepEqual([said.counter, said.lines], [counter, counter]);
        // It works as before: it can be paused and comes back.
        await sandboxes.pause(id, { signal: anyTime() });
        await sandboxes.resume(id, { signal: anyTime() });
        assert.equal((await node.ask(id, '/count')).counter, counter + 1);
        for (const snapshot of await sandboxes.snapshots({})) await sandboxes.removeSnapshot(snapshot.id);
        await sandboxes.kill(id);
      } finally {
        await node.edge.dispose();
      }
      assert.deepEqual(await leaksOf(directory), []);
      assert.deepEqual(await vmmsOf(directory), []);
    });
  }
});
