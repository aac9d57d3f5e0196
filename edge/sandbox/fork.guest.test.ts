import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { CreatedSandbox, ForkResult, SandboxId } from '../../sdk/index.ts';
import { anyTime, endNode, makeDataDirectory, openNode, type SandboxNode } from './testing/sandbox-node.ts';

describe('forking sandboxes with real guests', () => {
  let directory = '';
  let node: SandboxNode;
  before(async () => {
    directory = await makeDataDirectory();
    node = await openNode(directory);
  });
  after(async () => {
    for (const { id } of await node.edge.sandboxes.list({})) await node.edge.sandboxes.kill(id as SandboxId);
    assert.deepEqual(await endNode(node, directory), []);
  });

  const childrenOf = (result: ForkResult): CreatedSandbox[] =>
    result.children.map((child) => {
      if ('error' in child) assert.fail(JSON.stringify(child.error));
      return child.sandbox;
    });
  const fork = async (id: string, count = 1) =>
    childrenOf(await node.edge.sandboxes.fork(id as SandboxId, { count }, { signal: anyTime() }));
  /** Of the base memory images that sandboxes stand on. */
  const baseDigest = async () => {
    const hash = createHash('sha256');
    for (const base of await readdir(join(directory, 'bases')))
      hash.update(await readFile(join(directory, 'bases', base, 'memory.img')));
    return hash.digest('hex');
  };

  test('children have memory, files and unsynced writes of their source, and nothing that is written later', async () => {
    const source = await node.create({ metadata: { run: '7' }, env: { COLOUR: 'red' } });
    const before = await baseDigest();
    for (let count = 0; count < 3; count++) await node.ask(source.id, '/count');
    await node.ask(source.id, '/fill?2');
    const { blob } = await node.ask(source.id);
    const result = await node.edge.sandboxes.fork(
      source.id as SandboxId,
      { count: 2, metadata: { child: 'yes' } },
      { signal: anyTime() },
    );
    const [first, second] = childrenOf(result);
    assert.ok(first !== undefined && second !== undefined);
    assert.ok(result.timing.dirtyBytes > 2 * 2 ** 20 && result.timing.stoppedMs > 0);
    for (const child of [first, second]) {
      assert.deepEqual(child.metadata, { run: '7', child: 'yes' });
      assert.deepEqual(child.env, { COLOUR: 'red' });
      assert.deepEqual(child.parent, { kind: 'sandbox', id: source.id });
      assert.equal(child.start, 'forked');
      const said = await node.ask(child.id);
      assert.equal(said.counter, 3);
      assert.deepEqual(said.journal, ['3']);
      assert.equal(said.blob, blob);
    }
    await node.ask(source.id, '/count');
    await node.ask(first.id, '/count');
    await node.ask(first.id, '/count');
    assert.deepEqual([(await node.ask(source.id)).lines, (await node.ask(first.id)).lines], [4, 5]);
    assert.equal((await node.ask(second.id)).lines, 3);
    assert.equal(await baseDigest(), before, 'the base image stays as it is');
  });

  test('eleven generations continue one another, with memory, files and the base whole, on a disk that is folded', async () => {
    const before = await baseDigest();
    let parent: { readonly id: string } = await node.create();
    await node.ask(parent.id, '/fill?1');
    await node.run(parent.id, 'head -c 1000000 /dev/urandom > /root/first');
    const { blob } = await node.ask(parent.id);
    const file = await node.run(parent.id, 'sha256sum /root/first');
    const layersOf = async (id: string) =>
      (await readdir(join(directory, 'machines', id, 'layers')).catch(() => [])).length;
    const depths: number[] = [];
    for (let generation = 1; generation <= 11; generation++) {
      await node.ask(parent.id, `/count?${generation}`);
      const [child] = await fork(parent.id);
      assert.ok(child !== undefined);
      const said = await node.ask(child.id);
      assert.deepEqual([said.counter, said.lines, said.blob], [generation, generation, blob]);
      depths.push(await layersOf(child.id));
      await node.edge.sandboxes.kill(parent.id as SandboxId);
      parent = child;
    }
    assert.equal(await node.run(parent.id, 'sha256sum /root/first'), file);
    assert.equal(await node.run(parent.id, 'tail -n 1 /root/journal'), '11');
    assert.ok(Math.max(...depths) <= 9 && (depths.at(-1) ?? 0) < 9, `layers by generation: ${depths}`);
    assert.equal(await baseDigest(), before);
  });

  test('source and children share no random number, name or identity, and all have the right time', async () => {
    const source = await node.create();
    const all = [source, ...(await fork(source.id, 3))];
    const said = await Promise.all(all.map(({ id }) => node.ask(id)));
    for (const key of ['random', 'uuid', 'urandom', 'kernelUuid', 'hostname', 'machineId'] as const)
      assert.equal(new Set(said.map((one) => one[key])).size, all.length, key);
    for (const { now } of said) assert.ok(Math.abs(now - Date.now() / 1000) < 30);
    assert.equal(new Set(all.map(({ id }) => id)).size, all.length);
  });

  test('processes of the source go on in it and in its children, with their output', async () => {
    const source = await node.create();
    {
      using use = await node.edge.sandboxes.use(source.id as SandboxId, { signal: anyTime() });
      const argv = ['sh', '-c', 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); echo $i; sleep 0.05; done'];
      await use.channel.startProcess({ id: 'ticker', argv }, { signal: anyTime() });
    }
    const [child] = await fork(source.id);
    assert.ok(child !== undefined);
    for (const { id } of [source, child]) {
      using use = await node.edge.sandboxes.use(id as SandboxId, { signal: anyTime() });
      const before = await use.channel.processStatus('ticker', { signal: anyTime() });
      assert.equal(before.state, 'running');
      let bytes = before.stdoutBytes ?? 0;
      while (bytes <= (before.stdoutBytes ?? 0))
        bytes = (await use.channel.processStatus('ticker', { signal: anyTime() })).stdoutBytes ?? 0;
    }
  });

  test('what can not be forked says so: a killed one, and an unknown one', async () => {
    const source = await node.create();
    await node.edge.sandboxes.kill(source.id as SandboxId);
    await assert.rejects(fork(source.id), { code: 'sandbox_not_found' });
    await assert.rejects(fork('a'.repeat(20)), { code: 'sandbox_not_found' });
  });
});
