import assert from 'node:assert/strict';
import { test } from 'node:test';
import { allowsAnything, effectiveRules } from './choice.ts';

test('a sandbox without rules of its own has those of its template', () => {
  const template = { 'a.example.com': true };
  assert.deepEqual(
    effectiveRules(template, null).rules.map(({ text }) => text),
    ['a.example.com'],
  );
  assert.deepEqual(
    effectiveRules(template, { kind: 'native', rules: { '*': true } }).rules.map(({ text }) => text),
    ['*'],
  );
  assert.equal(effectiveRules(template, { kind: 'e2b' }).otherwise, 'allow');
});

test('rules that allow nothing are known as such, whatever they say', () => {
  assert.equal(allowsAnything(effectiveRules({}, null)), false);
  assert.equal(allowsAnything(effectiveRules({ '*': false }, null)), false);
  assert.equal(allowsAnything(effectiveRules({}, { kind: 'e2b', allowInternetAccess: false })), false);
  assert.equal(allowsAnything(effectiveRules({}, { kind: 'e2b', denyOut: ['93.184.216.34'] })), true);
});
