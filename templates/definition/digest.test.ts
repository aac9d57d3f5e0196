import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isVersionDigest } from '../../sdk/index.ts';
import { canonicalJson, versionDigest } from './digest.ts';
import { parseDefinition } from './parse.ts';

const parts = {
  definition: parseDefinition({ name: 'hello', env: { A: '1', B: '2' } }),
  contentDigest: 'sha256:a',
  kernelDigest: 'sha256:b',
  initrdDigest: 'sha256:c',
  rootDigest: 'sha256:d',
};

/** The same value with the members of every object in the opposite order. */
function reversed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(reversed);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, member]) => [key, reversed(member)]),
  );
}

test('canonical JSON does not depend on the order of members and means the same value', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      assert.equal(canonicalJson(reversed(value)), canonicalJson(value));
      assert.deepEqual(JSON.parse(canonicalJson(value)), JSON.parse(JSON.stringify(value)));
    }),
  );
});

test('members that are undefined do not count', () => {
  assert.equal(canonicalJson({ b: undefined, a: 1 }), '{"a":1}');
});

test('each part of a version changes its digest', () => {
  const digest = versionDigest(parts);
  assert.ok(isVersionDigest(digest));
  const others = [
    { ...parts, definition: parseDefinition({ name: 'hello', env: { A: '1', B: '3' } }) },
    ...(['contentDigest', 'kernelDigest', 'initrdDigest', 'rootDigest'] as const).map((key) => ({
      ...parts,
      [key]: 'sha256:other',
    })),
  ].map(versionDigest);
  assert.equal(new Set([digest, ...others]).size, others.length + 1);
});

test('a default that is spelt out gives the same digest as one that is left out', () => {
  const spelt = parseDefinition({ env: { B: '2', A: '1' }, public: false, name: 'hello' });
  assert.equal(versionDigest({ ...parts, definition: spelt }), versionDigest(parts));
});
