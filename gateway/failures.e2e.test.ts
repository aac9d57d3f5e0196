import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { request } from 'undici';
import { type DrillNode, floorRestored, leaksOf, publishDrill, startNode } from './testing/drill-node.ts';

let node: DrillNode;

interface Problem {
  readonly error_code: string;
  readonly detail: string;
}

async function fail(path: string, headers: Record<string, string> = {}) {
  const answer = await request(`${node.url}/fn/drill${path}`, {
    headers: { authorization: `Bearer ${node.apiKey}`, ...headers },
  });
  return { status: answer.statusCode, headers: answer.headers, body: (await answer.body.json()) as Problem };
}

async function answersAgain(): Promise<void> {
  const { response } = await node.client.invoke('drill');
  assert.equal(response.status, 200);
  await response.text();
  await floorRestored(node.client);
}

before(async () => {
  node = await startNode();
  await publishDrill(node.client);
});
after(async () => {
  await node.stop();
  assert.deepEqual(await leaksOf(node.dataDirectory), []);
  await node[Symbol.asyncDispose]();
});

test('a function that exits gives a 502 which names it, and its machine is replaced', async () => {
  const { status, headers, body } = await fail('/crash');
  assert.equal(status, 502);
  assert.equal(body.error_code, 'function_crashed');
  assert.match(body.detail, /drill exited with code 7/);
  assert.match(String(headers['x-snapgate-error']), /function_crashed$/);
  await answersAgain();
});

test('a function that is ended by a signal gives a 502 which says so', async () => {
  const { status, body } = await fail('/abort');
  assert.equal(status, 502);
  assert.match(body.detail, /drill was ended by signal 6/);
  await answersAgain();
});

test('a function that does not answer gives a 504, and its machine is stopped first', async () => {
  const before = await node.client.machines();
  const { status, body } = await fail('/hang', { 'x-snapgate-timeout-ms': '700' });
  assert.equal(status, 504);
  assert.equal(body.error_code, 'function_timeout');
  const alive = new Set((await node.client.machines()).map(({ id }) => id));
  assert.ok(
    before.some(({ id }) => !alive.has(id)),
    'one of the machines is gone when the 504 arrives',
  );
  await answersAgain();
});

test('a kernel panic in the guest gives a clear 502', async () => {
  const { status, body } = await fail('/panic');
  assert.equal(status, 502);
  assert.equal(body.error_code, 'guest_unreachable');
  await answersAgain();
});

test('a VMM that is killed in the middle of a request gives a clear 502', async () => {
  const pending = fail('/hang');
  const deadline = Date.now() + 10_000;
  let busy: { pid: number } | undefined;
  while (busy === undefined && Date.now() < deadline)
    busy = (await node.client.machines()).find(({ inFlight }) => inFlight > 0);
  assert.ok(busy !== undefined, 'a machine is answering');
  process.kill(busy.pid, 'SIGKILL');
  const { status, body } = await pending;
  assert.equal(status, 502);
  assert.equal(body.error_code, 'guest_unreachable');
  await answersAgain();
});

test('a VMM that is killed while it waits is replaced before anybody notices', async () => {
  await floorRestored(node.client);
  const ready = (await node.client.machines()).find(({ state }) => state === 'ready');
  assert.ok(ready !== undefined);
  process.kill(ready.pid, 'SIGKILL');
  await answersAgain();
});

test('an answer that breaks off in the middle is never a clean end', async () => {
  const answer = await request(`${node.url}/fn/drill/half`, {
    headers: { authorization: `Bearer ${node.apiKey}` },
  });
  assert.equal(answer.statusCode, 200);
  await assert.rejects(answer.body.arrayBuffer());
  await answersAgain();
});

test('an answer that is not HTTP gives a 502', async () => {
  const { status } = await fail('/malformed');
  assert.equal(status, 502);
  await answersAgain();
});

test('a function that floods its output still answers, and its log stays bounded', async () => {
  const { response } = await node.client.invoke('drill', { path: '/flood' });
  assert.equal(response.status, 200);
  await response.text();
  let bytes = 0;
  for await (const line of node.client.logs({ template: 'drill', tail: 10_000 })) bytes += line.text.length;
  assert.ok(bytes < 8 * 1024 * 1024, `${bytes} bytes are kept`);
  await answersAgain();
});

test('unknown templates and versions are 404 with their own codes', async () => {
  for (const [path, code] of [
    ['/fn/nobody/', 'template_not_found'],
    ['/fn/drill@v99/', 'version_not_found'],
    ['/fn/drill@nowhere/', 'version_not_found'],
  ] as const) {
    const answer = await request(`${node.url}${path}`, {
      headers: { authorization: `Bearer ${node.apiKey}` },
    });
    assert.equal(answer.statusCode, 404);
    assert.equal(((await answer.body.json()) as Problem).error_code, code);
  }
});

test('a call without a key is 401, and one with a wrong key too', async () => {
  for (const headers of [{}, { authorization: `Bearer e2b_${'0'.repeat(40)}` }]) {
    const answer = await request(`${node.url}/fn/drill/`, { headers });
    assert.equal(answer.statusCode, 401);
    await answer.body.dump();
  }
});
