import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import {
  type CreatedSandbox,
  type CreateSandboxRequest,
  createSandboxRequestSchema,
  GatewayError,
  type SandboxEvent,
  type SandboxId,
  type SandboxInfo,
  type SnapshotInfo,
} from '../../sdk/index.ts';
import type { SandboxChannel } from '../guest/index.ts';
import { all, digest, fails, machine, type OpenSandboxes, scriptedSandboxes } from './contract-peers.ts';
import type { SandboxUse } from './sandbox-port.ts';

const id = 'node1111111111111111' as SandboxId;
/** A sandbox with everything that could get lost on the way. */
export const sampleSandbox: SandboxInfo = {
  ...{ id, node: 'node', template: 'a', version: 'v1', digest, state: 'running', createdAt: 1, startedAt: 2 },
  ...{ deadlineAt: 3, generation: 4, onTimeout: 'pause', autoResume: true, metadata: { a: 'b' }, env: {} },
  ...{ vcpus: 1, memoryMiB: 2, diskMiB: 3, parent: null, basis: null, start: 'ready' },
  termination: { reason: 'vmm_lost', infra: true, evidence: 'e', at: 5 },
};
const info = sampleSandbox;
const created: CreatedSandbox = { ...info, token: 't' };
const snapshot: SnapshotInfo = {
  ...{ id: 'node2222222222222222', name: 'n', sandbox: id, template: 'a', version: 'v1', digest },
  ...{ parent: null, createdAt: 1, isPinned: true, bytes: 7 },
};
const timing = { stoppedMs: 1.5, stateMs: 1, pagesMs: 1, diskMs: 1, dirtyBytes: 4096 };
const forked = { children: [{ sandbox: created }, { error: { x: 1 } }], notInherited: ['y'], timing };
const diff = { files: [{ path: '/x', change: 'added' as const }], processes: [] };
const network = { hasCard: true, own: null, template: { '*': true }, refusals: [] };
const event: SandboxEvent = { sequence: 1, at: 2, sandbox: id, type: 'ended', data: { termination: 1 } };
const never = () => new AbortController().signal;

