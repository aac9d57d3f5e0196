import assert from 'node:assert/strict';
import { appendFile, chmod, open, readdir, stat, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SandboxEvent, SandboxId, SandboxInfo } from '../../sdk/index.ts';
import {
  anyTime,
  endNode,
  makeDataDirectory,
  openNode,
  type SandboxNode,
  vmmsOf,
} from './testing/sandbox-node.ts';

/** Turns one byte of a file over; twice is as before. */
async function overwrite(path: string, position: number): Promise<void> {
  await using file = await open(path, 'r+');
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, position);
  byte[0] = ~(byte[0] ?? 0) & 0xff;
  await file.write(byte, 0, 1, position);
}

describe('the life of sandboxes with real guests', () => {
  let directory = '';
  let node: SandboxNode;
  before(async () => {
    directory = await makeDataDirectory();
    node = await openNode(directory, { step: (name) => onStep(name) });
  });
  let onStep = (_name: string): void => {};
  after(async () => {
    for (const { id } of await node.edge.sandboxes.list({})) await node.edge.sandboxes.kill(id as SandboxId);
    assert.deepEqual(
      (await endNode(node, directory)).filter(
        (leak) => !leak.startsWith('snapshots/') && !leak.startsWith('bases/'),
      ),
      [],
    );
  });

  const edge = () => node.edge.sandboxes;
  const signal = {
    get signal() {
      return anyTime();
    },
  };
  const idOf = ({ id }: SandboxInfo) => id as SandboxId;
  const eventsOf = async (id: SandboxId) => {
    const events: SandboxEvent[] = [];
    for await (const event of edge().events({ since: 0, follow: false, sandbox: id, ...signal }))
      events.push(event);
    return events;
  };

  test('ten rounds of pause and resume keep memory and files, and a paused one holds no VMM', async () => {
    const sandbox = await node.create({ env: { KEPT: 'yes' } });
    const id = idOf(sandbox);
    await node.ask(id, '/fill?1');
    await node.run(id, 'head -c 2000000 /dev/urandom > /root/file');
    const { blob } = await node.ask(id);
    const hash = await node.run(id, 'sha256sum /root/file');
    for (let round = 1; round <= 10; round++) {
      await node.ask(id, '/count');
      const before = (await vmmsOf(directory)).length;
      assert.equal((await edge().pause(id, signal)).state, 'paused');
      assert.ok((await vmmsOf(directory)).length <= before);
      await assert.rejects(node.ask(id), { code: 'conflict' });
      const resumed = await edge().resume(id, signal);
      assert.deepEqual([resumed.state, resumed.id, resumed.start], ['running', id, 'resumed']);
      const said = await node.ask(id);
      assert.deepEqual([said.counter, said.lines, said.blob], [round, round, blob]);
      assert.equal(await node.run(id, 'sha256sum /root/file'), hash);
    }
    const types = (await eventsOf(id)).map(({ type }) => type);
    assert.equal(types.filter((type) => type === 'paused').length, 10);
    assert.equal(types[0], 'created');
    await edge().kill(id);
  });

  test('running and paused sandboxes, their deadlines and tokens survive a restart of the edge', async () => {
    const running = await edge().create(
      node.origin,
      {
        deadlineMs: 600_000,
        onTimeout: 'kill',
        autoResume: false,
        metadata: { a: 'b' },
        env: {},
        secrets: {},
      },
      signal,
    );
    const paused = await node.create({ autoResume: true });
    await node.ask(running.id, '/count');
    await node.ask(paused.id, '/count');
    await edge().pause(idOf(paused), signal);
    const pids = await vmmsOf(directory);
    await node.edge.close({ deadlineMs: 5_000 });
    const left = await vmmsOf(directory);
    assert.equal(left.length, 1, 'the running one, and nothing else');
    assert.ok(pids.includes(left[0] ?? 0));
    node = await openNode(directory, { digest: node.origin.digest, step: (name) => onStep(name) });
    const found = await edge().get(idOf(running));
    assert.deepEqual(
      [found.state, found.metadata, found.deadlineAt],
      ['running', { a: 'b' }, running.deadlineAt],
    );
    assert.equal((await node.ask(running.id, '/count')).counter, 2);
    assert.equal(await edge().isToken(idOf(running), running.token), true);
    assert.equal(await edge().isToken(idOf(running), `${running.token.slice(1)}x`), false);
    assert.equal((await edge().get(idOf(paused))).state, 'paused');
    // A use wakes it, as it was asked for.
    assert.deepEqual((await node.ask(paused.id)).journal, ['1']);
    const forked = await edge().fork(idOf(running), { count: 1 }, signal);
    assert.ok('sandbox' in (forked.children[0] ?? {}), 'one that was taken over can be forked');
    for (const { id } of await edge().list({})) await edge().kill(id as SandboxId);
  });

  test('a snapshot makes new sandboxes, and its source goes back to it in place', async () => {
    const source = await node.create();
    const id = idOf(source);
    await node.ask(id, '/count');
    const first = await edge().snapshot(id, { name: 'first', isPinned: false }, signal);
    await node.ask(id, '/count');
    await node.run(id, 'echo later > /root/later');
    {
      using use = await edge().use(id, signal);
      await use.channel.startProcess({ id: 'sleeper', argv: ['sleep', '4321'] }, signal);
    }
    const second = await edge().snapshot(id, { isPinned: true }, signal);
    assert.deepEqual([first.parent, second.parent], [null, first.id]);
    await assert.rejects(edge().snapshot(id, { name: 'first', isPinned: false }, signal), {
      code: 'conflict',
    });
    const copy = await node.create({}, { kind: 'snapshot', snapshot: 'snapshot:first' });
    assert.deepEqual(copy.parent, { kind: 'snapshot', id: first.id });
    assert.equal((await node.ask(copy.id)).counter, 1);
    const back = await edge().rewind(id, 'first', signal);
    assert.deepEqual([back.id, back.basis, back.state], [id, first.id, 'running']);
    assert.deepEqual([(await node.ask(id)).counter, (await node.ask(id)).lines], [1, 1]);
    await assert.rejects(node.run(id, 'cat /root/later'));
    await edge().rewind(id, second.id, signal);
    assert.equal((await node.ask(id)).counter, 2);
    assert.equal(await node.run(id, 'cat /root/later'), 'later');
    await assert.rejects(edge().rewind(idOf(copy), first.id, signal), { code: 'conflict' });
    const difference = await edge().diff(first.id, second.id, signal);
    assert.ok(difference.files.some(({ path, change }) => path === '/root/later' && change === 'added'));
    assert.ok(difference.files.some(({ path, change }) => path === '/root/journal' && change === 'changed'));
    assert.deepEqual(
      difference.processes.map(({ command, change }) => [command, change]),
      [['sleep 4321', 'started']],
    );
    assert.ok(difference.files.length < 20, JSON.stringify(difference.files));
    await edge().removeSnapshot('first');
    assert.deepEqual(
      (await edge().snapshots({ sandbox: id })).map(({ parent }) => parent),
      [null],
      'children of a snapshot that goes move up',
    );
    await edge().kill(id);
    await edge().kill(idOf(copy));
    const again = await node.create({}, { kind: 'snapshot', snapshot: second.id });
    assert.equal((await node.ask(again.id)).counter, 2, 'a snapshot outlives its sandbox');
    await edge().removeSnapshot(second.id);
    await edge().kill(idOf(again));
  });

  test('a damaged layer is refused by its name, whichever it is, and the sandbox stays paused', async () => {
    const sandbox = await node.create();
    const id = idOf(sandbox);
    await edge().pause(id, signal);
    const [snapshot = ''] = await readdir(join(directory, 'snapshots'));
    for (const name of ['memory.delta', 'device.state', 'layer-0.qcow2']) {
      const path = join(directory, 'snapshots', snapshot, name);
      const { size } = await stat(path);
      await chmod(path, 0o644);
      await appendFile(path, 'x');
      await assert.rejects(edge().resume(id, signal), {
        code: 'snapshot_corrupt',
        message: new RegExp(name),
      });
      assert.equal((await edge().get(id)).state, 'paused');
      await truncate(path, size);
      await overwrite(path, Math.floor(size / 2));
      await assert.rejects(edge().resume(id, signal), {
        code: 'snapshot_corrupt',
        message: new RegExp(`${name} has a wrong checksum`),
      });
      await overwrite(path, Math.floor(size / 2));
    }
    await edge().resume(id, signal);
    await node.ask(id);
    await edge().kill(id);
  });

  test('a sandbox is killed in every state, and again', async () => {
    const states: string[] = [];
    for (const reach of [
      async () => {},
      async (id: SandboxId) => void (await edge().pause(id, signal)),
      async (id: SandboxId) =>
        void edge()
          .pause(id, signal)
          .catch(() => {}),
      async (id: SandboxId) =>
        void edge()
          .snapshot(id, { isPinned: false }, signal)
          .catch(() => {}),
      async (id: SandboxId) =>
        void edge()
          .fork(id, { count: 1 }, signal)
          .catch(() => {}),
      async (id: SandboxId) => {
        await edge().pause(id, signal);
        void edge()
          .resume(id, signal)
          .catch(() => {});
      },
    ]) {
      const sandbox = await node.create();
      const id = idOf(sandbox);
      await reach(id);
      states.push((await edge().get(id)).state);
      const [killed, again] = await Promise.all([edge().kill(id), edge().kill(id)]);
      assert.deepEqual([killed.state, again.state], ['ended', 'ended']);
      assert.deepEqual([killed.termination?.reason, killed.termination?.infra], ['killed', false]);
      await assert.rejects(edge().pause(id, signal), { code: 'sandbox_not_found' });
    }
    assert.ok(
      states.includes('paused') && states.includes('pausing') && states.includes('resuming'),
      `${states}`,
    );
    for (const { id } of await edge().list({})) await edge().kill(id as SandboxId);
  });

  test('a deadline ends or pauses what it was for, and one that was renewed does not', async () => {
    const [killed, paused, renewed] = await Promise.all([
      node.create({ deadlineMs: 1000 }),
      node.create({ deadlineMs: 1000, onTimeout: 'pause' }),
      node.create({ deadlineMs: 1000 }),
    ]);
    const later = await edge().setDeadline(idOf(renewed), 600_000, { onlyExtend: false });
    assert.ok(later.generation > renewed.generation);
    const same = await edge().setDeadline(idOf(renewed), 1000, { onlyExtend: true });
    assert.equal(same.deadlineAt, later.deadlineAt);
    for (const [one, state] of [
      [killed, 'ended'],
      [paused, 'paused'],
    ] as const)
      while ((await edge().get(idOf(one))).state !== state) await sleep(50);
    assert.equal((await edge().get(idOf(killed))).termination?.reason, 'deadline');
    assert.equal((await edge().get(idOf(renewed))).state, 'running');
    await edge().kill(idOf(renewed));
    await edge().kill(idOf(paused));
  });

  test('a deadline that is renewed while it pauses does not, up to the moment that the pause is written down', async () => {
    const sandbox = await node.create({ deadlineMs: 1000, onTimeout: 'pause' });
    const id = idOf(sandbox);
    const renewed = Promise.withResolvers<SandboxInfo>();
    onStep = (name) => {
      if (name !== 'pause.published') return;
      onStep = () => {};
      edge().setDeadline(id, 600_000, { onlyExtend: false }).then(renewed.resolve, renewed.reject);
    };
    assert.ok((await renewed.promise).generation > sandbox.generation);
    while (!(await eventsOf(id)).some(({ type }) => type === 'settled')) await sleep(20);
    assert.equal((await edge().get(id)).state, 'running');
    assert.equal((await node.ask(id, '/count')).counter, 1);
    await edge().kill(id);
  });

  test('a guest that panics ended by its own doing, a VMM that was killed did not', async () => {
    const [panics, lost] = await Promise.all([node.create(), node.create()]);
    void node.run(panics.id, 'echo 1 > /proc/sys/kernel/sysrq; echo c > /proc/sysrq-trigger').catch(() => {});
    const machine = (await edge().use(idOf(lost), signal)).machine;
    const row = (await node.edge.machines()).find(({ id }) => id === machine);
    assert.ok(row?.pid);
    process.kill(row.pid, 'SIGKILL');
    for (const one of [panics, lost]) while ((await edge().get(idOf(one))).state !== 'ended') await sleep(50);
    const verdicts = [await edge().get(idOf(panics)), await edge().get(idOf(lost))].map(({ termination }) => [
      termination?.reason,
      termination?.infra,
    ]);
    assert.deepEqual(verdicts, [
      ['guest_panic', false],
      ['vmm_lost', true],
    ]);
  });
});
