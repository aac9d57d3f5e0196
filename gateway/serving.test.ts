import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { pino } from 'pino';
import { type Clock, GatewayError, isGatewayError, systemClock } from '../sdk/index.ts';
import { createTemplateRegistry } from '../templates/index.ts';
import { singleEdge } from './placement.ts';
import { createServing, servedVersion } from './serving.ts';
import { publish } from './testing/harness.ts';
import { createStubEdge } from './testing/stub-edge.ts';

/** A clock that stands until it is told; timers run in the order of their time. */
function stoppedClock() {
  let now = 0;
  const timers = new Set<{ at: number; callback: () => void }>();
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    schedule(delayMs, callback) {
      const timer = { at: now + delayMs, callback };
      timers.add(timer);
      return () => void timers.delete(timer);
    },
  };
  return {
    clock,
    timers,
    /** Lets time pass and everything that follows from it happen. */
    async advance(ms: number) {
      now += ms;
      for (const timer of [...timers].sort((a, b) => a.at - b.at)) {
        if (timer.at > now || !timers.delete(timer)) continue;
        timer.callback();
      }
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

function setUp() {
  const registry = createTemplateRegistry(new DatabaseSync(':memory:'), { clock: systemClock });
  publish(registry, 'a', {});
  publish(registry, 'a', {});
  publish(registry, 'b', {});
  const edge = createStubEdge();
  const time = stoppedClock();
  const serving = createServing(
    {
      registry,
      placement: singleEdge(edge),
      clock: time.clock,
      log: pino({ level: 'silent' }),
      random: () => 1,
    },
    { pinned: 2, pinnedMs: 1000 },
  );
  const served = () => edge.declared.at(-1)?.map(({ template, version }) => `${template}@${version}`);
  const ensure = (name: string, version: string) =>
    serving.ensure(registry.resolve(name, version), { signal: new AbortController().signal });
  return { registry, edge, serving, served, ensure, ...time };
}

test('all aliased versions are declared, and no others', async () => {
  const { serving, served } = setUp();
  assert.equal(serving.isReconciled, false);
  await serving.sync();
  assert.deepEqual(served(), ['a@v2', 'b@v1']);
  assert.equal(serving.isReconciled, true);
});

test('an edge that refuses is asked again with growing pauses, until it takes the set', async () => {
  const { serving, edge, advance } = setUp();
  let refusals = 3;
  edge.behaviour.ready = async () => {
    if (refusals-- > 0) throw new GatewayError('edge_unreachable', 'no');
    return null;
  };
  serving.start();
  await advance(0);
  assert.equal(serving.lastError?.code, 'edge_unreachable');
  for (const [pauseMs, attempts] of [
    [99, 1],
    [1, 2],
    [199, 2],
    [1, 3],
  ] as const) {
    await advance(pauseMs);
    assert.equal(edge.declared.length, attempts);
  }
  await advance(400);
  assert.equal(serving.isReconciled, true);
  assert.equal(serving.lastError, null);
});

test('declarations never overlap, and those that wait share one', async () => {
  const { serving, edge } = setUp();
  const gates: PromiseWithResolvers<null>[] = [];
  edge.behaviour.ready = () => {
    const gate = Promise.withResolvers<null>();
    gates.push(gate);
    return gate.promise;
  };
  const syncs = [serving.sync(), serving.sync(), serving.sync()];
  await new Promise((resolve) => setImmediate(resolve));
  const second = serving.sync();
  assert.equal(edge.declared.length, 1);
  for (const gate of gates.splice(0)) gate.resolve(null);
  await Promise.all(syncs);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(edge.declared.length, 2);
  for (const gate of gates) gate.resolve(null);
  await second;
  assert.equal(edge.declared.length, 2);
});

test('a version that no alias names is served while it is called, and drains some time after', async () => {
  const { serving, served, ensure, edge, advance } = setUp();
  await serving.sync();
  await ensure('a', 'v1');
  assert.deepEqual(served(), ['a@v2', 'b@v1', 'a@v1']);
  await advance(600);
  await ensure('a', 'v1');
  await advance(400);
  assert.ok(served()?.includes('a@v1'), 'it was called in between');
  assert.equal(edge.declared.length, 2, 'a call of what is served declares nothing');
  await advance(600);
  assert.deepEqual(served(), ['a@v2', 'b@v1']);
});

test('of versions that no alias names only so many are kept, the latest called', async () => {
  const { serving, served, ensure, registry } = setUp();
  for (let index = 0; index < 3; index++) publish(registry, 'b', {});
  await serving.sync();
  for (const version of ['v1', 'v2', 'v3']) await ensure('b', version);
  assert.deepEqual(served()?.sort(), ['a@v2', 'b@v2', 'b@v3', 'b@v4']);
});

test('a version that can not be made ready is refused and forgotten', async () => {
  const { serving, served, ensure, edge } = setUp();
  await serving.sync();
  edge.behaviour.ready = async ({ version }) => (version === 'v1' ? 'no memory' : null);
  await assert.rejects(ensure('a', 'v1'), (error) => isGatewayError(error, 'version_unavailable'));
  await serving.sync();
  assert.deepEqual(served(), ['a@v2', 'b@v1']);
});

test('a caller that leaves does not wait for a version to become ready', async () => {
  const { serving, registry, edge } = setUp();
  await serving.sync();
  edge.behaviour.ready = () => new Promise(() => {});
  const abort = new AbortController();
  const waiting = serving.ensure(registry.resolve('a', 'v1'), { signal: abort.signal });
  abort.abort(new GatewayError('cancelled', 'gone'));
  await assert.rejects(waiting, (error) => isGatewayError(error, 'cancelled'));
});

test('a held version is served until every hold is gone, however often one is disposed', async () => {
  const { serving, served, registry } = setUp();
  const version = servedVersion(registry.resolve('a', 'v1'));
  const [first, second] = [serving.hold(version), serving.hold(version)];
  await serving.sync();
  assert.ok(served()?.includes('a@v1'));
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  await serving.sync();
  assert.ok(served()?.includes('a@v1'));
  second[Symbol.dispose]();
  await serving.sync();
  assert.deepEqual(served(), ['a@v2', 'b@v1']);
});

test('a version that is being made ready is callable at once: its edge knows it', async () => {
  const { serving, ensure, edge } = setUp();
  edge.behaviour.ready = () => new Promise(() => {});
  serving.start();
  await new Promise((resolve) => setImmediate(resolve));
  await ensure('b', 'v1');
});

test('disposing leaves no timer', async () => {
  const { serving, timers, ensure } = setUp();
  await serving.sync();
  await ensure('a', 'v1');
  serving.syncLater(500);
  assert.ok(timers.size > 0);
  serving[Symbol.dispose]();
  serving.syncLater(500);
  assert.equal(timers.size, 0);
  await assert.rejects(serving.sync(), (error) => isGatewayError(error, 'draining'));
});
