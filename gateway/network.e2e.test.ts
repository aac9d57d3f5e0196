import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { after, before, it } from 'node:test';
import { promisify } from 'node:util';
import { Sandbox as E2bSandbox } from 'e2b';
import { networkCommand } from '../edge/cli/index.ts';
import { isGatewayError, type Sandbox, Snapgate } from '../sdk/index.ts';
import { type DrillNode, leaksOf, makeDataDirectory, publishDrill, startNode } from './testing/drill-node.ts';

const run = promisify(execFile);
const skip = process.getuid?.() === 0 ? false : 'needs root for network namespaces';
/** A public address whose host is a namespace beside this host's own. */
const far = '93.184.216.34';
const farName = `sge2e${process.pid}`;
// Not `ip netns exec`, which remounts / and so fails where that is no mount point, as in a chroot.
const inFar = `--net=/run/netns/${farName}`;

let node: DrillNode;
let snapgate: Snapgate;
let sandbox: Sandbox;

const stack = new AsyncDisposableStack();

before(async () => {
  if (skip !== false) return;
  const undo = (...words: string[]) => stack.defer(async () => void (await run('ip', words)));
  await run('ip', ['netns', 'add', farName]);
  undo('netns', 'delete', farName);
  await run('ip', ['link', 'add', farName, 'type', 'veth', 'peer', 'name', 'far0', 'netns', farName]);
  undo('link', 'delete', farName);
  await run('ip', ['addr', 'add', '198.19.255.1/30', 'dev', farName]);
  await run('ip', ['link', 'set', 'dev', farName, 'up']);
  await run('ip', ['route', 'add', far, 'via', '198.19.255.2', 'dev', farName]);
  for (const words of [
    'addr add 198.19.255.2/30 dev far0',
    'link set dev far0 up',
    `addr add ${far} dev far0`,
  ])
    await run('nsenter', [inFar, 'ip', ...words.split(' ')]);
  const dataDirectory = await makeDataDirectory();
  stack.defer(() => rm(dataDirectory, { recursive: true, force: true }));
  const config = { permittedRanges: ['10.7.0.0/16'], readySlots: 1 };
  await writeFile(join(dataDirectory, 'network.json'), JSON.stringify(config));
  node = await startNode(dataDirectory);
  stack.defer(async () => {
    const [info] = await node.client.nodes();
    await node.stop();
    assert.deepEqual(await leaksOf(dataDirectory), []);
    const slots = (await readdir('/run/netns')).filter((name) => name.startsWith(`sg${info?.id}x`));
    assert.deepEqual(slots, []);
    assert.equal((await run('nft', ['list', 'tables'])).stdout.includes(`snapgate_${info?.id}`), false);
  });
  await publishDrill(node.client, { name: 'walled', network: { [far]: true, 'a.example.com': true } });
  await publishDrill(node.client);
  snapgate = new Snapgate({ url: node.url, apiKey: node.apiKey });
  sandbox = await snapgate.sandboxes.create({ template: 'walled' });
  stack.defer(() => sandbox.kill());
});
after(() => stack.disposeAsync());

/** What connecting to a port of the far host, on which nobody listens, comes to: it is refused there, or earlier. */
const dial = async (address: string, port: number, from = sandbox) => {
  const program = `import socket\nc=socket.socket()\nc.settimeout(5)\nprint(c.connect_ex(("${address}",${port})))`;
  return (await from.run(['python3', '-c', program], { user: 'root' })).stdout.trim();
};
const refused = '111';
/** Packets that came to the far host. */
const arrivals = async () => {
  const { stdout } = await run('nsenter', [inFar, 'cat', '/proc/net/snmp']);
  const [names = '', values = ''] = stdout.split('\n').filter((line) => line.startsWith('Tcp:'));
  return Number(values.split(' ')[names.split(' ').indexOf('InSegs')]);
};

async function explain(subject: string, destination: string): Promise<string> {
  const stdout = new PassThrough();
  const context = { workingDirectory: node.dataDirectory, stdout, interrupted: new AbortController().signal };
  const deps = { context, setExitCode: () => {}, client: () => node.client, snapgate: () => snapgate };
  await networkCommand(deps).parseAsync(['explain', subject, destination], { from: 'user' });
  return String(stdout.read());
}

