import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { Command } from 'commander';
import { type ErrorCode, GatewayError, toProblem } from '../../sdk/index.ts';
import { commandEntries } from './commands.ts';
import { exitCodes } from './exit-codes.ts';
import type { CommandEntry } from './program.ts';
import { closedAddress, fakeGateway, run } from './testing/terminal.ts';

const entry = (name: string, load: CommandEntry['load']): CommandEntry => ({
  name,
  summary: `what ${name} does`,
  group: 'Tests:',
  remote: 'none',
  load,
});

test('help lists every command and every exit code, and loads none of the commands', async (context) => {
  const entries = commandEntries.map((one) => ({
    ...one,
    load: () => assert.fail(`${one.name} was loaded`),
  }));
  const { code, stdout } = await run(context, ['--help'], { entries });
  assert.equal(code, 0);
  for (const { name, summary } of commandEntries) {
    assert.match(stdout, new RegExp(`^  ${name} .*${summary}`, 'm'));
  }
  for (const { code: number } of Object.values(exitCodes)) {
    assert.match(stdout, new RegExp(`(?:: |· |  )${number} \\w`));
  }
});

test('running one command loads only that one', async (context) => {
  const loaded: string[] = [];
  const make = (name: string) =>
    entry(name, async () => {
      loaded.push(name);
      return new Command(name).action(() => {});
    });
  const { code } = await run(context, ['two'], { entries: [make('one'), make('two'), make('three')] });
  assert.equal(code, 0);
  assert.deepEqual(loaded, ['two']);
});

test('every command has help of its own that names its options', async (context) => {
  for (const { name } of commandEntries) {
    for (const words of [
      [name, '--help'],
      ['help', name],
    ]) {
      const { code, stdout, stderr } = await run(context, words);
      assert.equal(code, 0, `${words.join(' ')}: ${stderr}`);
      assert.match(stdout, new RegExp(`^Usage: snapgate ${name}`));
    }
  }
});

test('only commands that talk to a gateway take an address', async (context) => {
  for (const words of ['ps', 'logs', 'invoke', 'publish', 'keys rm', 'templates alias set', 'loadtest run']) {
    assert.match((await run(context, [...words.split(' '), '--help'])).stdout, /--url <url>/, words);
  }
  for (const words of ['up', 'init', 'templates schema', 'loadtest compare']) {
    assert.doesNotMatch((await run(context, [...words.split(' '), '--help'])).stdout, /--url <url>/, words);
  }
});

test('wrong usage is exit code 2 and goes to stderr', async (context) => {
  for (const words of [
    [],
    ['nope'],
    ['ps', '--nope'],
    ['ps', 'a', 'b'],
    ['keys'],
    ['keys', 'create'],
    ['logs', 'hello', '-n', '-1'],
    ['logs', 'hello', '-n', '1e9'],
    ['invoke', 'hello', '--timeout-ms', '0'],
    ['ps', '--url'],
  ]) {
    const { code, stdout, stderr } = await run(context, words);
    assert.equal(code, 2, words.join(' '));
    assert.equal(stdout, '');
    assert.notEqual(stderr, '');
  }
});

test('the version is that of the package', async (context) => {
  const { version } = JSON.parse(await readFile(new URL('../../package.json', import.meta.url), 'utf8'));
  assert.equal((await run(context, ['--version'])).stdout, `${version}\n`);
});

test('a mistyped command gets a suggestion', async (context) => {
  assert.match((await run(context, ['invok'])).stderr, /Did you mean invoke\?/);
});

test('address and key may be given after any command, nested ones too', async (context) => {
  const { url, seen } = await fakeGateway(context, { 'GET /v1/keys': { items: [] } });
  const { code } = await run(context, ['keys', 'list', '--url', url, '--api-key', 'k1']);
  assert.equal(code, 0);
  assert.equal(seen[0]?.headers.authorization, 'Bearer k1');
});

test('a gateway that is not there is exit code 3, with how to start one', async (context) => {
  const { code, stderr } = await run(context, ['ps', '--url', await closedAddress()]);
  assert.equal(code, 3);
  assert.match(stderr, /ECONNREFUSED/);
  assert.match(stderr, /→ Start one with `snapgate up`/);
});

test('exit codes tell a refused key, a later try and a plain failure apart', async (context) => {
  for (const [code, expected] of [
    ['unauthenticated', 4],
    ['forbidden', 4],
    ['node_at_capacity', 5],
    ['draining', 5],
    ['invalid_request', 2],
    ['template_not_found', 1],
    ['host_not_ready', 1],
    ['internal', 1],
  ] as [ErrorCode, number][]) {
    const error = new GatewayError(code, 'as the gateway said');
    const { env } = await fakeGateway(context, {
      'GET /v1/machines': (response: ServerResponse) =>
        void response.writeHead(error.status).end(JSON.stringify(toProblem(error))),
    });
    const ran = await run(context, ['ps'], { env });
    assert.equal(ran.code, expected, code);
    assert.equal(ran.stderr.split('\n')[0], `error[${code}]: as the gateway said`);
  }
});

test('--verbose shows the cause', async (context) => {
  const words = ['ps', '--url', await closedAddress()];
  assert.ok(!(await run(context, words)).stderr.includes('cause:'));
  assert.match(
    (await run(context, [...words, '--verbose'])).stderr,
    /cause:\n {2}\| \[?TypeError: fetch failed/,
  );
});

test('a pipe that closed early is not a failure', async (context) => {
  const broken = entry('broken', async () =>
    new Command('broken').action(() => {
      throw Object.assign(new Error('write EPIPE'), { code: 'EPIPE' });
    }),
  );
  assert.deepEqual(await run(context, ['broken'], { entries: [broken] }), {
    code: 0,
    stdout: '',
    stderr: '',
  });
});
