import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createRouteParser, splitTarget } from './route.ts';

const parse = createRouteParser('example.test');
const byPath = (path: string) => parse('127.0.0.1:7070', path);

test('a trailing slash reaches the same function as none (openfaas/faas#714)', () => {
  assert.equal(byPath('/fn/x')?.target, '/');
  assert.equal(byPath('/fn/x/')?.target, '/');
  assert.equal(byPath('/fn/x?q=1')?.target, '/?q=1');
  assert.equal(byPath('/fn/x/?q=1')?.target, '/?q=1');
});

test('the suffix stays byte for byte what the client sent (Azure/azure-functions-host#3350)', () => {
  for (const suffix of ['/a%2Fb', '//a//b', '/%zz', '/a/../../etc', '/a;b=c?d=e&d=f+g%20h', '/?', '/@x/é']) {
    assert.equal(byPath(`/fn/x${suffix}`)?.target, suffix);
  }
});

test('a version or an alias follows the template behind an @, which may be escaped', () => {
  assert.deepEqual(
    [byPath('/fn/x@v3/y'), byPath('/fn/x%40canary/y')].map((route) => [route?.template, route?.ref]),
    [
      ['x', 'v3'],
      ['x', 'canary'],
    ],
  );
  assert.equal(byPath('/fn/x/y@v3')?.ref, undefined);
});

test('a slash that is escaped into the template name does not become a path', () => {
  assert.equal(byPath('/fn/x%2Fy/z')?.template, 'x/y');
  assert.equal(byPath('/fn/%zz/z')?.template, '%zz');
});

test('paths beside /fn/ are no function routes', () => {
  for (const path of ['/fn', '/fn/', '/fn//x', '/fn/?q', '/fnx/y', '/', '//fn/x', '/v1/fn/x']) {
    assert.equal(byPath(path), null, path);
  }
});

test('a template answers at its own host, whatever the port and the case', () => {
  const route = parse('Hello.FN.Example.Test:7443', '/a?b');
  assert.deepEqual(route, { template: 'hello', ref: undefined, target: '/a?b', prefix: '' });
  for (const host of ['fn.example.test', 'a.b.fn.example.test', 'hello.fn.example.test.evil', '']) {
    assert.equal(parse(host, '/a'), null, host);
  }
});

test('an absolute request target is split into authority and path', () => {
  assert.deepEqual(splitTarget('http://a:1/fn/x?y'), { authority: 'a:1', path: '/fn/x?y' });
  assert.deepEqual(splitTarget('http://a'), { authority: 'a', path: '/' });
  assert.deepEqual(splitTarget('http://a?b'), { authority: 'a', path: '/?b' });
  assert.deepEqual(splitTarget('*'), { authority: undefined, path: '*' });
  assert.equal(splitTarget('http:///x'), null);
  assert.equal(splitTarget('ftp://a/x'), null);
});
