/**
 * What every `EdgeClient` must do, whatever is between it and the edge. Run by the in-process pair, which is the edge itself,
 * and by each transport. The suite plays the edge.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { duplexPair, PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import {
  GatewayError,
  isGatewayError,
  type MachineId,
  type TemplateName,
  type VersionDigest,
} from '../../sdk/index.ts';
import type { BuildEvent, EdgeClient, InvokeMeta, InvokeRequest, InvokeResponse } from './port.ts';

/** A client that reaches the given edge. Disposing leaves nothing behind. */
export interface EdgePair extends AsyncDisposable {
  readonly client: EdgeClient;
}

const digest = `sha256:${'ab'.repeat(32)}` as VersionDigest;
const machine = 'node0000000000000000' as MachineId;
const meta: InvokeMeta = {
  machine,
  digest,
  start: 'ready',
  timing: { queueMs: 1.5, restoreMs: 0, execMs: 2 },
};
const never = () => new Promise<never>(() => {});

const request = (changes: Partial<InvokeRequest> = {}): InvokeRequest => ({
  requestId: 'r1',
  digest,
  method: 'POST',
  target: '/a%2Fb?c',
  rawHeaders: ['Host', 'a', 'X-B', '1', 'x-b', '\u00e9'],
  body: null,
  timeoutMs: 1000,
  signal: new AbortController().signal,
  ...changes,
});

const response = (body: Readable, changes: Partial<InvokeResponse> = {}): InvokeResponse => ({
  status: 200,
  rawHeaders: ['X-A', '1', 'x-a', '2'],
  body,
  trailers: () => [],
  meta,
  ...changes,
});

const bytes = (...parts: (string | Buffer)[]) =>
  Readable.from(
    parts.map((part) => Buffer.from(part)),
    { objectMode: false },
  );

/** An edge that can only do what `parts` say. */
function scripted(parts: Partial<EdgeClient>): EdgeClient {
  const refuse = () => {
    throw new GatewayError('internal', 'not part of this test', { component: 'edge' });
  };
  const methods = [
    'node',
    'invoke',
    'upgrade',
    'build',
    'setServing',
    'removeVersion',
    'machines',
    'pools',
    'logs',
    'metrics',
  ];
  return {
    ...(Object.fromEntries(methods.map((name) => [name, refuse])) as unknown as EdgeClient),
    ...parts,
  };
}

async function fails(promise: Promise<unknown>): Promise<GatewayError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof GatewayError, String(error));
    return error;
  }
  throw new Error('it did not fail');
}

async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const result: T[] = [];
  for await (const value of values) result.push(value);
  return result;
}

