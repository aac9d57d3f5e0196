import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { request } from 'undici';
import WebSocket from 'ws';
import { type DrillNode, floorRestored, leaksOf, publishDrill, startNode } from './testing/drill-node.ts';

interface Answer {
  readonly counter: number;
  readonly restored: number;
  readonly target: string;
  readonly now: number;
  readonly random: number;
  readonly uuid: string;
  readonly urandom: string;
  readonly openssl: string;
  readonly bootId: string | null;
  readonly hostname: string;
  readonly machineId: string;
  readonly headers: [string, string][];
}

let node: DrillNode;
let published: Awaited<ReturnType<typeof publishDrill>>;
const auth = () => ({ authorization: `Bearer ${node.apiKey}` });

async function call(path = '/', options: Parameters<DrillNode['client']['invoke']>[1] = {}) {
  const sentAt = Date.now();
  const { response, start } = await node.client.invoke('drill', { path, ...options });
  const answer = (await response.json()) as Answer;
  return { answer, start, response, sentAt, receivedAt: Date.now() };
}

before(async () => {
  node = await startNode();
  published = await publishDrill(node.client);
});
after(async () => {
  await node.stop();
  assert.deepEqual(await leaksOf(node.dataDirectory), []);
  await node[Symbol.asyncDispose]();
});

test('the counter that ran before the snapshot goes on in the answer', async () => {
  const { answer, start, response } = await call();
  // Five warm-up requests came before the capture; a booted guest would start at one.
  assert.ok(answer.counter > 5, `counter is ${answer.counter}`);
  assert.ok(answer.restored >= 1, 'the afterRestore hook ran');
  assert.equal(start?.type, 'ready');
  assert.equal(start?.version, 'v1');
  assert.equal(start?.digest, published.digest);
  assert.match(
    response.headers.get('server-timing') ?? '',
    /queue;dur=[\d.]+.*restore;dur=[\d.]+.*exec;dur=[\d.]+/,
  );
});

test('a warm machine answers again and says that it was reused', async () => {
  const first = await call();
  const second = await call();
  assert.equal(second.start?.type, 'reused');
  assert.equal(second.start?.machine, first.start?.machine);
  assert.equal(second.answer.counter, first.answer.counter + 1);
});

test('clones differ in every kind of randomness, in name and in identity, and keep the right time', async () => {
  await floorRestored(node.client);
  const answers = await Promise.all([0, 1, 2].map(() => call('/slow')));
  const machines = new Set(answers.map(({ start }) => start?.machine));
  assert.equal(machines.size, 3, 'requests that overlap meet a machine each');
  const firstOf = [...machines].map(
    (machine) => answers.find(({ start }) => start?.machine === machine)!.answer,
  );
  for (const key of ['random', 'uuid', 'urandom', 'openssl', 'bootId', 'hostname', 'machineId'] as const) {
    assert.equal(
      new Set(firstOf.map((answer) => answer[key])).size,
      machines.size,
      `${key} repeats in two clones`,
    );
  }
  for (const { answer, sentAt, receivedAt } of answers) {
    const now = answer.now * 1000;
    assert.ok(
      now > sentAt - 50 && now < receivedAt + 50,
      `the guest says ${now}, asked between ${sentAt} and ${receivedAt}`,
    );
  }
});

test('eight parallel requests are answered by at most six machines, and nobody waits in vain', async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, () => call()));
  const machines = new Set(answers.map(({ start }) => start?.machine));
  assert.ok(machines.size <= 6);
  assert.ok(answers.every(({ response }) => response.status === 200));
});

test('an 8 MiB body of random bytes comes back byte for byte', async () => {
  const sent = randomBytes(8 * 1024 * 1024);
  const answer = await request(`${node.url}/fn/drill/echo`, { method: 'POST', headers: auth(), body: sent });
  const received = Buffer.from(await answer.body.arrayBuffer());
  assert.equal(answer.statusCode, 200);
  assert.equal(answer.headers['x-sha256'], createHash('sha256').update(sent).digest('hex'));
  assert.ok(received.equals(sent));
});

