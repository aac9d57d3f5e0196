import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fakeGateway, run } from './testing/terminal.ts';

const digest = `sha256:${'ab'.repeat(32)}`;
const machine = {
  id: 'abcd0000000000000001',
  node: 'abcd',
  template: 'hello',
  version: 'v2',
  digest,
  state: 'ready',
  startedAt: 1_000_000_000_000 - 125_000,
  invocations: 3,
  inFlight: 1,
  pid: 4242,
  privateBytes: 3_250_586,
};
const pool = {
  node: 'abcd',
  template: 'hello',
  version: 'v2',
  digest,
  isDraining: true,
  target: { ready: 2, blank: 1, max: 8 },
  blank: 1,
  restoring: 0,
  ready: 2,
  serving: 1,
  waiting: 4,
  starts: { ready: 1, restored: 2, spawned: 3, reused: 4 },
  failures: 1,
  lastFailure: 'guest said \x1b[2J\nfake row',
};
const node = {
  id: 'abcd',
  isReady: true,
  isDraining: false,
  accelerator: 'tcg',
  acceleratorReason: 'the probe boot under KVM did not finish',
  isTenantBoundary: false,
  machines: 3,
  maxMachines: 64,
  versions: 2,
  startedAt: 1_000_000_000_000 - 7_200_000,
};

test('ps shows one line for each machine, with its age, calls and own memory', async (context) => {
  const { env } = await fakeGateway(context, { 'GET /v1/machines': { items: [machine] } });
  const { code, stdout } = await run(context, ['ps'], { env });
  assert.equal(code, 0);
  const [head = '', row = ''] = stdout.split('\n');
  assert.match(head, /^MACHINE +TEMPLATE +STATE +AGE +CALLS +NOW +OWN RAM +PID +NODE$/);
  assert.match(row, /^abcd0000000000000001 +hello@v2 +ready +2m +3 +1 +3\.1 MiB +4242 +abcd$/);
});

test('ps --json prints what the gateway sent, narrowed to the template', async (context) => {
  const other = { ...machine, id: 'abcd0000000000000002', template: 'other', privateBytes: null };
  const { env } = await fakeGateway(context, { 'GET /v1/machines': { items: [machine, other] } });
  const { stdout } = await run(context, ['ps', 'hello', '--json'], { env });
  assert.deepEqual(JSON.parse(stdout), [machine]);
});

test('ps --pools keeps a failure reported by a guest on its own line and spells out its escapes', async (context) => {
  const { env } = await fakeGateway(context, { 'GET /v1/pools': { items: [pool] } });
  const { stdout } = await run(context, ['ps', '--pools'], { env });
  const lines = stdout.trimEnd().split('\n');
  assert.equal(lines.length, 2);
  assert.match(lines[1] ?? '', /^hello@v2 \(draining\) +2\/2 +1\/1 +1\/8 +0 +4 +1 ready, 2 restored/);
  assert.match(lines[1] ?? '', /guest said \\e\[2J\\nfake row$/);
});

test('ps --nodes says plainly that emulation is not a tenant boundary', async (context) => {
  const { env } = await fakeGateway(context, { 'GET /v1/nodes': { items: [node] } });
  const { stdout } = await run(context, ['ps', '--nodes'], { env });
  assert.match(stdout, /abcd +ready +2h +3\/64 +2 +- +- +tcg \(not a tenant boundary\) +the probe boot/);
});
