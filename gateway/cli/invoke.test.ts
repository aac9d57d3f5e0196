import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { GatewayError, toProblem } from '../../sdk/index.ts';
import { fakeGateway, run, temporaryDirectory } from './testing/terminal.ts';

const head = {
  'content-type': 'text/plain',
  'x-snapgate-start': 'restored',
  'x-snapgate-machine': 'abcd0000000000000001',
  'x-snapgate-version': 'v2',
  'server-timing': 'queue;dur=1, restore;dur=20.5, exec;dur=3',
};
const answer =
  (body: string | Buffer, status = 200) =>
  (response: ServerResponse) =>
    void response.writeHead(status, head).end(body);

test('invoke prints the body and nothing else on stdout', async (context) => {
  const { env, seen } = await fakeGateway(context, { 'GET /fn/hello/': answer('hi there') });
  const result = await run(context, ['invoke', 'hello'], { env });
  assert.deepEqual(result, { code: 0, stdout: 'hi there', stderr: '' });
  assert.equal(seen[0]?.headers.authorization, 'Bearer e2b_test');
});

test('invoke -i tells on stderr how the answer came to be', async (context) => {
  const { env } = await fakeGateway(context, { 'GET /fn/hello@v2/a?b=c': answer('hi') });
  const { stdout, stderr } = await run(context, ['invoke', 'hello@v2', '/a?b=c', '-i'], { env });
  assert.equal(stdout, 'hi');
  assert.match(stderr, /^200 OK \(text\/plain\)\n/);
  assert.match(stderr, /start: restored {3}machine: abcd0000000000000001 {3}version: v2\n/);
  assert.match(stderr, /queue: 1 ms {3}restore: 20\.5 ms {3}exec: 3 ms\n/);
});

test('data makes it a POST with a type that fits; method, headers and session are sent', async (context) => {
  const { env, seen } = await fakeGateway(context, {
    'POST /fn/hello/': answer(''),
    'PUT /fn/hello/': answer(''),
  });
  await run(context, ['invoke', 'hello', '-d', '{"a":1}'], { env });
  await run(context, ['invoke', 'hello', '-d', 'plain'], { env });
  const full = ['invoke', 'hello', '-X', 'PUT', '-d', '@-', '-H', 'x-a: 1', '-H', 'content-type:text/csv'];
  await run(context, [...full, '--session', 's1', '--timeout-ms', '900'], { env, stdin: 'a,b' });
  assert.deepEqual(
    seen.map(({ route, body, headers }) => [route, body, headers['content-type']]),
    [
      ['POST /fn/hello/', '{"a":1}', 'application/json'],
      ['POST /fn/hello/', 'plain', 'text/plain; charset=utf-8'],
      ['PUT /fn/hello/', 'a,b', 'text/csv'],
    ],
  );
  assert.equal(seen[2]?.headers['x-a'], '1');
  assert.equal(seen[2]?.headers['x-snapgate-session'], 's1');
  assert.equal(seen[2]?.headers['x-snapgate-timeout-ms'], '900');
});

test('data from a file is sent as it is, and a file that is not there is wrong usage', async (context) => {
  const path = join(await temporaryDirectory(context), 'body.bin');
  await writeFile(path, 'from a file');
  const { env, seen } = await fakeGateway(context, { 'POST /fn/hello/': answer('') });
  assert.equal((await run(context, ['invoke', 'hello', '-d', `@${path}`], { env })).code, 0);
  assert.equal(seen[0]?.body, 'from a file');
  const missing = await run(context, ['invoke', 'hello', '-d', `@${path}.nope`], { env });
  assert.equal(missing.code, 2);
  assert.match(missing.stderr, /^error\[invalid_request\]: .*ENOENT/);
});

test('a body for a pipe is untouched, and for a terminal its escapes are spelled out', async (context) => {
  const body = '\x1b[31mred\r\n';
  const { env } = await fakeGateway(context, { 'GET /fn/hello/': answer(body) });
  assert.equal((await run(context, ['invoke', 'hello'], { env })).stdout, body);
  const shown = await run(context, ['invoke', 'hello'], { env, isTTY: true });
  assert.equal(shown.stdout, '\\e[31mred\\r\n');
});

test('on a terminal the prompt comes on a line of its own', async (context) => {
  const { env } = await fakeGateway(context, { 'GET /fn/hello/': answer('no newline') });
  assert.equal((await run(context, ['invoke', 'hello'], { env, isTTY: true })).stdout, 'no newline\n');
});

test("a function's own failure is printed, and is exit code 1 only with --fail", async (context) => {
  const { env } = await fakeGateway(context, { 'GET /fn/hello/': answer('broken', 500) });
  assert.deepEqual(await run(context, ['invoke', 'hello'], { env }), {
    code: 0,
    stdout: 'broken',
    stderr: '',
  });
  assert.equal((await run(context, ['invoke', 'hello', '--fail'], { env })).code, 1);
});

test("the gateway's own error is reported with the guest's output, its escapes spelled out", async (context) => {
  const failure = new GatewayError('function_crashed', 'hello ended with exit code 1', {
    output: 'Traceback\r\n\x1b[2JValueError',
  });
  const { env } = await fakeGateway(context, {
    'GET /fn/hello/': (response: ServerResponse) =>
      void response
        .writeHead(502, { 'x-snapgate-error': 'edge/function_crashed' })
        .end(JSON.stringify(toProblem(failure))),
  });
  const { code, stdout, stderr } = await run(context, ['invoke', 'hello'], { env });
  assert.equal(code, 1);
  assert.equal(stdout, '');
  assert.equal(
    stderr,
    [
      'error[function_crashed]: hello ended with exit code 1',
      '  output:',
      '  | Traceback',
      '  | \\e[2JValueError',
      `→ ${failure.remediation}`,
      '',
    ].join('\n'),
  );
});

test('a header without a colon is wrong usage, and its text is not repeated', async (context) => {
  const { code, stderr } = await run(context, ['invoke', 'hello', '-H', 'authorization secret']);
  assert.equal(code, 2);
  assert.ok(!stderr.includes('secret'));
});
