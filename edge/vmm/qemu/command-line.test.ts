import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineId } from '../../../sdk/index.ts';
import { type Acceleration, commandLine, type MachineStart } from './command-line.ts';

const id = 'abcd0123456789efghij' as MachineId;
const shape = { vcpus: 2, memoryMiB: 256, diskMiB: 1024, rootPath: '/data/a, b=c/root.erofs' };
const tcg: Acceleration = { accelerator: 'tcg', cpuModel: 'max', translationCacheMiB: 64 };
const boot: MachineStart = { kind: 'boot', kernelArgs: ['snapgate.token=1'] };
const clone: MachineStart = { kind: 'clone' };

const option = (argv: string[], name: string) =>
  argv.flatMap((argument, index) => (argument === name ? [argv[index + 1] ?? ''] : []));

test('no path of the host is on the line, and what is shared is inherited read-only', () => {
  for (const start of [boot, clone]) {
    const argv = commandLine(id, shape, tcg, start);
    assert.doesNotMatch(argv.join(' '), /\/data/);
    const [root, scratch] = option(argv, '-blockdev').map((text) => JSON.parse(text));
    assert.deepEqual(
      [root.file.filename, root.file.locking, root['read-only'], root.file['read-only']],
      ['/dev/fdset/1', 'off', true, true],
    );
    assert.deepEqual([scratch.driver, scratch.discard], ['qcow2', 'unmap']);
    if (start.kind === 'boot') assert.equal(scratch.file.filename, '/dev/fdset/2');
    else
      assert.deepEqual(
        [scratch.file.filename, scratch.backing.file.filename, scratch.backing['read-only']],
        ['disk.qcow2', '/dev/fdset/2', true],
      );
    const [memory] = option(argv, '-object').map((text) => JSON.parse(text));
    assert.deepEqual([memory.size, memory.share], [256 * 2 ** 20, true]);
  }
});

test('the chain of disk layers is said to its end, so that no header of a disk is believed', () => {
  const scratch = (start: MachineStart) =>
    JSON.parse(option(commandLine(id, shape, tcg, start), '-blockdev')[1]!);
  assert.equal(scratch(boot).backing, null);
  assert.equal(scratch(clone).backing.backing, null);
});

test('every VMM is confined, has no network, no display, no defaults, and starts with stopped vCPUs', () => {
  for (const start of [boot, clone]) {
    const argv = commandLine(id, shape, tcg, start);
    for (const flag of ['-nodefaults', '-no-user-config', '-no-reboot', '-S']) assert.ok(argv.includes(flag));
    assert.deepEqual(option(argv, '-display'), ['none']);
    assert.deepEqual(option(argv, '-sandbox'), [
      'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    ]);
    assert.match(option(argv, '-machine')[0]!, /mem-merge=off,dump-guest-core=off$/);
    assert.doesNotMatch(argv.join(' '), /netdev|virtio-net|balloon|virtio-mem|exec:|tcp:/);
    assert.deepEqual(option(argv, '-name'), [id]);
  }
});

test('a clone is the same machine as the boot but for kernel, disk and waiting for state', () => {
  const booted = commandLine(id, shape, tcg, boot);
  const cloned = commandLine(id, shape, tcg, clone);
  const common = (argv: string[]) => argv.filter((argument) => !argument.includes('scratch0'));
  assert.deepEqual(common(cloned).slice(0, -2), common(booted).slice(0, -6));
  assert.deepEqual(option(cloned, '-incoming'), ['defer']);
  assert.deepEqual(option(cloned, '-kernel'), []);
  assert.equal(option(booted, '-append')[0], 'console=ttyS0 panic=-1 quiet no_timer_check snapgate.token=1');
});

test('emulation and KVM differ in accelerator and CPU model alone', () => {
  const kvm: Acceleration = { ...tcg, accelerator: 'kvm', cpuModel: 'Westmere-v1' };
  const emulated = commandLine(id, shape, tcg, clone);
  const accelerated = commandLine(id, shape, kvm, clone);
  const different = emulated.flatMap((argument, index) =>
    argument === accelerated[index] ? [] : [[argument, accelerated[index]]],
  );
  assert.deepEqual(different, [
    ['tcg,thread=multi,tb-size=64', 'kvm'],
    ['max', 'Westmere-v1'],
  ]);
});

test('a machine with a network card has it in boot and clone alike, on a descriptor and with nothing to boot from', () => {
  const cards = [boot, clone].map((start) => {
    const argv = commandLine(id, { ...shape, hasNetworkCard: true }, tcg, start);
    assert.deepEqual(option(argv, '-netdev'), ['tap,id=net0,fd=7,vhost=off']);
    return option(argv, '-device')
      .map((text) => JSON.parse(text))
      .filter(({ driver }) => driver === 'virtio-net-pci');
  });
  assert.deepEqual(cards[0], cards[1]);
  assert.deepEqual(
    cards[0]?.map(({ mac, romfile }) => [mac, romfile]),
    [['02:73:6e:61:70:02', '']],
  );
});
