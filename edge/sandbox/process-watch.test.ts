import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';
import { startTestAgent, type TestAgent } from '../guest/test-agent.ts';
import { type EndedProcess, type Past, ProcessWatch, processKey } from './process-watch.ts';

let agent: TestAgent;
const channels: SandboxChannel[] = [];
before(async () => {
  agent = await startTestAgent();
});
after(async () => {
  for (const channel of channels) channel.close();
  await agent[Symbol.asyncDispose]();
});

const soon = () => ({ signal: AbortSignal.timeout(20_000) });

async function watched(past: Past = { kind: 'copied', onEndedBefore: () => {} }) {
  const channel = await agent.connect();
  channels.push(channel);
  const ended: EndedProcess[] = [];
  const onEnded = (process: EndedProcess) => void ended.push(process);
  const watch = new ProcessWatch(channel, { clock: systemClock, onEnded }, past);
  const sh = (id: string, line: string, more = {}) =>
    channel.startProcess({ id, argv: ['sh', '-c', line], ...more }, soon());
  const until = async (count: number) => {
    while (ended.length < count) await sleep(5);
  };
  const dispose = () => {
    watch[Symbol.dispose]();
    channel.close();
  };
  return { channel, watch, ended, sh, until, [Symbol.dispose]: dispose };
}

const verdicts = (ended: readonly EndedProcess[]) =>
  Object.fromEntries(ended.map(({ id, termination }) => [id, termination.reason]));

describe('the watch over processes', () => {
  test('tells how each one ended although nobody waits, and answers agree with it', async () => {
    using w = await watched();
    await w.sh('good', 'true');
    await w.sh('bad', 'echo the reason >&2; exit 3');
    await w.sh('killed', 'kill -TERM $$');
    await w.sh('slow', 'sleep 100', { timeoutMs: 50 });
    await w.sh('removed', 'sleep 100');
    await w.channel.deleteProcess('removed', soon());
    await w.until(5);
    assert.deepEqual(verdicts(w.ended), {
      good: 'exited',
      bad: 'exited',
      killed: 'signal',
      slow: 'deadline',
      removed: 'killed',
    });
    const bad = w.ended.find(({ id }) => id === 'bad');
    assert.match(bad?.termination.evidence ?? '', /exit code 3\nthe reason/);
    assert.deepEqual((await w.channel.waitProcess('bad', soon())).termination, bad?.termination);
    assert.deepEqual((await w.channel.processStatus('bad', soon())).termination, bad?.termination);
    const listed = await w.channel.listProcesses(soon());
    assert.deepEqual(listed.find(({ id }) => id === 'bad')?.termination, bad?.termination);
  });

  test('knows what runs, and says nothing of what ended once it is over', async () => {
    using w = await watched();
    const { pid } = await w.sh('lasting', 'sleep 100');
    assert.deepEqual(w.watch.running, [{ id: 'lasting', pid }]);
    w.watch[Symbol.dispose]();
    await w.channel.signalProcess('lasting', 9, soon());
    await w.channel.waitProcess('lasting', soon());
    assert.deepEqual(w.ended, []);
  });

  test('finds what ended while nobody watched, but for what has been told', async () => {
    using w = await watched();
    w.watch[Symbol.dispose]();
    const told = await w.sh('told', 'true');
    const missed = await w.sh('missed', 'exit 4');
    await w.sh('running', 'sleep 0.3');
    for (const { id } of [told, missed]) await w.channel.waitProcess(id, soon());
    const others = (await w.channel.listProcesses(soon())).filter(
      ({ id }) => !['missed', 'running'].includes(id),
    );
    using next = await watched({ kind: 'missed', told: new Set(others.map(processKey)) });
    await next.until(2);
    assert.deepEqual(
      next.ended.map(({ id, exitCode }) => [id, exitCode]),
      [
        ['missed', 4],
        ['running', 0],
      ],
    );
  });

  test('takes what ended before a copy was made for nobody’s', async () => {
    const before = Promise.withResolvers<readonly string[]>();
    using first = await watched();
    const old = await first.sh('old', 'true');
    await first.until(1);
    await first.sh('goes-on', 'sleep 1');
    first.watch[Symbol.dispose]();
    using w = await watched({ kind: 'copied', onEndedBefore: before.resolve });
    assert.ok((await before.promise).includes(processKey(old)));
    await w.until(1);
    assert.deepEqual(verdicts(w.ended), { 'goes-on': 'exited' });
  });

  test('keeps up with more processes than it waits for at once', async () => {
    using w = await watched();
    for (let i = 0; i < 60; i++) await w.sh(`many-${i}`, 'sleep 1000');
    await w.sh('late', 'exit 1');
    await w.until(1);
    assert.equal(w.ended[0]?.id, 'late');
    for (let i = 0; i < 60; i++) await w.channel.deleteProcess(`many-${i}`, soon());
    await w.until(61);
  });
});