/** Registers the suite. @param open joins a client to an edge */
export function describeEdgeClient(name: string, open: (edge: EdgeClient) => Promise<EdgePair>): void {
  describe(name, () => {
    test('a call arrives as it was made, and its answer as it was given', async () => {
      let seen: InvokeRequest | undefined;
      const edge = scripted({
        invoke: async (call) => {
          seen = call;
          return response(bytes('answer'), { status: 207, trailers: () => ['x-sum', '1'] });
        },
      });
      await using pair = await open(edge);
      const answer = await pair.client.invoke(request({ session: 's1' }));
      assert.equal(answer.status, 207);
      assert.deepEqual(answer.rawHeaders, ['X-A', '1', 'x-a', '2']);
      assert.deepEqual(answer.meta, meta);
      assert.equal(await text(answer.body), 'answer');
      assert.deepEqual(answer.trailers(), ['x-sum', '1']);
      const { body, signal: _signal, ...rest } = seen!;
      const { body: _body, signal: _own, ...made } = request({ session: 's1' });
      assert.equal(body, null);
      assert.deepEqual(rest, made);
    });

    test('bodies of some megabytes go through whole, both ways', async () => {
      const up = Buffer.alloc(5_000_000, 'up');
      const down = Buffer.alloc(7_000_000, 'down');
      let received = '';
      const edge = scripted({
        invoke: async (call) => {
          received = await text(call.body!);
          return response(bytes(down));
        },
      });
      await using pair = await open(edge);
      const answer = await pair.client.invoke(request({ body: bytes(up) }));
      assert.equal(await text(answer.body), down.toString());
      assert.equal(received, up.toString());
    });

    test('chunks pass at once, in both directions at the same time', async () => {
      await using pair = await open(
        scripted({ invoke: async (call) => response(call.body!.pipe(new PassThrough())) }),
      );
      const body = new PassThrough();
      const answer = await pair.client.invoke(request({ body }));
      for (const word of ['one', 'two', 'three']) {
        body.write(word);
        const [chunk] = await once(answer.body, 'data');
        assert.equal(String(chunk), word);
      }
      body.end();
      await once(answer.body, 'end');
    });

    test('an empty body is not the same as none', async () => {
      const edge = scripted({
        invoke: async (call) =>
          response(bytes(call.body === null ? 'none' : `empty${await text(call.body)}`)),
      });
      await using pair = await open(edge);
      assert.equal(await text((await pair.client.invoke(request())).body), 'none');
      assert.equal(await text((await pair.client.invoke(request({ body: bytes() }))).body), 'empty');
    });

    test('an error keeps its code, message and details', async () => {
      const edge = scripted({
        invoke: async () => {
          throw new GatewayError('queue_full', 'too many wait', {
            component: 'pool',
            retryAfterSeconds: 3,
            extra: { limit: 64 },
            cause: new Error('secret'),
          });
        },
      });
      await using pair = await open(edge);
      const error = await fails(pair.client.invoke(request()));
      assert.deepEqual([error.code, error.message], ['queue_full', 'too many wait']);
      const { component, retryAfterSeconds, extra } = error.details;
      assert.deepEqual(
        { component, retryAfterSeconds, extra },
        { component: 'pool', retryAfterSeconds: 3, extra: { limit: 64 } },
      );
    });

    test('an answer that dies midway errors, and does not end', async () => {
      const body = new Readable({ read() {} });
      await using pair = await open(scripted({ invoke: async () => response(body) }));
      const answer = await pair.client.invoke(request());
      body.push('half');
      await once(answer.body, 'data');
      const failed = fails(text(answer.body));
      body.destroy(new GatewayError('guest_unreachable', 'the machine is gone', { component: 'guest' }));
      assert.equal((await failed).code, 'guest_unreachable');
    });

    test('an abort reaches the edge before it has answered', async () => {
      const called = Promise.withResolvers<AbortSignal>();
      const edge = scripted({
        invoke: (call) => {
          called.resolve(call.signal);
          return new Promise((_, reject) =>
            call.signal.addEventListener('abort', () => reject(call.signal.reason)),
          );
        },
      });
      await using pair = await open(edge);
      const abort = new AbortController();
      const failed = fails(pair.client.invoke(request({ signal: abort.signal })));
      const signal = await called.promise;
      abort.abort(new GatewayError('cancelled', 'the client went away'));
      if (!signal.aborted) await once(signal, 'abort');
      assert.equal((await failed).code, 'cancelled');
    });

    test('destroying the body of an answer ends the function', async () => {
      const body = new Readable({ read() {} });
      await using pair = await open(scripted({ invoke: async () => response(body) }));
      const answer = await pair.client.invoke(request());
      body.push('first');
      await once(answer.body, 'data');
      const closed = once(body, 'close');
      answer.body.destroy();
      await closed;
    });

    test('an edge that has had enough of a body says so by destroying it, and still answers', async () => {
      const edge = scripted({
        invoke: async (call) => {
          await once(call.body!, 'readable');
          call.body!.destroy();
          return response(bytes('enough'));
        },
      });
      await using pair = await open(edge);
      const body = new Readable({ read: () => void body.push(Buffer.alloc(16_384)) });
      const closed = once(body, 'close');
      const answer = await pair.client.invoke(request({ body }));
      assert.equal(await text(answer.body), 'enough');
      await closed;
    });

    test('a request body that breaks off does not end as if it were whole', async () => {
      const called = Promise.withResolvers<void>();
      const outcome = Promise.withResolvers<string>();
      const edge = scripted({
        invoke: async (call) => {
          call.body!.on('end', () => outcome.resolve('ended')).on('close', () => outcome.resolve('closed'));
          call.body!.on('error', () => {}).once('data', () => called.resolve());
          return never();
        },
      });
      await using pair = await open(edge);
      const body = new PassThrough();
      const abort = new AbortController();
      const settled = pair.client.invoke(request({ body, signal: abort.signal })).catch(() => {});
      body.on('error', () => {}).write('part');
      await called.promise;
      body.destroy(new GatewayError('body_too_large', 'too much'));
      assert.equal(await outcome.promise, 'closed');
      abort.abort(new GatewayError('cancelled', 'gone'));
      void settled;
    });

    test('a reader that stops stops the function', async () => {
      let made = 0;
      const body = new Readable({
        read() {
          made += 1;
          this.push(Buffer.alloc(64 * 1024));
        },
      });
      await using pair = await open(scripted({ invoke: async () => response(body) }));
      const answer = await pair.client.invoke(request());
      await once(answer.body, 'readable');
      // Time in which a peer that reads ahead without bound would.
      await new Promise((resolve) => setTimeout(resolve, 100));
      assert.ok(made < 512, `${made} chunks were made for a reader that stopped`);
      answer.body.destroy();
    });

    test('an upgrade joins both ends, bytes in both directions, and a close crosses', async () => {
      const [near, far] = duplexPair();
      const edge = scripted({
        upgrade: async (call) => {
          assert.equal(call.target, '/a%2Fb?c');
          return { isUpgraded: true, status: 101, rawHeaders: ['Upgrade', 'echo'], socket: near, meta };
        },
      });
      await using pair = await open(edge);
      const answer = await pair.client.upgrade(request({ method: 'GET' }));
      assert.ok(answer.isUpgraded);
      assert.deepEqual([answer.status, answer.rawHeaders, answer.meta], [101, ['Upgrade', 'echo'], meta]);
      answer.socket.write('ping');
      assert.equal(String((await once(far, 'data'))[0]), 'ping');
      far.write('pong');
      assert.equal(String((await once(answer.socket, 'data'))[0]), 'pong');
      const closed = once(near, 'close');
      answer.socket.destroy();
      await closed;
    });

    test('a caller of a tunnel that has said all can still listen', async () => {
      const [near, far] = duplexPair();
      const edge = scripted({
        upgrade: async () => ({ isUpgraded: true, status: 101, rawHeaders: [], socket: near, meta }),
      });
      await using pair = await open(edge);
      const answer = await pair.client.upgrade(request({ method: 'GET' }));
      assert.ok(answer.isUpgraded);
      answer.socket.end('question');
      assert.equal(await text(far), 'question');
      far.end('answer');
      assert.equal(await text(answer.socket), 'answer');
    });

    test('what a function says last before it closes a tunnel still arrives', async () => {
      const [near, far] = duplexPair();
      const edge = scripted({
        upgrade: async () => ({ isUpgraded: true, status: 101, rawHeaders: [], socket: near, meta }),
      });
      await using pair = await open(edge);
      const answer = await pair.client.upgrade(request({ method: 'GET' }));
      assert.ok(answer.isUpgraded);
      far.end('bye');
      assert.equal(await text(answer.socket), 'bye');
      answer.socket.destroy();
    });

    test('a refused upgrade is an answer like any other', async () => {
      const edge = scripted({
        upgrade: async () => ({ isUpgraded: false, ...response(bytes('no'), { status: 426 }) }),
      });
      await using pair = await open(edge);
      const answer = await pair.client.upgrade(request({ method: 'GET' }));
      assert.ok(!answer.isUpgraded);
      assert.equal(answer.status, 426);
      assert.equal(await text(answer.body), 'no');
    });

    test('an upgrade that fails or is aborted says why', async () => {
      const called = Promise.withResolvers<AbortSignal>();
      let isFailing = true;
      const edge = scripted({
        upgrade: async (call) => {
          if (isFailing) throw new GatewayError('draining', 'the node stops', { component: 'edge' });
          called.resolve(call.signal);
          return new Promise((_, reject) =>
            call.signal.addEventListener('abort', () => reject(call.signal.reason)),
          );
        },
      });
      await using pair = await open(edge);
      assert.equal((await fails(pair.client.upgrade(request()))).code, 'draining');
      isFailing = false;
      const abort = new AbortController();
      const failed = fails(pair.client.upgrade(request({ signal: abort.signal })));
      const signal = await called.promise;
      abort.abort(new GatewayError('cancelled', 'gone'));
      if (!signal.aborted) await once(signal, 'abort');
      assert.equal((await failed).code, 'cancelled');
    });

    test('a build reads its archive, tells its progress and ends with the version', async () => {
      const definition = { name: 'x', nested: { list: [1, 'two'] } };
      const built: BuildEvent = {
        type: 'built',
        template: 'x' as TemplateName,
        definition,
        unchanged: false,
        facts,
      };
      let size = 0;
      const edge = scripted({
        async *build(archive) {
          size = (await text(archive)).length;
          yield { type: 'task', id: 'boot', title: 'Boot', state: 'started' };
          yield { type: 'task', id: 'boot', title: 'Boot', state: 'done', ms: 12.5 };
          yield { type: 'output', id: 'run', text: 'line\n\u2028' };
          yield built;
        },
      });
      await using pair = await open(edge);
      const events = await all(
        pair.client.build(bytes(Buffer.alloc(1_000_000)), { signal: new AbortController().signal }),
      );
      assert.equal(size, 1_000_000);
      assert.deepEqual(
        events.map((event) => event.type),
        ['task', 'task', 'output', 'built'],
      );
      assert.deepEqual(events[0], { type: 'task', id: 'boot', title: 'Boot', state: 'started' });
      assert.deepEqual(events.at(-1), built);
    });

    test('a build that refuses its archive midway says why', async () => {
      const edge = scripted({
        // biome-ignore lint/correctness/useYield: it fails before it has anything to tell
        async *build(archive) {
          await once(archive, 'readable');
          archive.destroy();
          throw new GatewayError('invalid_definition', 'no template.json', {
            component: 'templates',
            field: 'name',
            output: 'text',
          });
        },
      });
      await using pair = await open(edge);
      const endless = new Readable({ read: () => void endless.push(Buffer.alloc(16_384)) });
      const error = await fails(all(pair.client.build(endless, { signal: new AbortController().signal })));
      assert.deepEqual(
        [error.code, error.details.field, error.details.output],
        ['invalid_definition', 'name', 'text'],
      );
      endless.destroy();
    });

    test('ending the iteration of a build or of logs ends them at the edge', async () => {
      const ended: string[] = [];
      const wait = async (signal: AbortSignal, what: string) => {
        if (!signal.aborted) await once(signal, 'abort');
        ended.push(what);
      };
      const edge = scripted({
        async *build(_archive, { signal }) {
          yield { type: 'output', id: 'run', text: 'x' };
          await wait(signal, 'build');
        },
        async *logs({ signal }) {
          yield { at: 1, machine, stream: 'stdout', text: 'x' };
          await wait(signal, 'logs');
        },
      });
      await using pair = await open(edge);
      const stop = new AbortController();
      const { signal } = stop;
      const build = pair.client.build(bytes(), { signal })[Symbol.asyncIterator]();
      await build.next();
      const logs = pair.client
        .logs({ digests: [digest], streams: ['stdout'], tail: 1, follow: true, signal })
        [Symbol.asyncIterator]();
      await logs.next();
      stop.abort(new GatewayError('cancelled', 'gone'));
      await Promise.allSettled([build.next(), logs.next()]);
      while (ended.length < 2) await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(ended.sort(), ['build', 'logs']);
    });

    test('declarations, listings and metrics cross unchanged', async () => {
      const node = {
        id: 'node',
        isReady: true,
        isDraining: false,
        accelerator: 'tcg',
        acceleratorReason: 'no /dev/kvm',
        isTenantBoundary: false,
        machines: 1,
        maxMachines: 8,
        versions: 1,
        startedAt: 5,
      } as const;
      const versions = [{ digest, template: 'x' as TemplateName, version: 'v1' }];
      const edge = scripted({
        node: async () => node,
        machines: async () => [],
        pools: async () => [],
        metrics: async () => '# HELP a\na{b="c"} 1\n',
        setServing: async (declared) => {
          assert.deepEqual(declared, versions);
          return [{ digest, error: 'no memory' }];
        },
        removeVersion: async () => {
          throw new GatewayError('conflict', 'it serves', { component: 'edge' });
        },
      });
      await using pair = await open(edge);
      assert.deepEqual(await pair.client.node(), node);
      assert.deepEqual(await pair.client.machines(), []);
      assert.deepEqual(await pair.client.pools(), []);
      assert.equal(await pair.client.metrics(), '# HELP a\na{b="c"} 1\n');
      assert.deepEqual(await pair.client.setServing(versions), [{ digest, error: 'no memory' }]);
      assert.ok(isGatewayError(await fails(pair.client.removeVersion(digest)), 'conflict'));
    });
  });
}

const facts = {
  digest,
  builtAt: 1,
  buildMs: 2,
  memoryBytes: 3,
  stateBytes: 4,
  diskBytes: 5,
  accelerator: 'tcg',
  verifyRestoreMs: 6,
  verifyFirstResponseMs: null,
} as const;
