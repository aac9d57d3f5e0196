import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { createSecretBox } from './sealed-secrets.ts';

test('secrets open again for their sandbox on their node, and for nobody else', () => {
  const key = randomBytes(32);
  const secrets = { API_TOKEN: 'hush', B: '\u00e9' };
  const sealed = createSecretBox(key).seal('a', secrets);
  assert.ok(sealed !== null && !Buffer.from(sealed, 'base64').includes('hush'));
  assert.deepEqual(createSecretBox(key).open('a', sealed), secrets);
  assert.equal(createSecretBox(key).open('b', sealed), null);
  assert.equal(createSecretBox(randomBytes(32)).open('a', sealed), null);
  const bent = Buffer.from(sealed, 'base64');
  bent[bent.length - 1]! ^= 1;
  assert.equal(createSecretBox(key).open('a', bent.toString('base64')), null);
  assert.equal(createSecretBox(key).open('a', ''), null);
  assert.equal(createSecretBox(key).seal('a', {}), null);
});
