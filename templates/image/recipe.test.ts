import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { normaliseRecipe, recipeKey } from './recipe.ts';

const keyOf = (packages: string[]): string =>
  recipeKey('root', normaliseRecipe({ suite: 'bookworm', packages }));

test('the order and repetition of packages does not change a recipe', () => {
  assert.equal(keyOf(['python3', 'curl']), keyOf(['curl', 'python3', 'curl']));
  assert.notEqual(keyOf(['python3']), keyOf(['python3', 'curl']));
});

test('the same parts give different keys for different kinds of image', () => {
  assert.notEqual(recipeKey('root', { suite: 'bookworm' }), recipeKey('kernel', { suite: 'bookworm' }));
});

test('names that could be options, paths or shell text are refused, and the field is named', () => {
  const bad = [
    '--option',
    '-y',
    '../x',
    'a/b',
    'a b',
    'A',
    'x',
    '',
    'curl;id',
    '$(id)',
    'a\nb',
    'é2',
    'curl=1.0',
  ];
  for (const name of bad) {
    assert.throws(
      () => normaliseRecipe({ suite: 'bookworm', packages: [name] }),
      (error) => isGatewayError(error, 'invalid_definition') && error.details.field === 'image.packages',
      name,
    );
    assert.throws(
      () => normaliseRecipe({ suite: name, packages: [] }),
      (error) => isGatewayError(error, 'invalid_definition') && error.details.field === 'image.debian',
      name,
    );
  }
});

test('names as Debian has them are taken', () => {
  const packages = ['g++', 'libc6', 'libstdc++6', 'python3.11', '0ad', 'a2ps'];
  assert.deepEqual(normaliseRecipe({ suite: 'bookworm', packages }).packages, [...packages].sort());
});

test('a recipe has a bounded number of packages', () => {
  const packages = Array.from({ length: 257 }, (_, index) => `package-${index}`);
  assert.throws(() => normaliseRecipe({ suite: 'bookworm', packages }), /more than 256/);
});
