import assert from 'node:assert/strict';
import { once } from 'node:events';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { GatewayError } from '../../sdk/index.ts';
import { bytes, fails, meta, never, type OpenPair, request, response, scripted } from './contract-peers.ts';
import type { InvokeRequest } from './port.ts';

/** Invocations: heads, bodies, errors, and who hears when somebody leaves. */
export function testCalls(open: OpenPair): void {
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
      invoke: async (call) => response(bytes(call.body === null ? 'none' : `empty${await text(call.body)}`)),
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
}
