import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineId, VersionDigest } from '../../sdk/index.ts';
import { clientHeaders, clientTrailers } from './response-headers.ts';

const facts = {
  requestId: 'r1',
  version: 'v2',
  meta: {
    machine: 'm'.repeat(20) as MachineId,
    digest: `sha256:${'0'.repeat(64)}` as VersionDigest,
    start: 'ready',
    timing: { queueMs: 1.23456, restoreMs: 0, execMs: 10 },
  },
} as const;

const ownHeaders = 12;

test("what a function sends as x-snapgate-* can't pass for the gateway's (openfaas/faas-provider#61)", () => {
  const { rawHeaders } = clientHeaders(
    200,
    [
      'X-Snapgate-Error',
      'gateway/internal',
      'x-snapgate-machine',
      'forged',
      'X-Request-Id',
      'other',
      'x-own',
      '1',
    ],
    facts,
    true,
  );
  assert.deepEqual(rawHeaders.slice(ownHeaders), ['x-own', '1']);
  assert.deepEqual(rawHeaders.slice(0, ownHeaders), [
    'x-snapgate-start',
    'ready',
    'x-snapgate-machine',
    'm'.repeat(20),
    'x-snapgate-version',
    'v2',
    'x-snapgate-digest',
    `sha256:${'0'.repeat(64)}`,
    'x-request-id',
    'r1',
    'server-timing',
    'queue;dur=1.235, restore;dur=0, exec;dur=10',
  ]);
});

test('hop-by-hop headers of the function stay here, also those it names in Connection', () => {
  const { rawHeaders } = clientHeaders(
    200,
    [
      'Connection',
      'close, x-hop',
      'X-Hop',
      '1',
      'Keep-Alive',
      'timeout=5',
      'Transfer-Encoding',
      'chunked',
      'a',
      '1',
    ],
    facts,
    true,
  );
  assert.deepEqual(rawHeaders.slice(ownHeaders), ['a', '1']);
});

test("the function's own server-timing is kept behind ours", () => {
  const { rawHeaders } = clientHeaders(200, ['Server-Timing', 'db;dur=3'], facts, true);
  assert.deepEqual(rawHeaders.slice(ownHeaders), ['Server-Timing', 'db;dur=3']);
});

test('a Trailer header goes only where trailers can follow', () => {
  const trailer = ['Trailer', 'x-sum'];
  assert.deepEqual(clientHeaders(200, trailer, facts, true).rawHeaders.slice(ownHeaders), trailer);
  assert.deepEqual(clientHeaders(200, trailer, facts, false).rawHeaders.slice(ownHeaders), []);
  const withLength = clientHeaders(200, [...trailer, 'Content-Length', '3'], facts, true);
  assert.deepEqual(withLength.rawHeaders.slice(ownHeaders), ['Content-Length', '3']);
});

test('a 204 loses its Content-Length, which HTTP forbids there', () => {
  assert.deepEqual(clientHeaders(204, ['Content-Length', '0'], facts, false), {
    rawHeaders: clientHeaders(204, [], facts, false).rawHeaders,
    contentLength: null,
  });
});

test('trailers that frame, route or authenticate are dropped', () => {
  const raw = [
    'x-sum',
    '1',
    'Content-Length',
    '5',
    'Set-Cookie',
    'a=1',
    'x-snapgate-error',
    'x',
    'Server-Timing',
    't',
  ];
  assert.deepEqual(clientTrailers(raw), [
    ['x-sum', '1'],
    ['Server-Timing', 't'],
  ]);
});
