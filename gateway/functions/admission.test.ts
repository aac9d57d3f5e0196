import assert from 'node:assert/strict';
import { test } from 'node:test';
import { startHarness } from '../testing/harness.ts';

const preflight = { origin: 'https://page.test', 'access-control-request-method': 'PUT' };

/** Names of the headers the function saw in the last call. */
const seenBy = (h: { edge: { invocations: { rawHeaders: readonly string[] }[] } }) =>
  h.edge.invocations.at(-1)?.rawHeaders.map((name) => name.toLowerCase()) ?? [];

test('a template that is not public needs a key, by either header', async () => {
  await using h = await startHarness();
  const statusWith = async (headers: Record<string, string>) =>
    (await fetch(`${h.url}/fn/closed`, { headers })).status;
  assert.equal(await statusWith({}), 401);
  assert.equal(await statusWith({ authorization: `Bearer e2b_${'0'.repeat(40)}` }), 401);
  assert.equal(await statusWith({ authorization: `Basic ${h.key}` }), 401);
  assert.equal(await statusWith({ authorization: `Bearer ${h.key}` }), 200);
  assert.equal(await statusWith({ authorization: `bearer  ${h.key}` }), 200);
  assert.equal(await statusWith({ 'x-api-key': h.key }), 200);
  assert.equal(await statusWith({ 'x-api-key': h.key, authorization: 'Basic own' }), 200);
});

test("a Snapgate key never reaches a function, the caller's own credentials do", async () => {
  await using h = await startHarness();
  await fetch(`${h.url}/fn/closed`, { headers: { 'x-api-key': h.key, authorization: 'Basic own' } });
  assert.ok(!seenBy(h).includes('x-api-key') && seenBy(h).includes('authorization'));
  await fetch(`${h.url}/fn/closed`, { headers: { 'x-api-key': h.key, authorization: `Bearer ${h.key}` } });
  assert.ok(!seenBy(h).includes('x-api-key') && !seenBy(h).includes('authorization'));
  await fetch(`${h.url}/fn/open`, { headers: { 'x-api-key': 'mine', authorization: 'Bearer mine' } });
  assert.ok(seenBy(h).includes('x-api-key') && seenBy(h).includes('authorization'));
  await fetch(`${h.url}/fn/open`, { headers: { authorization: `Bearer ${h.key}` } });
  assert.ok(!seenBy(h).includes('authorization'));
});

test('without a key an unknown template looks like one that is not public, with a key it is a 404', async () => {
  await using h = await startHarness();
  const answer = async (path: string, headers: Record<string, string> = {}) => {
    const response = await fetch(`${h.url}${path}`, { headers });
    const { request_id, ...problem } = (await response.json()) as Record<string, unknown>;
    return problem;
  };
  assert.deepEqual(await answer('/fn/nothing'), await answer('/fn/closed'));
  const headers = { 'x-api-key': h.key };
  assert.equal((await answer('/fn/nothing', headers)).error_code, 'template_not_found');
  assert.equal((await answer('/fn/closed@v9', headers)).error_code, 'version_not_found');
  assert.equal((await answer('/fn/closed@nowhere', headers)).error_code, 'version_not_found');
  assert.equal((await answer('/fn/open@v9', headers)).status, 404);
});

test('a preflight of a template that needs a key is answered before auth (cdk-serverless#372)', async () => {
  await using h = await startHarness();
  const response = await fetch(`${h.url}/fn/closed/x`, {
    method: 'OPTIONS',
    headers: { ...preflight, 'access-control-request-headers': 'x-api-key, content-type' },
  });
  assert.equal(response.status, 204);
  assert.equal(response.headers.get('access-control-allow-origin'), '*');
  assert.equal(response.headers.get('access-control-allow-methods'), 'PUT');
  assert.equal(response.headers.get('access-control-allow-headers'), 'x-api-key, content-type');
  assert.equal(response.headers.get('access-control-allow-credentials'), null);
  assert.equal(h.edge.invocations.length, 0);
});

test('a public template answers its preflights itself, and a plain OPTIONS is a call like any other', async () => {
  await using h = await startHarness();
  const options = (path: string, headers: Record<string, string>) =>
    fetch(`${h.url}${path}`, { method: 'OPTIONS', headers });
  assert.equal((await options('/fn/open', preflight)).status, 200);
  assert.equal((await options('/fn/closed', {})).status, 401);
  assert.equal((await options('/fn/closed', { 'x-api-key': h.key })).status, 200);
  assert.equal((await options('/fn/closed', { ...preflight, 'x-api-key': h.key })).status, 200);
  assert.equal(h.edge.invocations.length, 3);
});

test('a page of another origin can read why it was refused', async () => {
  await using h = await startHarness();
  const response = await fetch(`${h.url}/fn/closed`, { headers: { origin: 'https://page.test' } });
  assert.equal(response.headers.get('access-control-allow-origin'), '*');
  assert.match(response.headers.get('access-control-expose-headers') ?? '', /x-snapgate-error/);
});

test('the session reaches edge and function, and only sane ones do', async () => {
  await using h = await startHarness();
  await fetch(`${h.url}/fn/open`, { headers: { 'x-snapgate-session': 'user-1' } });
  assert.equal(h.edge.invocations.at(-1)?.session, 'user-1');
  assert.ok(seenBy(h).includes('x-snapgate-session'));
  for (const session of ['a b', 'a/b', 'x'.repeat(129)]) {
    const response = await fetch(`${h.url}/fn/open`, { headers: { 'x-snapgate-session': session } });
    assert.equal(response.status, 400);
    assert.equal(((await response.json()) as { field: string }).field, 'x-snapgate-session');
  }
});
