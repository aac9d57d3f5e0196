import assert from 'node:assert/strict';
import { DatabaseSync } from 'node:sqlite';
import { test } from 'node:test';
import { checkSignature, signFile } from './signature.ts';
import { createSandboxTokens, isSame, loadTokenSecret } from './tokens.ts';

test('tokens outlive a restart, and differ by sandbox and by purpose', () => {
  const db = new DatabaseSync(':memory:');
  const [first, second] = [
    createSandboxTokens(loadTokenSecret(db)),
    createSandboxTokens(loadTokenSecret(db)),
  ];
  assert.equal(first.envd('a'), second.envd('a'));
  assert.equal(new Set([first.envd('a'), first.envd('b'), first.traffic('a'), first.traffic('b')]).size, 4);
  assert.notEqual(
    createSandboxTokens(loadTokenSecret(new DatabaseSync(':memory:'))).envd('a'),
    first.envd('a'),
  );
  assert.ok(isSame(first.envd('a'), second.envd('a')) && !isSame('x', undefined) && !isSame('x', 'y'));
});

test('a signature holds for its file, operation, user and time only', () => {
  const file = { path: '/a', operation: 'read', user: '', expiration: 2000 } as const;
  const signature = signFile(file, 'token');
  const check = (changes: object, now = 1_999_000) =>
    checkSignature({ ...file, signature, ...changes }, 'token', now);
  assert.equal(check({}), null);
  assert.equal(check({}, 2_000_001), 'signature is already expired');
  for (const changes of [
    { path: '/b' },
    { operation: 'write' },
    { user: 'root' },
    { expiration: 9999 },
    { expiration: undefined },
  ])
    assert.equal(check(changes), 'invalid signature', JSON.stringify(changes));
});

test('a signature is the text that clients compute', () => {
  // v1_ and the unpadded base64 of SHA-256 over `/file.txt:read::token`, computed with another tool.
  const file = { path: '/file.txt', operation: 'read', user: '', expiration: undefined } as const;
  assert.equal(signFile(file, 'token'), 'v1_92mRKyX43PKbX7Za+1ADNGhCG1qnWZp3X3Xi0P9WoJo');
});
