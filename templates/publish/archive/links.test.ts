import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { escapingLink } from './links.ts';
import type { TreeEntry } from './tree.ts';

const link = (path: string, target: string): TreeEntry => ({ kind: 'link', path, target });

for (const [path, target] of [
  ['a', '/etc/passwd'],
  ['a', '..'],
  ['d/a', '../..'],
  ['d/a', './../../x'],
  ['a', 'a'],
] as const) {
  test(`${path} → ${target} leads out or nowhere`, () => {
    assert.equal(escapingLink([link(path, target)])?.path, path);
  });
}

for (const [path, target] of [
  ['a', 'b'],
  ['d/a', '../b'],
  ['d/e/a', '../../d/./b'],
  ['a', '.'],
] as const) {
  test(`${path} → ${target} stays inside`, () => {
    assert.equal(escapingLink([link(path, target)]), undefined);
  });
}

test('a link that is harmless by its text leads out through another link', () => {
  const shortcut = link('p/q/shortcut', '../../a');
  assert.equal(escapingLink([shortcut, link('p/q/out', 'shortcut/../../x')])?.path, 'p/q/out');
  assert.equal(escapingLink([shortcut]), undefined);
});

// The kernel is the judge: made for real below a folder, a link that was accepted must never resolve outside of it.
test('no accepted set of links resolves outside of its folder', () => {
  const step = fc.constantFrom('a', 'b', 'c', '..', '.');
  const target = fc.array(step, { minLength: 1, maxLength: 6 }).map((steps) => steps.join('/'));
  const path = fc.constantFrom('a', 'b', 'd/a', 'd/b', 'd/e/a', 'd/e/c', 'b2');
  const links = fc.uniqueArray(fc.tuple(path, target), { selector: ([name]) => name, maxLength: 6 });
  const outer = mkdtempSync(join(tmpdir(), 'snapgate-links-'));
  try {
    let run = 0;
    fc.assert(
      fc.property(links, (pairs) => {
        const entries = pairs.map(([name, to]) => link(name, to));
        if (escapingLink(entries) !== undefined) return;
        run += 1;
        const root = join(outer, String(run), 'x');
        mkdirSync(join(root, 'd/e'), { recursive: true });
        for (const [name, to] of pairs) symlinkSync(to, join(root, name));
        for (const [name] of pairs) {
          let resolved: string;
          try {
            resolved = realpathSync(join(root, name));
          } catch {
            continue;
          }
          assert.ok(resolved === root || resolved.startsWith(`${root}/`), `${name} is ${resolved}`);
        }
      }),
      { numRuns: 300 },
    );
    assert.ok(run > 20, 'most sets were refused, so nothing was tried');
  } finally {
    rmSync(outer, { recursive: true, force: true });
  }
});
