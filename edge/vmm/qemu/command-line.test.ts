import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { MachineId } from '../../../sdk/index.ts';
import { type Acceleration, commandLine, type MachineStart } from './command-line.ts';

const id = 'abcd0123456789efghij' as MachineId;
const shape = { vcpus: 2, memoryMiB: 256, diskMiB: 1024, rootPath: '/data/a, b=c/root.erofs' };
const tcg: Acceleration = { accelerator: 'tcg', cpuModel: 'max', translationCacheMiB: 64 };
const boot: MachineStart = {
  kind: 'boot',
  memoryPath: '/data/v1,x/memory',
  diskPath: '/data/v1/disk.qcow2',
  kernelPath: '/data/vmlinuz',
  initrdPath: '/data/initrd',
  kernelArgs: ['snapgate.token=1'],
};
const clone: MachineStart = { kind: 'clone', memoryName: '/dev/null/memory' };

const option = (argv: string[], name: string) =>
  argv.flatMap((argument, index) => (argument === name ? [argv[index + 1] ?? ''] : []));

test('paths with commas reach QEMU as JSON, unharmed', () => {
  const argv = commandLine(id, shape, tcg, boot);
  const [memory] = option(argv, '-object').map((text) => JSON.parse(text));
  assert.equal(memory['mem-path'], '/data/v1,x/memory');
  assert.equal(memory.size, 256 * 2 ** 20);
  assert.equal(memory.share, true);
  const [root, scratch] = option(argv, '-blockdev').map((text) => JSON.parse(text));
  assert.deepEqual(
    [root.file.filename, root.file.locking, root['read-only'], root.file['read-only']],
    ['/data/a, b=c/root.erofs', 'off', true, true],
  );
  assert.deepEqual(
    [scratch.driver, scratch.discard, scratch.file.filename],
    ['qcow2', 'unmap', '/data/v1/disk.qcow2'],
  );
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

test('a clone is the same machine as the boot but for kernel, memory name, disk and waiting for state', () => {
  const withoutFiles = (argv: string[]) => {
    const text = argv.join('\n').replaceAll(/"(mem-path|filename)":"[^"]*"/g, '"$1"');
    return text.slice(0, text.search(/\n-(kernel|incoming)\n/));
  };
  const booted = commandLine(id, shape, tcg, boot);
  const cloned = commandLine(id, shape, tcg, clone);
  assert.equal(withoutFiles(cloned), withoutFiles(booted));
  assert.deepEqual(option(cloned, '-incoming'), ['defer']);
  assert.deepEqual(option(cloned, '-kernel'), []);
  assert.equal(option(booted, '-append')[0], 'console=ttyS0 panic=-1 quiet snapgate.token=1');
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
