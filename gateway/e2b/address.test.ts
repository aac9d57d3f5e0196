import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createAddressParser, e2bDomainOf } from './address.ts';

const parse = createAddressParser('sb.test');
const at = (host: string, more: { path?: string; id?: string; port?: string } = {}) =>
  parse({ host, path: more.path ?? '/', sandboxId: more.id, sandboxPort: more.port });
const sandbox = (id: string, port: number) => ({ kind: 'sandbox', sandbox: id, port });

test('a host names port and sandbox, whatever its case, its port and what old clients append', () => {
  assert.deepEqual(at('49983-abc1.sb.test'), sandbox('abc1', 49_983));
  assert.deepEqual(at('8000-ABC1.SB.test:7443'), sandbox('abc1', 8000));
  assert.deepEqual(at('8000-abc1-client7.sb.test'), sandbox('abc1', 8000));
});

test('a host below the domain that names neither is told what is wrong with it', () => {
  for (const [host, text] of [
    ['x.sb.test', 'Invalid host'],
    ['70000-abc.sb.test', 'Invalid sandbox port'],
    ['0-abc.sb.test', 'Invalid sandbox port'],
    ['8000-a_b.sb.test', 'Invalid host'],
    ['sandbox.sb.test', 'Missing E2b-Sandbox-Id header'],
  ] as const)
    assert.deepEqual(at(host), { kind: 'invalid', text }, host);
});

test('headers count on local names only, so that a page of one sandbox cannot reach another by sending them', () => {
  const headers = { id: 'abc1', port: '8000' };
  for (const host of ['localhost:7070', '127.0.0.1:7070', '[::1]:7070', 'sandbox.sb.test'])
    assert.deepEqual(at(host, headers), sandbox('abc1', 8000), host);
  assert.deepEqual(at('8000-other.sb.test', headers), sandbox('other', 8000));
  assert.equal(at('example.org', headers), null);
  assert.deepEqual(at('localhost', { id: 'abc1' }), {
    kind: 'invalid',
    text: 'Missing E2b-Sandbox-Port header',
  });
  assert.deepEqual(at('localhost', { id: '../x', port: '1' }), {
    kind: 'invalid',
    text: 'Invalid sandbox ID',
  });
  assert.deepEqual(at('localhost', { id: 'abc', port: '1e3' }), {
    kind: 'invalid',
    text: 'Invalid sandbox port',
  });
});

test('the control API is known by its name, and by its paths on every other one', () => {
  assert.deepEqual(at('api.sb.test', { path: '/anything' }), { kind: 'control' });
  for (const path of ['/sandboxes', '/v2/sandboxes?limit=1', '/v3/templates', '/templates/x/tags', '/health'])
    assert.deepEqual(at('127.0.0.1:7070', { path }), { kind: 'control' }, path);
  for (const path of ['/v1/sandboxes', '/healthz', '/sandboxesx', '/v2/other', '/'])
    assert.equal(at('127.0.0.1:7070', { path }), null, path);
  assert.equal(at('hello.fn.sb.test'), null);
});

test('a domain of one label gets a second one, because no wildcard certificate holds for it', () => {
  assert.equal(e2bDomainOf('localhost'), 'snapgate.localhost');
  assert.equal(e2bDomainOf('sb.test'), 'sb.test');
});
