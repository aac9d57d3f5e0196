import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { access, mkdir, readdir, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { SandboxEvent, SandboxId, SandboxInfo, Termination } from '../../sdk/index.ts';
import type { ProcessStatus } from '../guest/index.ts';
import { anyTime, endNode, makeDataDirectory, openNode, type SandboxNode } from './testing/sandbox-node.ts';

const run = promisify(execFile);
const memoryGroups = '/sys/fs/cgroup/memory';

/** How things end, with real guests: whose doing it was, on record, and still so after a restart of the edge. */
describe('verdicts with real guests', () => {
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

  const edge = () => node.edge.sandboxes;
  const signal = { signal: anyTime() };
  const idOf = ({ id }: SandboxInfo) => id as SandboxId;

  async function events(id: SandboxId, type: SandboxEvent['type']): Promise<SandboxEvent[]> {
    const found: SandboxEvent[] = [];
    for await (const event of edge().events({ since: 0, follow: false, sandbox: id, ...signal }))
      if (event.type === type) found.push(event);
    return found;
  }
  async function start(id: SandboxId, process: string, line: string, timeoutMs?: number) {
    using use = await edge().use(id, signal);
    const env = { ...use.env };
    const spec = { id: process, argv: ['sh', '-c', line], env, user: 'root' };
    return await use.channel.startProcess(timeoutMs === undefined ? spec : { ...spec, timeoutMs }, signal);
  }
  /** As a caller hears it, and as the event says. */
  async function verdictOf(id: SandboxId, process: string): Promise<Termination> {
    using use = await edge().use(id, signal);
    const { termination } = await use.channel.waitProcess(process, signal);
    assert.ok(termination);
    for (;;) {
      const event = (await events(id, 'process_ended')).find(({ data }) => data.process === process);
      if (event === undefined) {
        await sleep(20);
        continue;
      }
      assert.deepEqual(event.data.termination, termination);
      return termination;
    }
  }
  const ended = async (id: SandboxId): Promise<Termination> => {
    for (;;) {
      const { termination } = await edge().get(id);
      if (termination !== null) {
        const [event] = await events(id, 'ended');
        assert.deepEqual(event?.data.termination, termination);
        return termination;
      }
      await sleep(20);
    }
  };

  test('each end of a process has its verdict, none of which is ours', async () => {
    const id = idOf(await node.create());
    await start(id, 'good', 'true');
    await start(id, 'bad', 'echo because >&2; exit 3');
    await start(id, 'term', 'kill -TERM $$');
    await start(id, 'slow', 'setsid sh -c "sleep 1000; :" & sleep 1000', 500);
    await start(id, 'hungry', 'exec python3 -c "x = []\nwhile 1: x.append(bytearray(1 << 22))"');
    const verdicts = await Promise.all(
      ['good', 'bad', 'term', 'slow', 'hungry'].map((one) => verdictOf(id, one)),
    );
    assert.deepEqual(
      verdicts.map(({ reason }) => reason),
      ['exited', 'exited', 'signal', 'deadline', 'out_of_memory'],
    );
    assert.ok(verdicts.every(({ infra }) => !infra));
    assert.match(verdicts[1]?.evidence ?? '', /exit code 3\nbecause/);
    assert.equal(
      await node.run(id, 'cat /proc/[0-9]*/comm | grep -c sleep || true'),
      '0',
      'the timeout took what had left its session',
    );
    await start(id, 'full', 'fallocate -l 2G /root/big; echo more > /root/more || exit 1');
    const full = await verdictOf(id, 'full');
    assert.deepEqual([full.reason, full.infra], ['disk_full', false]);
    assert.match(full.evidence, /bytes of disk are free/);
    const lasting = await start(id, 'lasting', 'sleep 1000');
    await edge().kill(id);
    const last = (await events(id, 'process_ended')).find(({ data }) => data.pid === lasting.pid);
    assert.equal((last?.data.termination as Termination | undefined)?.reason, 'killed');
    await assert.rejects(node.run(id, 'true'), {
      code: 'sandbox_not_found',
      message: /ended: killed/,
      details: { component: 'edge', extra: { reason: 'killed', infra: false } },
    });
  });

  test('env and secrets, a process that ended unseen, and what could not be brought back survive a restart', async () => {
    const secrets = { TOKEN: 'hush-hush' };
    const [running, paused, lost, gone] = await Promise.all([
      node.create({ env: { A: '1' }, secrets }),
      node.create({ env: { A: '2' }, secrets, autoResume: true }),
      node.create(),
      node.create(),
    ]);
    await start(idOf(running), 'unseen', 'sleep 4; exit 9');
    const still = await start(idOf(paused), 'asleep', 'sleep 3; exit 8');
    const before = new Set(await readdir(join(directory, 'snapshots')));
    await edge().pause(idOf(lost), signal);
    const [snapshot = ''] = (await readdir(join(directory, 'snapshots'))).filter((one) => !before.has(one));
    await edge().pause(idOf(paused), signal);
    const row = (await node.edge.machines()).find(({ id }) => id === gone.id);
    await node.edge.close({ deadlineMs: 5_000 });
    const { stdout } = await run('grep', ['-rlc', 'hush-hush', join(directory, 'sandboxes.db')]).catch(
      () => ({
        stdout: '',
      }),
    );
    assert.equal(stdout, '', 'secrets are not in the database');
    await rename(join(directory, 'snapshots', snapshot), join(directory, 'taken-away'));
    process.kill(row?.pid ?? 0, 'SIGKILL');
    await sleep(4_000);
    node = await openNode(directory, { digest: node.origin.digest });

    assert.deepEqual(
      await Promise.all([idOf(lost), idOf(gone)].map(async (id) => (await ended(id)).reason)),
      ['restore_failed', 'edge_lost'],
    );
    assert.ok((await ended(idOf(lost))).infra && (await ended(idOf(gone))).infra);
    const unseen = await verdictOf(idOf(running), 'unseen');
    assert.deepEqual([unseen.reason, unseen.evidence], ['exited', 'exit code 9']);
    let env: ProcessStatus | undefined;
    for (const [one, value] of [
      [running, '1'],
      [paused, '2'],
    ] as const) {
      env = await start(idOf(one), 'env', 'echo "$A $TOKEN"');
      using use = await edge().use(idOf(one), signal);
      const output = await use.channel.processOutput('env', 'stdout', { follow: true, ...signal });
      assert.equal(Buffer.concat(await output.toArray()).toString(), `${value} hush-hush\n`);
    }
    // It went on where it was paused, under the same name.
    const asleep = await verdictOf(idOf(paused), 'asleep');
    assert.equal(asleep.evidence, 'exit code 8');
    assert.deepEqual(
      (await events(idOf(paused), 'process_ended')).map(({ data }) => [data.process, data.pid]).sort(),
      [
        ['asleep', still.pid],
        ['env', env?.pid],
      ],
    );
    const { children } = await edge().fork(idOf(running), { count: 1 }, signal);
    const [child] = children;
    assert.ok(child !== undefined && 'sandbox' in child);
    const childId = child.sandbox.id as SandboxId;
    await start(childId, 'own', 'echo "$A$TOKEN"; exit 5');
    assert.equal((await verdictOf(childId, 'own')).evidence, 'exit code 5');
    assert.deepEqual(
      (await events(childId, 'process_ended')).map(({ data }) => data.process),
      ['own'],
      'what ended in the source ended there',
    );
    await rm(join(directory, 'taken-away'), { recursive: true });
    await Promise.all([running.id, paused.id, childId].map((id) => edge().kill(id as SandboxId)));
  });

  test('a node under pressure for memory is to blame when its kernel kills a VMM', async (context) => {
    const isAllowed = await access(memoryGroups, constants.W_OK).then(
      () => true,
      () => false,
    );
    if (!isAllowed) return context.skip('no memory control groups here');
    const sandbox = await node.create();
    const row = (await node.edge.machines()).find(({ id }) => id === sandbox.id);
    const group = join(memoryGroups, `snapgate-test-${process.pid}`);
    await mkdir(group);
    try {
      await writeFile(join(group, 'memory.limit_in_bytes'), String(8 << 20));
      await writeFile(join(group, 'cgroup.procs'), String(row?.pid));
      // A sweep has taken note of the kills before.
      await sleep(1_500);
      void node.ask(sandbox.id, '/fill?100').catch(() => {});
      const verdict = await ended(idOf(sandbox));
      assert.deepEqual([verdict.reason, verdict.infra], ['node_pressure', true]);
      assert.match(verdict.evidence, /SIGKILL/);
    } finally {
      while ((await rmdir(group).catch((error: NodeJS.ErrnoException) => error.code)) === 'EBUSY')
        await sleep(50);
    }
  });
});
