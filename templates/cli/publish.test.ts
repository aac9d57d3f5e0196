import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { isGatewayError, type PublishEvent } from '../../sdk/index.ts';
import { publishCommand } from './publish.ts';
import { FakeGateway, Terminal, temporaryFolder } from './testing/terminal.ts';

const digest = `sha256:${'ab'.repeat(32)}`;
const result: PublishEvent = {
  type: 'result',
  template: 'hello',
  version: 'v2',
  digest,
  unchanged: false,
  facts: {
    digest,
    builtAt: 0,
    buildMs: 12_345,
    memoryBytes: 3 * 2 ** 20,
    stateBytes: 1,
    diskBytes: 1,
    accelerator: 'tcg',
    verifyRestoreMs: 45,
    verifyFirstResponseMs: 12,
  },
};
const events: PublishEvent[] = [
  { type: 'task', id: 'boot', title: 'Boot a machine', state: 'started' },
  { type: 'output', id: 'boot', text: 'first line\nsecond ' },
  { type: 'output', id: 'boot', text: 'line\u001b[2J' },
  { type: 'task', id: 'boot', title: 'Boot a machine', state: 'done', ms: 4100 },
  { type: 'task', id: 'hook', title: 'Nothing to tell', state: 'skipped' },
];

async function templateFolder(context: TestContext): Promise<string> {
  const folder = await temporaryFolder(context);
  await mkdir(join(folder, 'tpl/app'), { recursive: true });
  await writeFile(join(folder, 'tpl/app/main.py'), 'print(1)');
  await writeFile(
    join(folder, 'tpl/template.json'),
    '{"name": "hello", "copy": [{"from": "app", "to": "/app"}]}',
  );
  return folder;
}

test('progress goes to stderr line by line, with output indented and harmless, and the result to stdout', async (context) => {
  const terminal = new Terminal(await templateFolder(context));
  const gateway = new FakeGateway([...events, result]);
  await terminal.run(publishCommand, ['tpl'], gateway);
  assert.equal(
    terminal.stderr,
    '  │ first line\n  │ second line\\e[2J\n✔ Boot a machine (4.1 s)\n- Nothing to tell\n',
  );
  assert.equal(
    terminal.stdout,
    'hello@v2 is published (sha256:abababababab); latest points to it.\n' +
      '  built in 12.3 s, restored in 45 ms, first answer 12 ms (tcg), memory image 3.0 MiB\n',
  );
  assert.deepEqual(gateway.asked, ['publish hello']);
  assert.deepEqual([...(gateway.archives[0]?.subarray(0, 2) ?? [])], [0x1f, 0x8b]);
});

test('on a terminal the running task shows on the last line and is replaced when it ends', async (context) => {
  const terminal = new Terminal(await templateFolder(context), { isTTY: true });
  const [started, , , done] = events;
  const plain: PublishEvent = { type: 'output', id: 'boot', text: 'hi\n' };
  await terminal.run(publishCommand, ['tpl'], new FakeGateway([started!, plain, done!, result]));
  const clear = '\r\u001b[2K';
  assert.equal(
    terminal.stderr,
    `${clear}… Boot a machine${clear}  │ hi\n… Boot a machine${clear}✔ Boot a machine (4.1 s)\n${clear}`,
  );
});

test('an unchanged version says so', async (context) => {
  const terminal = new Terminal(await templateFolder(context));
  await terminal.run(
    publishCommand,
    ['tpl'],
    new FakeGateway([{ ...result, unchanged: true } as PublishEvent]),
  );
  assert.equal(terminal.stdout, 'hello@v2 is unchanged (sha256:abababababab); latest points to it.\n');
});

test('--json prints the result alone', async (context) => {
  const terminal = new Terminal(await templateFolder(context));
  await terminal.run(publishCommand, ['tpl', '--json'], new FakeGateway([...events, result]));
  assert.deepEqual(JSON.parse(terminal.stdout), result);
});

test('--name publishes under another name, if it is one', async (context) => {
  const terminal = new Terminal(await templateFolder(context));
  const gateway = new FakeGateway([result]);
  await terminal.run(publishCommand, ['tpl', '--name', 'other'], gateway);
  assert.deepEqual(gateway.asked, ['publish other']);
  await assert.rejects(terminal.run(publishCommand, ['tpl', '--name', 'Not_One'], gateway), (error) =>
    isGatewayError(error, 'invalid_request'),
  );
});

test('a folder that can not be published is refused before the gateway is asked', async (context) => {
  const terminal = new Terminal(await templateFolder(context));
  const gateway = new FakeGateway();
  await writeFile(join(terminal.workingDirectory, 'tpl/template.json'), '{"name": "hello", "run": "make"}');
  await assert.rejects(terminal.run(publishCommand, ['tpl'], gateway), /run: expected array, found "make"/);
  assert.deepEqual(gateway.asked, []);
});

test('a publish that fails midway leaves the cursor on its own line and passes the error on', async (context) => {
  const terminal = new Terminal(await templateFolder(context), { isTTY: true });
  const gateway = new FakeGateway();
  gateway.publish = async function* () {
    yield events[0]!;
    yield { type: 'output', id: 'boot', text: 'half' } as const;
    throw new Error('the guest said no');
  };
  await assert.rejects(terminal.run(publishCommand, ['tpl'], gateway), /the guest said no/);
  assert.match(terminal.stderr, /half\n$/);
});