/** What is asked and answered about sandboxes; streams of events; uses, and who lets go of them. */
export function testSandboxes(open: OpenSandboxes): void {
  test('every question arrives as it was asked, and its answer as it was given', async () => {
    const signal = never();
    const origin = { kind: 'version', digest, template: 'a', version: 'v1' } as const;
    const request: CreateSandboxRequest = createSandboxRequestSchema.parse({ secrets: { A: 'b' } });
    const choice = { kind: 'native', rules: { '*': false } } as const;
    const filter = { states: ['paused'], template: 'a', metadata: { x: 'y' } } as const;
    const rows: [string, readonly unknown[], unknown][] = [
      ['create', [origin, request, { signal, network: choice }], created],
      ['create', [{ kind: 'snapshot', snapshot: 'snapshot:x' }, request, { signal }], created],
      ['get', [id], info],
      ['list', [filter], [info]],
      ['list', [{}], []],
      ['setDeadline', [id, 5, { onlyExtend: true }], info],
      ['kill', [id], info],
      ['pause', [id, { signal }], info],
      ['resume', [id, { signal, deadlineMs: 9 }], created],
      ['resume', [id, { signal }], created],
      ['fork', [id, { count: 2, metadata: {} }, { signal }], forked],
      ['snapshot', [id, { name: 'n', isPinned: true }, { signal }], snapshot],
      ['rewind', [id, 'n', { signal }], info],
      ['snapshots', [{ sandbox: id }], [snapshot]],
      ['removeSnapshot', ['n'], undefined],
      ['pinSnapshot', ['n', false], snapshot],
      ['diff', ['a', 'b', { signal }], diff],
      ['network', [id], network],
      ['setNetwork', [id, choice], info],
      ['setNetwork', [id, null], info],
      ['isToken', [id, 't'], true],
    ];
    const asked: unknown[] = [];
    const answers: unknown[] = [];
    const methods = Object.fromEntries(
      rows.map(([name]) => [
        name,
        async (...args: unknown[]) => {
          asked.push(withoutSignals(args));
          return answers.shift();
        },
      ]),
    );
    await using pair = await open(scriptedSandboxes(methods));
    const client = pair.client as unknown as Record<
      string,
      (...args: readonly unknown[]) => Promise<unknown>
    >;
    for (const [name, args, answer] of rows) {
      answers.push(answer);
      assert.deepEqual(await client[name]?.(...args), answer, name);
      assert.deepEqual(asked.pop(), withoutSignals(args), name);
    }
  });

  test('a refusal keeps its code and what it says beside', async () => {
    const refuse = async () => {
      throw new GatewayError('sandbox_not_found', 'it has ended', {
        component: 'edge',
        extra: { reason: 'vmm_lost', infra: true },
      });
    };
    await using pair = await open(scriptedSandboxes({ get: refuse, use: refuse, create: refuse }));
    for (const work of [
      pair.client.get(id),
      pair.client.use(id, { signal: never() }),
      pair.client.create({ kind: 'snapshot', snapshot: 's' }, createSandboxRequestSchema.parse({}), {
        signal: never(),
      }),
    ]) {
      const { code, message, details } = await fails(work);
      assert.deepEqual([code, message], ['sandbox_not_found', 'it has ended']);
      assert.deepEqual(details.extra, { reason: 'vmm_lost', infra: true });
    }
  });

  test('whoever gives up waiting is heard at the edge', async () => {
    const seen = Promise.withResolvers<AbortSignal>();
    const wait = (_id: unknown, { signal }: { readonly signal: AbortSignal }) => {
      seen.resolve(signal);
      return new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    };
    for (const method of ['pause', 'use'] as const) {
      await using pair = await open(scriptedSandboxes({ [method]: wait }));
      const stop = new AbortController();
      const failed = fails(pair.client[method](id, { signal: stop.signal }));
      const signal = await seen.promise;
      stop.abort(new GatewayError('cancelled', 'gone'));
      if (!signal.aborted) await once(signal, 'abort');
      assert.equal((await failed).code, 'cancelled');
    }
  });

  test('events come as they happen, until nobody listens', async () => {
    const ended = Promise.withResolvers<void>();
    let asked: unknown;
    const edge = scriptedSandboxes({
      async *events({ signal, ...query }) {
        asked = query;
        yield event;
        yield { ...event, sequence: 2 };
        if (query.follow && !signal.aborted) await once(signal, 'abort');
        ended.resolve();
      },
    });
    await using pair = await open(edge);
    const query = { since: 0, sandbox: id };
    const history = await all(pair.client.events({ ...query, follow: false, signal: never() }));
    assert.deepEqual(history, [event, { ...event, sequence: 2 }]);
    const stop = new AbortController();
    const live = pair.client.events({ ...query, follow: true, signal: stop.signal })[Symbol.asyncIterator]();
    assert.equal((await live.next()).value.sequence, 1);
    assert.deepEqual(asked, { ...query, follow: true });
    stop.abort(new GatewayError('cancelled', 'gone'));
    await ended.promise;
    await Promise.allSettled([live.next(), live.return?.()]);
  });

  test('a use is held until it is let go, and put out with the reason', async () => {
    let released = Promise.withResolvers<void>();
    const evict = new AbortController();
    const edge = scriptedSandboxes({
      use: async () => ({
        ...{ machine, sandbox: info, env: { A: 'b' }, signal: evict.signal },
        channel: { closed: new Promise<void>(() => {}) } as unknown as SandboxChannel,
        tunnel: () => Promise.reject(new Error('not part of this test')),
        [Symbol.dispose]: () => released.resolve(),
      }),
    });
    await using pair = await open(edge);
    let isReleased = false;
    void released.promise.then(() => {
      isReleased = true;
    });
    const use: SandboxUse = await pair.client.use(id, { signal: AbortSignal.timeout(10_000) });
    assert.deepEqual([use.machine, use.sandbox, use.env], [machine, info, { A: 'b' }]);
    await pair.client.use(id, { signal: never() }).then((other) => other[Symbol.dispose]());
    await released.promise;
    isReleased = false;
    released = Promise.withResolvers();
    assert.equal(use.signal.aborted, false, 'another one let go, not this one');
    use[Symbol.dispose]();
    use[Symbol.dispose]();
    await released.promise;
    const put = await pair.client.use(id, { signal: never() });
    evict.abort(
      new GatewayError('version_unavailable', 'it is being paused', {
        component: 'edge',
        retryAfterSeconds: 1,
      }),
    );
    if (!put.signal.aborted) await once(put.signal, 'abort');
    const { code, details } = put.signal.reason as GatewayError;
    assert.deepEqual([code, details.retryAfterSeconds], ['version_unavailable', 1]);
    put[Symbol.dispose]();
    assert.equal(isReleased, false);
  });
}

/** Signals are other objects on the other side. */
function withoutSignals(args: readonly unknown[]): unknown[] {
  return args.map((arg) => {
    if (typeof arg !== 'object' || arg === null || !('signal' in arg)) return arg;
    const { signal: _, ...rest } = arg;
    return rest;
  });
}
