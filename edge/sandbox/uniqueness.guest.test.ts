import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { SandboxId } from '../../sdk/index.ts';
import {
  anyTime,
  endNode,
  makeDataDirectory,
  openNode,
  type SandboxNode,
  vmmsOf,
} from './testing/sandbox-node.ts';

const signal = {
  get signal() {
    return anyTime();
  },
};
const kill = async (node: SandboxNode) => {
  for (const { id } of await node.edge.sandboxes.list({})) await node.edge.sandboxes.kill(id as SandboxId);
};

describe('randomness in forks of a sandbox that has drawn some', () => {
  let directory = '';
  let node: SandboxNode;
  before(async () => {
    directory = await makeDataDirectory();
    node = await openNode(directory, {
      template: join(import.meta.dirname, '../../templates/examples/hello-node'),
    });
  });
  after(async () => {
    await kill(node);
    assert.deepEqual(await endNode(node, directory), []);
  });

  test('crypto.randomUUID, crypto.randomBytes and Math.random of the Node example differ, generation after generation', async () => {
    const source = await node.create();
    // OpenSSL has now asked for its seed, and would not ask again for an hour.
    const drawn = [await node.ask(source.id)];
    const all = [source.id];
    for (const parent of [source.id, null]) {
      const { children } = await node.edge.sandboxes.fork(
        (parent ?? all.at(-1)) as SandboxId,
        { count: 2 },
        signal,
      );
      for (const child of children) {
        if ('error' in child) assert.fail(JSON.stringify(child.error));
        all.push(child.sandbox.id);
      }
      drawn.push(...(await Promise.all(all.map((id) => node.ask(id)))));
    }
    for (const key of ['uuid', 'bytes', 'random'] as const)
      assert.equal(new Set(drawn.map((one) => one[key])).size, drawn.length, key);
  });
});

describe('a child whose randomness can not be renewed', () => {
  let directory = '';
  let node: SandboxNode;
  before(async () => {
    directory = await makeDataDirectory();
    node = await openNode(directory, { config: { forkBlanks: 0 } });
  });
  after(async () => {
    await kill(node);
    assert.deepEqual(await endNode(node, directory), []);
  });

  test('is an error in its place, leaves no VMM, and its source goes on', async () => {
    const source = await node.create();
    const id = source.id as SandboxId;
    await node.ask(id, '/count');
    await node.ask(id, '/break-hook');
    const before = await vmmsOf(directory);
    const { children } = await node.edge.sandboxes.fork(id, { count: 2 }, signal);
    assert.equal(children.length, 2);
    for (const child of children) {
      assert.ok('error' in child);
      assert.match(JSON.stringify(child.error), /restore_failed.*hook \/restored answered 500/);
    }
    const after = await vmmsOf(directory);
    assert.ok(
      after.every((pid) => before.includes(pid)),
      'no VMM of a failed child is left',
    );
    assert.equal((await node.ask(id)).counter, 1);
    assert.equal((await node.edge.sandboxes.list({})).length, 1);
  });
});
