/** Input that no client sends: it gets an answer, and the gateway serves the next one as before. */
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { type SandboxHarness, startSandboxHarness } from '../testing/sandbox-harness.ts';

let h: SandboxHarness;
let headers: Record<string, string>;
before(async () => {
  h = await startSandboxHarness();
  const made = await h.send<{ sandboxID: string; envdAccessToken: string }>('POST', '/v2/sandboxes', {
    templateID: 'open',
  });
  headers = {
    'e2b-sandbox-id': made.sandboxID,
    'e2b-sandbox-port': '49983',
    'x-access-token': made.envdAccessToken,
  };
});
after(async () => {
  await h[Symbol.asyncDispose]();
});

const post = (path: string, body: Uint8Array | string, more: Record<string, string> = {}) =>
  fetch(`${h.url}${path}`, { method: 'POST', headers: { ...headers, ...more }, body: body as never });

/** A command still runs from beginning to end. */
async function isHealthy(): Promise<void> {
  assert.equal((await fetch(`${h.url}/health`, { headers })).status, 204);
  const message = JSON.stringify({ process: { cmd: '/bin/echo', args: ['healthy'] } });
  const answer = await post('/process.Process/Start', frame(message), stream);
  const text = Buffer.from(await answer.arrayBuffer()).toString('latin1');
  assert.match(text, new RegExp(Buffer.from('healthy\n').toString('base64')));
}

const stream = { 'content-type': 'application/connect+json', 'connect-protocol-version': '1' };
const unary = { 'content-type': 'application/json', 'connect-protocol-version': '1' };

function frame(text: string, flags = 0): Buffer {
  const body = Buffer.from(text);
  const head = Buffer.alloc(5);
  head.writeUInt8(flags, 0);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

test('a method that nobody knows is unimplemented at once, on both kinds of call', async () => {
  for (const path of [
    '/process.Process/Levitate',
    '/filesystem.Filesystem/Levitate',
    '/other.Service/Method',
  ]) {
    for (const kind of [unary, stream]) {
      const answer = await post(path, '{}', kind);
      assert.deepEqual(
        [answer.status, ((await answer.json()) as { code: string }).code],
        [501, 'unimplemented'],
      );
    }
  }
});

test('a field that nobody knows is refused by its name', async () => {
  const rpc = await post('/filesystem.Filesystem/Stat', '{"path":"/","surprise":1}', unary);
  assert.equal(rpc.status, 400);
  assert.match(await rpc.text(), /surprise/);
  for (const [path, body] of [
    ['/v2/sandboxes', { templateID: 'open', surprise: 1 }],
    ['/v2/sandboxes', { templateID: 'open', network: { surprise: 1 } }],
    ['/v2/sandboxes', { templateID: 'open', volumeMounts: [{ name: 'surprise', path: '/x' }] }],
    ['/v3/templates', { name: 'x', surprise: 1 }],
  ] as const) {
    const answer = await h.raw('POST', path, body);
    const problem = (await answer.json()) as { code: number; message: string };
    if (path === '/v3/templates' && answer.status === 404) continue;
    assert.deepEqual([answer.status, problem.code], [400, 400]);
    assert.match(problem.message, /surprise|volumeMounts/);
  }
  const query = await h.raw('GET', '/v2/sandboxes?surprise=1');
  assert.equal(query.status, 400);
});

test('frames that are cut, oversize, of unknown kind or of noise get an error, and the next call works', async () => {
  const good = frame(JSON.stringify({ process: { cmd: '/bin/true' } }));
  const huge = Buffer.alloc(5);
  huge.writeUInt32BE(0xff_ff_ff_ff, 1);
  const known = [
    good.subarray(0, 3),
    good.subarray(0, -2),
    huge,
    frame('{}', 0xff),
    frame('{"process":'),
    Buffer.alloc(0),
  ];
  for (const bytes of known) {
    const answer = await post('/process.Process/Start', bytes, stream);
    const text = Buffer.from(await answer.arrayBuffer()).toString('latin1');
    assert.match(text, /"error"|"code"/, bytes.toString('hex'));
  }
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(
        '/process.Process/Start',
        '/process.Process/Connect',
        '/filesystem.Filesystem/WatchDir',
        '/process.Process/List',
      ),
      fc.uint8Array({ maxLength: 200 }),
      fc.constantFrom(
        stream,
        unary,
        { 'content-type': 'application/proto' },
        { 'content-type': 'text/plain' },
      ),
      async (path, bytes, kind) => {
        const answer = await post(path, bytes, kind);
        await answer.arrayBuffer();
        assert.ok(answer.status < 500 || answer.status === 501, `${path} answered ${answer.status}`);
      },
    ),
    { numRuns: 60 },
  );
  await isHealthy();
});

test('forms that are cut, nested, nameless or of noise get an error, and the next upload works', async () => {
  const type = 'multipart/form-data; boundary=xx';
  const part = (name: string, filename: string) =>
    `--xx\r\ncontent-disposition: form-data; name="${name}"; filename="${filename}"\r\n\r\nbody\r\n`;
  const known = [
    '',
    '--xx',
    '--xx--',
    part('file', '/tmp/fuzz'),
    `${part('other', '/tmp/fuzz')}--xx--`,
    `${part('file', '')}--xx--`,
    `--xx\r\n${'x: y\r\n'.repeat(5000)}\r\n\r\n--xx--`,
  ];
  for (const body of known) {
    const answer = await post('/files', body, { 'content-type': type });
    assert.equal(answer.status, 400, `${body.slice(0, 60)}: ${await answer.text()}`);
  }
  await fc.assert(
    fc.asyncProperty(
      fc.uint8Array({ maxLength: 300 }),
      fc.constantFrom(type, 'multipart/form-data', 'application/octet-stream'),
      async (bytes, kind) => {
        const answer = await post('/files', bytes, { 'content-type': kind });
        await answer.arrayBuffer();
        assert.equal(answer.status, 400);
      },
    ),
    { numRuns: 60 },
  );
  const gzip = await post('/files?path=/tmp/fuzz', 'no gzip', {
    'content-type': 'application/octet-stream',
    'content-encoding': 'gzip',
  });
  assert.equal(gzip.status, 400, await gzip.text());
  await isHealthy();
});

test('a client that stops in the middle of a frame or a form leaves nothing behind', async () => {
  for (const path of ['/process.Process/Start', '/files?path=/tmp/never-there']) {
    const socket = connect(h.port, '127.0.0.1');
    const kind = path.startsWith('/files') ? 'application/octet-stream' : 'application/connect+json';
    const lines = Object.entries({
      ...headers,
      host: 'localhost',
      'content-type': kind,
      'content-length': '1000',
    });
    socket.write(
      `POST ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\nhalf`,
    );
    await new Promise((resolve) => setTimeout(resolve, 50));
    socket.destroy();
  }
  await isHealthy();
  while (h.sandboxes.uses > 0) await new Promise((resolve) => setTimeout(resolve, 10));
  const answer = await fetch(`${h.url}/files?path=/tmp/never-there`, { headers });
  assert.equal(answer.status, 404);
});
