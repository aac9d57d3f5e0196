import assert from 'node:assert/strict';
import { once } from 'node:events';
import { duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { GatewayError } from '../../sdk/index.ts';
import { bytes, fails, meta, type OpenPair, request, response, scripted } from './contract-peers.ts';

/** Upgrades, accepted and refused. */
export function testTunnels(open: OpenPair): void {
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
}
