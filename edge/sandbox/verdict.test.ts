import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { VmmExit } from '../vmm/port.ts';
import { killedVerdict, lostVerdict, machineVerdict } from './verdict.ts';

const exit = (parts: Partial<VmmExit>): VmmExit => ({
  ...{ exitCode: null, signalName: null, isExpected: false, stderrTail: '', consoleTail: '' },
  ...parts,
});

test('what a guest did to itself is no failure of ours, everything else is', () => {
  const cases: [VmmExit | null, string, boolean][] = [
    [
      exit({ exitCode: 0, consoleTail: 'Kernel panic - not syncing: sysrq triggered crash' }),
      'guest_panic',
      false,
    ],
    [
      exit({ exitCode: 0, consoleTail: 'Kernel panic - not syncing: System is deadlocked on memory' }),
      'out_of_memory',
      false,
    ],
    [exit({ exitCode: 0, consoleTail: 'reboot: Power down' }), 'exited', false],
    [exit({ signalName: 'SIGKILL' }), 'vmm_lost', true],
    [exit({ exitCode: 1, stderrTail: 'qemu: cannot' }), 'vmm_lost', true],
    [null, 'vmm_lost', true],
  ];
  for (const [end, reason, infra] of cases) {
    const verdict = machineVerdict(end, 5);
    assert.deepEqual([verdict.reason, verdict.infra, verdict.at], [reason, infra, 5]);
  }
  assert.match(machineVerdict(exit({ exitCode: 1, stderrTail: 'qemu: cannot' }), 0).evidence, /qemu: cannot/);
});

test('evidence is bounded and keeps the end, where the reason stands', () => {
  const { evidence } = lostVerdict(`${'x'.repeat(20_000)}the end`, 0);
  assert.ok(evidence.length <= 8192 && evidence.endsWith('the end'));
  assert.equal(killedVerdict('deadline', 1).infra, false);
});