test('the path reaches the function byte for byte, and forged forwarding headers do not', async () => {
  const answer = await request(`${node.url}/fn/drill/a//b%2Fc/%zz?x=1&x=2+3`, {
    headers: { ...auth(), 'x-forwarded-for': '6.6.6.6', 'x-snapgate-machine': 'forged' },
  });
  const seen = (await answer.body.json()) as Answer;
  assert.equal(seen.target, '/a//b%2Fc/%zz?x=1&x=2+3');
  const names = new Map(seen.headers.map(([name, value]) => [name.toLowerCase(), value]));
  assert.equal(names.get('x-forwarded-for'), '127.0.0.1');
  assert.equal(names.get('authorization'), undefined, 'the key stays with the gateway');
  assert.equal(names.get('x-snapgate-machine'), undefined);
});

test('server-sent events arrive one by one and not at the end', async () => {
  const answer = await request(`${node.url}/fn/drill/stream`, { headers: auth() });
  const arrivals: number[] = [];
  for await (const _ of answer.body) arrivals.push(Date.now());
  assert.ok(arrivals.length >= 4, `${arrivals.length} pieces`);
  assert.ok(arrivals.at(-1)! - arrivals[0]! > 500, 'the pieces are apart as the function sent them');
});

test('HEAD has the length of GET and no body', async () => {
  const answer = await request(`${node.url}/fn/drill/`, { method: 'HEAD', headers: auth() });
  assert.ok(Number(answer.headers['content-length']) > 0);
  assert.equal((await answer.body.arrayBuffer()).byteLength, 0);
});

test('a WebSocket is carried into the guest and back', async () => {
  const socket = new WebSocket(`${node.url.replace('http', 'ws')}/fn/drill/websocket`, {
    headers: auth(),
    perMessageDeflate: false,
  });
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  for (const text of ['first', 'second']) {
    const echoed = new Promise((resolve) => socket.once('message', (data) => resolve(String(data))));
    socket.send(text);
    assert.equal(await echoed, text);
  }
  socket.close();
});

test('a client that vanishes leaves the node healthy', async () => {
  const left = new AbortController();
  const hanging = request(`${node.url}/fn/drill/hang`, { headers: auth(), signal: left.signal });
  await sleep(300);
  left.abort();
  await assert.rejects(hanging);
  assert.equal((await call()).response.status, 200);
});

test('what the function prints can be read in its log', async () => {
  await call('/print');
  const deadline = Date.now() + 10_000;
  let text = '';
  while (!(text.includes('printed by the function') && text.includes('to stderr')) && Date.now() < deadline) {
    text = '';
    for await (const line of node.client.logs({ template: 'drill' })) text += `${line.stream} ${line.text}\n`;
    await sleep(100);
  }
  assert.match(text, /stdout printed by the function/);
  assert.match(text, /stderr to stderr/);
});

test('machines, pools and the node are listed as they are', async () => {
  const [machines, pools, nodes] = await Promise.all([
    node.client.machines(),
    node.client.pools(),
    node.client.nodes(),
  ]);
  assert.ok(machines.length >= 3);
  assert.ok(machines.every((machine) => machine.digest === published.digest && machine.pid > 0));
  assert.equal(pools.length, 1);
  assert.ok(pools[0]!.starts.ready >= 1 && pools[0]!.starts.reused >= 1);
  assert.equal(nodes[0]!.isTenantBoundary, nodes[0]!.accelerator === 'kvm');
});

test('metrics name transitions and leases of the template', async () => {
  const text = await (await request(`${node.url}/metrics`, { headers: auth() })).body.text();
  assert.match(text, /snapgate_pool_transitions_total\{[^}]*template="drill"/);
  assert.match(text, /snapgate_pool_leases_total\{[^}]*start="reused"/);
});
