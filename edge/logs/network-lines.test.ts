import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { NetworkRefusal, VersionDigest } from '../../sdk/index.ts';
import { refusalLines } from './network-lines.ts';

const refusal: NetworkRefusal = {
  at: 5,
  count: 3,
  machine: 'm1',
  sandbox: 's1',
  ruleSet: 'sandbox s1',
  kind: 'connection',
  name: 'a.example.com',
  address: '192.0.2.1',
  protocol: 'tcp',
  port: 22,
  rule: null,
  reason: 'no rule allows it',
};
const request = {
  digests: ['sha256:1' as VersionDigest],
  streams: ['stdout', 'network'] as const,
  tail: 7,
  follow: false,
  signal: new AbortController().signal,
};

test('a refusal is a line with all that is known of it, for people and for programs', async () => {
  const networks = {
    refusals: async (...words: unknown[]) => {
      assert.deepEqual(words, [{ digests: request.digests, machine: undefined }, 7]);
      return [refusal, { ...refusal, kind: 'name' as const, count: 1, address: null, port: null }];
    },
  };
  const lines = await refusalLines(networks, request);
  assert.deepEqual(
    lines.map(({ text }) => text),
    [
      'refused tcp a.example.com 192.0.2.1 port 22: no rule allows it (3 times) [sandbox s1]',
      'refused name a.example.com: no rule allows it [sandbox s1]',
    ],
  );
  assert.deepEqual(lines[0]?.network, refusal);
  assert.deepEqual([lines[0]?.stream, lines[0]?.machine, lines[0]?.at], ['network', 'm1', 5]);
});

test('who does not ask for them makes nobody look', async () => {
  const networks = { refusals: () => assert.fail('nobody asked') };
  assert.deepEqual(await refusalLines(networks, { ...request, streams: ['stdout'] }), []);
});
