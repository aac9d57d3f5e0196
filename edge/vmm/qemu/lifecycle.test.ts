import assert from 'node:assert/strict';
import { test } from 'node:test';
import { begin, finish, type Lifecycle, revert, type Step, steps } from './lifecycle.ts';

test('each step leads from its phase to the next one, or back', () => {
  for (const step of Object.keys(steps) as Step[]) {
    const busy = begin({ phase: steps[step].from }, step);
    assert.deepEqual(busy, { phase: 'busy', step });
    assert.equal(finish(busy).phase, steps[step].to);
    assert.equal(revert(busy).phase, steps[step].from);
  }
});

test('state can be loaded only once, and no step may overtake another', () => {
  const paused: Lifecycle = finish(begin({ phase: 'blank' }, 'load'));
  assert.throws(() => begin(paused, 'load'), /load of a VMM that is paused/);
  assert.throws(
    () => begin(begin(paused, 'saveState'), 'resume'),
    /resume of a VMM that is busy \(saveState\)/,
  );
  assert.throws(() => begin({ phase: 'over' }, 'resume'), /over/);
});

test('a VMM that ended during a step stays ended', () => {
  assert.equal(finish({ phase: 'over' }).phase, 'over');
  assert.equal(revert({ phase: 'over' }).phase, 'over');
});
