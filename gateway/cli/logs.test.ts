import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { renderLogLine } from './logs.ts';
import { fakeGateway, run } from './testing/terminal.ts';

const line = { at: 1_000, machine: 'abcd0000000000xyz123', stream: 'stdout', text: 'hello' } as const;
const ndjson = (...lines: unknown[]) => `${lines.map((one) => JSON.stringify(one)).join('\n')}\n`;

test('a line is time, machine and text; other streams than stdout are named', () => {
  assert.equal(renderLogLine(line), '00:00:01.000 xyz123 | hello');
  assert.equal(renderLogLine({ ...line, stream: 'stderr' }), '00:00:01.000 xyz123 stderr | hello');
});

test('a guest can neither recolour the terminal nor forge a line of another machine', () => {
  const forged = 'ok\r\n\x1b[1A\x1b]8;;http://evil\x07link\n00:00:01.000 other1 | fake';
  const rendered = renderLogLine({ ...line, text: forged });
  assert.ok(!/\p{Cc}/u.test(rendered));
  assert.equal(
    rendered,
    '00:00:01.000 xyz123 | ok\\r\\n\\e[1A\\e]8;;http://evil\\x07link\\n00:00:01.000 other1 | fake',
  );
});

test('logs asks for the streams, machine and history that were named', async (context) => {
  const routes = {
    'GET /v1/logs?template=hello&version=v2&machine=m1&stream=stdout&stream=stderr&tail=5': (
      response: ServerResponse,
    ) => response.end(ndjson(line)),
    'GET /v1/logs?template=hello&stream=console&tail=100': (response: ServerResponse) =>
      response.end(ndjson({ ...line, stream: 'console', text: 'Linux version' })),
    'GET /v1/logs?template=hello&stream=network&tail=100': (response: ServerResponse) =>
      response.end(ndjson({ ...line, stream: 'network', text: 'refused name a.example.com' })),
  };
  const { env } = await fakeGateway(context, routes);
  const named = await run(context, ['logs', 'hello@v2', '--machine', 'm1', '-n', '5'], { env });
  assert.equal(named.stdout, '00:00:01.000 xyz123 | hello\n');
  const console = await run(context, ['logs', 'hello', '--console'], { env });
  assert.equal(console.stdout, '00:00:01.000 xyz123 console | Linux version\n');
  const network = await run(context, ['logs', 'hello', '--network'], { env });
  assert.equal(network.stdout, '00:00:01.000 xyz123 network | refused name a.example.com\n');
});

test('logs --json prints each line as it was sent', async (context) => {
  const { env } = await fakeGateway(context, {
    'GET /v1/logs?template=hello&stream=stdout&stream=stderr&tail=100': (response: ServerResponse) =>
      response.end(ndjson(line, { ...line, text: 'two' })),
  });
  const { stdout } = await run(context, ['logs', 'hello', '--json'], { env });
  assert.deepEqual(
    stdout
      .trimEnd()
      .split('\n')
      .map((text) => JSON.parse(text).text),
    ['hello', 'two'],
  );
});

test('Ctrl-C ends logs -f quietly, with exit code 130, and the gateway sees the connection go', async (context) => {
  const closed = Promise.withResolvers<void>();
  const { env } = await fakeGateway(context, {
    'GET /v1/logs?template=hello&stream=stdout&stream=stderr&tail=100&follow=true': (
      response: ServerResponse,
    ) => {
      response.on('close', closed.resolve);
      response.write(ndjson(line));
    },
  });
  const interruption = new AbortController();
  const { code, stdout, stderr } = await run(context, ['logs', 'hello', '-f'], {
    env,
    interrupted: interruption.signal,
    onStdout: () => interruption.abort(),
  });
  assert.deepEqual(
    { code, stdout, stderr },
    { code: 130, stdout: '00:00:01.000 xyz123 | hello\n', stderr: '' },
  );
  await closed.promise;
});
