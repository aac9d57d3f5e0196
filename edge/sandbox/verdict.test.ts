import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProcessStatus } from '../guest/index.ts';
import type { VmmExit } from '../vmm/port.ts';
import { deadlineVerdict, lostVerdict, machineVerdict, processVerdict } from './verdict.ts';

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
  const deadline = deadlineVerdict({ deadlineAt: 0, generation: 3 }, 1);
  assert.deepEqual([deadline.reason, deadline.infra], ['deadline', false]);
  assert.match(deadline.evidence, /generation 3.*1970-01-01T00:00:00/);
});

test('a VMM that the host killed for want of memory, or that got none, ended by pressure on the node', () => {
  const pressed = machineVerdict(exit({ signalName: 'SIGKILL' }), 0, true);
  assert.deepEqual([pressed.reason, pressed.infra], ['node_pressure', true]);
  const starved = machineVerdict(exit({ exitCode: 1, stderrTail: 'Cannot allocate memory' }), 0);
  assert.deepEqual([starved.reason, starved.infra], ['node_pressure', true]);
  assert.equal(machineVerdict(exit({ signalName: 'SIGSEGV' }), 0, true).reason, 'vmm_lost');
});

test('a process ended by its own doing, and its verdict says which', () => {
  const status: ProcessStatus = {
    ...{ id: 'p', pid: 2, state: 'exited', exitCode: 0, signal: null },
    ...{ isTimedOut: false, isOutOfMemory: false },
  };
  const full = {
    ...{ memoryTotalBytes: 1, memoryUsedBytes: 1, memoryCacheBytes: 0 },
    // What ext4 still says when it takes no more.
    ...{
      diskTotalBytes: 527_650_816,
      diskUsedBytes: 516_915_200,
      cpuCount: 1,
      cpuUsedPercent: 0,
      processCount: 1,
    },
  };
  const cases: [Partial<ProcessStatus>, string][] = [
    [{}, 'exited'],
    [{ exitCode: 3 }, 'disk_full'],
    [{ exitCode: null, signal: 9, isTimedOut: true }, 'deadline'],
    [{ exitCode: null, signal: 9, isOutOfMemory: true }, 'out_of_memory'],
    [{ exitCode: null, signal: 15 }, 'signal'],
  ];
  for (const [change, reason] of cases) {
    const verdict = processVerdict({ ...status, ...change }, { at: 7, said: 'last words', metrics: full });
    assert.deepEqual([verdict.reason, verdict.infra, verdict.at], [reason, false, 7]);
    assert.match(verdict.evidence, /last words/);
  }
  const roomy = { ...full, diskUsedBytes: 0 };
  assert.equal(processVerdict({ ...status, exitCode: 3 }, { at: 0, metrics: roomy }).reason, 'exited');
});