it('a guest gets out of a real host where its rules say so, and what does not get out is told', {
  skip,
}, async () => {
  const before = await arrivals();
  assert.equal(await dial(far, 9), refused);
  assert.equal(await arrivals(), before + 1, 'the far host itself refused it');
  await sandbox.setNetwork({ '198.19.255.0/30': true });
  assert.equal(await dial(far, 9), refused);
  assert.equal(await dial('198.19.255.1', 22), refused);
  assert.equal(await dial('127.0.0.2', 22), refused);
  assert.equal(await arrivals(), before + 1, 'it was refused before it left');
  const { refusals, own } = await sandbox.network();
  assert.equal(own?.kind, 'native');
  assert.ok(
    refusals.some(
      ({ address, port, ruleSet }) => address === far && port === 9 && ruleSet === `sandbox ${sandbox.id}`,
    ),
  );
  const lines = [];
  for await (const line of node.client.logs({ template: 'walled', streams: ['network'] })) lines.push(line);
  assert.ok(lines.some(({ text, network }) => text.includes(far) && network?.sandbox === sandbox.id));
});

it('network fields of the unchanged E2B SDK hold for a guest, and what replaces them holds at once', {
  skip,
}, async () => {
  const access = { apiKey: node.apiKey, apiUrl: node.url };
  const everyone = '0.0.0.0/0';
  const made = await E2bSandbox.create('walled', {
    ...access,
    network: { allowOut: [far], denyOut: [everyone] },
  });
  const guest = await snapgate.sandboxes.get(made.sandboxId);
  try {
    const before = await arrivals();
    assert.equal(await dial(far, 9, guest), refused);
    assert.equal(await arrivals(), before + 1, 'the far host itself refused it');
    const replace = (fields: Record<string, unknown>) =>
      fetch(`${node.url}/sandboxes/${made.sandboxId}/network`, {
        method: 'PUT',
        headers: { 'x-api-key': node.apiKey, 'content-type': 'application/json' },
        body: JSON.stringify(fields),
      });
    assert.ok((await replace({ allowOut: [], denyOut: [everyone] })).ok);
    assert.equal(await dial(far, 9, guest), refused);
    assert.equal(await arrivals(), before + 1, 'it was refused before it left');
    assert.ok((await replace({ denyOut: ['198.19.0.0/16'] })).ok);
    assert.equal(await dial(far, 9, guest), refused);
    assert.equal(await arrivals(), before + 2, 'what is not denied is allowed');
    assert.ok((await replace({ allow_internet_access: false })).ok);
    assert.equal(await dial(far, 9, guest), refused);
    assert.equal(await arrivals(), before + 2);
    assert.equal((await replace({ allowOut: ['not an address!'] })).status, 400);
  } finally {
    await E2bSandbox.kill(made.sandboxId, access);
  }
});

it('rules are explained as the node would judge them', { skip }, async () => {
  assert.equal(await explain('walled', `tcp://${far}:9`), `allowed: by the rule "${far}"\n`);
  assert.match(await explain('walled@v1', 'https://b.example.com'), /^refused: no rule allows it/);
  assert.match(await explain(sandbox.id, `tcp://${far}:9`), /^refused: /);
  await sandbox.setNetwork({ '10.7.1.0/24': true });
  assert.match(await explain(sandbox.id, 'tcp://10.7.1.9:5432'), /^allowed: /);
  const [info] = await node.client.nodes();
  assert.deepEqual(info?.network, { lack: null, permittedRanges: ['10.7.0.0/16'] });
});

it('rules that mean nothing are refused at publish, and rules of a sandbox without a card when they allow something', {
  skip,
}, async () => {
  await assert.rejects(publishDrill(node.client, { name: 'wrong', network: { nogroup: true } }), (error) =>
    isGatewayError(error, 'invalid_definition'),
  );
  await assert.rejects(snapgate.sandboxes.create({ template: 'drill', network: { pypi: true } }), (error) =>
    isGatewayError(error, 'conflict'),
  );
  const bare = await snapgate.sandboxes.create({ template: 'drill', network: {} });
  assert.equal((await bare.network()).hasCard, false);
  const cards = async (one: Sandbox) =>
    (await one.run(['ls', '/sys/class/net'])).stdout.split(/\s+/).filter(Boolean);
  assert.deepEqual(await cards(bare), ['lo']);
  assert.deepEqual(await cards(sandbox), ['eth0', 'lo']);
  await bare.kill();
});
