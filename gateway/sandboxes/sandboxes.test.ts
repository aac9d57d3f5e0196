import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CreatedSandbox, SandboxInfo } from '../../sdk/index.ts';
import { startSandboxHarness } from '../testing/sandbox-harness.ts';

test('a gateway whose node keeps no sandboxes says so', async () => {
  const { startHarness } = await import('../testing/harness.ts');
  await using h = await startHarness();
  const answer = await fetch(`${h.url}/v1/sandboxes`, { headers: { 'x-api-key': h.key } });
  assert.equal(answer.status, 400);
  assert.equal(answer.headers.get('x-snapgate-error'), 'gateway/not_supported_yet');
});

test('a sandbox is made, read, kept alive, paused, resumed and killed', async () => {
  await using h = await startSandboxHarness();
  const made = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open', metadata: { run: '7' } });
  assert.equal(made.template, 'open');
  assert.ok(made.token.length > 20);
  const path = `/v1/sandboxes/${made.id}`;
  const read = await h.get<SandboxInfo>(path);
  assert.equal(read.state, 'running');
  assert.ok(!('token' in read));
  const kept = await h.send<SandboxInfo>('PUT', `${path}/deadline`, { deadlineMs: 1000, onlyExtend: true });
  assert.equal(kept.deadlineAt, made.deadlineAt);
  assert.equal((await h.post<SandboxInfo>(`${path}/pause`)).state, 'paused');
  assert.equal((await h.post<SandboxInfo>(`${path}/resume`)).state, 'running');
  assert.equal((await h.post<SandboxInfo>(`${path}/resume`, { deadlineMs: 5000 })).state, 'running');
  for (const _ of [1, 2]) {
    const ended = await h.send<SandboxInfo>('DELETE', path);
    assert.equal(ended.termination?.reason, 'killed');
  }
  assert.equal((await h.raw('POST', `${path}/fork`, { count: 1 })).status, 404);
});

test('a sandbox needs exactly one origin, and one that exists', async () => {
  await using h = await startSandboxHarness();
  for (const [body, status] of [
    [{}, 400],
    [{ template: 'open', snapshot: 'x' }, 400],
    [{ template: 'nothing' }, 404],
    [{ template: 'open@v9' }, 404],
    [{ template: 'open', deadlineMs: 1 }, 400],
    [{ template: 'open', unknown: 1 }, 400],
  ] as const) {
    assert.equal((await h.raw('POST', '/v1/sandboxes', body)).status, status, JSON.stringify(body));
  }
  assert.equal((await h.raw('GET', '/v1/sandboxes/nobody')).status, 404);
});

test('listings filter by state, template and metadata, and pages neither repeat nor skip', async () => {
  await using h = await startSandboxHarness();
  for (const run of ['1', '2', '3', '4', '5']) {
    await h.post('/v1/sandboxes', { template: 'open', metadata: { run, team: run > '3' ? 'b=c' : 'a' } });
  }
  interface Page {
    items: SandboxInfo[];
    nextToken: string | null;
  }
  const seen: string[] = [];
  let token: string | null = '';
  while (token !== null) {
    const query: string = token === '' ? '' : `&nextToken=${token}`;
    const page: Page = await h.get<Page>(`/v1/sandboxes?limit=2${query}`);
    seen.push(...page.items.map(({ metadata }) => metadata.run!));
    token = page.nextToken;
  }
  assert.deepEqual(seen.sort(), ['1', '2', '3', '4', '5']);
  assert.equal((await h.get<Page>('/v1/sandboxes?metadata=team%3Db%3Dc')).items.length, 2);
  assert.equal((await h.get<Page>('/v1/sandboxes?metadata=team%3Da&metadata=run%3D1')).items.length, 1);
  assert.equal((await h.get<Page>('/v1/sandboxes?state=paused')).items.length, 0);
  assert.equal((await h.get<Page>('/v1/sandboxes?state=paused&state=running')).items.length, 5);
  assert.equal((await h.get<Page>('/v1/sandboxes?template=closed')).items.length, 0);
  for (const query of ['nextToken=%21', 'limit=0', 'state=odd', 'metadata=x', 'other=1']) {
    assert.equal((await h.raw('GET', `/v1/sandboxes?${query}`)).status, 400, query);
  }
});

test('snapshots are made, listed, pinned, compared, started from and removed', async () => {
  await using h = await startSandboxHarness();
  const made = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
  const first = await h.post<{ id: string }>(`/v1/sandboxes/${made.id}/snapshots`, { name: 'base' });
  const second = await h.post<{ id: string; parent: string }>(`/v1/sandboxes/${made.id}/snapshots`, {});
  assert.equal(second.parent, first.id);
  const list = await h.get<{ items: unknown[] }>(`/v1/snapshots?sandbox=${made.id}`);
  assert.equal(list.items.length, 2);
  const pinned = await h.send<{ isPinned: boolean }>('PUT', `/v1/snapshots/${first.id}/pin`, {
    isPinned: true,
  });
  assert.ok(pinned.isPinned);
  const diff = await h.get<{ files: unknown[] }>(`/v1/snapshots/diff?from=${first.id}&to=${second.id}`);
  assert.equal(diff.files.length, 1);
  const child = await h.post<CreatedSandbox>('/v1/sandboxes', { snapshot: 'snapshot:base' });
  assert.deepEqual(child.parent, { kind: 'snapshot', id: first.id });
  const rewound = await h.post<SandboxInfo>(`/v1/sandboxes/${made.id}/rewind`, { snapshot: first.id });
  assert.equal(rewound.basis, first.id);
  assert.equal((await h.raw('DELETE', `/v1/snapshots/${second.id}`)).status, 204);
  assert.equal((await h.raw('DELETE', `/v1/snapshots/${second.id}`)).status, 404);
});

test('events tell what happened since a number, and follow what happens', async () => {
  await using h = await startSandboxHarness();
  const made = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
  await h.post(`/v1/sandboxes/${made.id}/pause`);
  const history = await (await h.raw('GET', `/v1/events?since=1&sandbox=${made.id}`)).text();
  assert.deepEqual(
    history
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).type),
    ['paused'],
  );
  const stop = new AbortController();
  const live = await fetch(`${h.url}/v1/events?follow=true&since=0`, {
    headers: h.headers,
    signal: stop.signal,
  });
  const reader = live.body!.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  await h.post(`/v1/sandboxes/${made.id}/resume`);
  while (!text.includes('"resumed"')) text += (await reader.read()).value ?? assert.fail('it ended');
  stop.abort();
  await reader.cancel().catch(() => {});
});
