import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import fc from 'fast-check';
import { greet } from './preamble.ts';
import { startTestAgent, type TestAgent } from './test-agent.ts';

const soon = () => AbortSignal.timeout(10_000);
const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 'latin1');

let agent: TestAgent;
before(async () => {
  agent = await startTestAgent();
});
// Stopping also fails when a sanitizer found something, or memory leaked.
after(() => agent.stop());

async function greeted(): Promise<Socket> {
  const socket = connect({ path: agent.socketPath });
  socket.on('error', () => {});
  await once(socket, 'connect');
  await greet(socket, { token: agent.token, signal: soon() });
  return socket;
}

/** Sends bytes in a session of their own, then asks whether the agent still serves. */
async function survives(bytes: Uint8Array): Promise<void> {
  const socket = await greeted();
  socket.resume();
  socket.write(bytes);
  await using channel = await agent.connect();
  assert.equal((await channel.ping({ signal: soon() })).protocol, 2);
  socket.destroy();
}

function frame(type: number, flags: number, stream: number, payload: Uint8Array): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const frames = fc.array(
  fc
    .tuple(
      fc.integer({ min: 0, max: 12 }),
      fc.constantFrom(0, 1, 4, 5, 8, 0x20, 0x2d),
      fc.constantFrom(0, 1, 3, 5, 2, 0x7fffffff),
      fc.uint8Array({ maxLength: 80 }),
    )
    .map(([type, flags, stream, payload]) => frame(type, flags, stream, payload)),
  { maxLength: 12 },
);

const words = fc.constantFrom(
  ...['ping', 'resume', 'processes', 'files', 'stat', 'list', 'watch', 'mkdir', 'move', 'metrics', 'wait'],
  ...['output', 'stdout', 'stdin', 'signal', 'resize', 'a', '%41', '%', '%zz', '%00', '..', ''],
);
const paths = fc
  .tuple(
    fc.array(words, { maxLength: 5 }),
    fc.array(
      fc.tuple(
        fc.constantFrom('path', 'offset', 'length', 'follow', 'depth', 'user', 'mode', 'close', 'recursive'),
        fc.constantFrom(
          '',
          '/',
          '/absent',
          '%2f%2e',
          '-1',
          '0',
          '1',
          '99999999999999999999',
          'nobody',
          '%',
          'a=b',
        ),
      ),
      { maxLength: 4 },
    ),
  )
  .map(([segments, query]) => `/v1/${segments.join('/')}?${query.map((pair) => pair.join('=')).join('&')}`);

const bodies = fc.oneof(
  fc.json({ maxDepth: 10 }),
  fc.string({ maxLength: 300 }),
  fc.constantFrom(
    '[',
    '{"a":',
    '"\\ud800"',
    '"\\u0000"',
    '1e999',
    '-',
    '{"a":1,"a":2}',
    '[[[[[[[[[[[[]]]]]]]]]]]]',
    '01',
  ),
  fc
    .record(
      {
        id: fc.constantFrom('x', '', 1, '../x', 'y'.repeat(65)),
        argv: fc.constantFrom(['true'], [], [1], ['', ''], ['/dev/null']),
        env: fc.constantFrom({ A: 'b' }, { '': 'x' }, [], null),
        cwd: fc.constantFrom('/', '', 'x', null),
        user: fc.constantFrom('root', '', 'x:y'),
        pty: fc.constantFrom({ cols: 1, rows: 1 }, {}, true),
        timeoutMs: fc.constantFrom(1, 0, -1, 1e300, 1.5),
        signal: fc.constantFrom(0, 1, 65, '9'),
        path: fc.constantFrom('relative', '', 1),
      },
      { requiredKeys: [] },
    )
    .map((value) => JSON.stringify(value)),
);

describe('the agent survives', () => {
  it('random bytes before the HTTP/2 preface and after it', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 400 }), fc.boolean(), async (noise, isAfter) => {
        await survives(isAfter ? Buffer.concat([preface, noise]) : noise);
      }),
      { numRuns: 60 },
    );
  });

  it('random frames', async () => {
    await fc.assert(
      fc.asyncProperty(frames, async (list) => {
        await survives(Buffer.concat([preface, frame(4, 0, 0, Buffer.alloc(0)), ...list]));
      }),
      { numRuns: 120 },
    );
  });

  it('requests with any path, query and body, and answers each', async () => {
    const socket = await greeted();
    const session = connectHttp2('http://guest', { createConnection: () => socket });
    session.on('error', () => {});
    const method = fc.constantFrom('GET', 'PUT', 'POST', 'PATCH', 'HEAD', 'OPTIONS');
    await fc.assert(
      fc.asyncProperty(method, paths, bodies, async (verb, target, body) => {
        const stream = session.request({ ':method': verb, ':path': target }, { endStream: false });
        stream.on('error', () => {});
        stream.end(body);
        const [headers] = (await once(stream, 'response', { signal: soon() })) as [{ ':status': number }];
        assert.ok(headers[':status'] >= 200 && headers[':status'] < 600);
        assert.notEqual(headers[':status'], 500, `${verb} ${target} ${body}`);
        stream.close();
      }),
      { numRuns: 400 },
    );
    session.destroy();
    await using channel = await agent.connect();
    assert.equal((await channel.ping({ signal: soon() })).protocol, 2);
  });

  it('more streams than it allows', async () => {
    await using channel = await agent.connect();
    await channel.startProcess({ id: 'long', argv: ['sleep', '60'] }, { signal: soon() });
    const stop = new AbortController();
    const waits = Array.from({ length: 400 }, () => channel.waitProcess('long', { signal: stop.signal }));
    const settled = Promise.allSettled(waits);
    // 256 wait in the agent and the others in Node, so this one is served only once some of them are gone.
    setTimeout(() => stop.abort(), 200);
    await settled;
    assert.equal((await channel.ping({ signal: soon() })).protocol, 2);
    await channel.deleteProcess('long', { signal: soon() });
  });
});
