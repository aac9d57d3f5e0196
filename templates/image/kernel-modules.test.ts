import assert from 'node:assert/strict';
import { test } from 'node:test';
import { resolveModules } from './kernel-modules.ts';

const index = {
  dependencies: [
    'kernel/drivers/virtio/virtio.ko:',
    'kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko',
    'kernel/drivers/virtio/virtio_pci.ko: kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko',
    'kernel/fs/ext4/ext4.ko.xz: kernel/fs/jbd2/jbd2.ko.xz kernel/lib/crc16.ko.xz kernel/fs/mbcache.ko.xz',
    'kernel/fs/jbd2/jbd2.ko.xz:',
    'kernel/fs/mbcache.ko.xz:',
    'kernel/lib/crc16.ko.xz:',
    'kernel/arch/x86/crypto/crc32c-intel.ko:',
    'kernel/lib/libcrc32c.ko:',
    'kernel/a.ko:',
    'kernel/b.ko:',
    '',
  ].join('\n'),
  softDependencies: [
    '# Soft dependencies extracted from modules themselves.',
    'softdep libcrc32c pre: crc32c-intel post: a',
    'softdep ext4 pre: crc32c',
    'softdep a pre: b',
    'softdep b pre: a',
    '',
  ].join('\n'),
  builtin: 'kernel/fs/overlayfs/overlay.ko\nkernel/crypto/crc32c_generic.ko\n',
};

/** Every module comes after all it needs, and none comes twice. */
function assertOrder(order: string[]): void {
  assert.equal(new Set(order).size, order.length);
  for (const line of index.dependencies.split('\n').filter(Boolean)) {
    const [path, ...needed] = line.replace(':', '').split(' ');
    for (const other of needed) {
      if (order.includes(path!))
        assert.ok(order.indexOf(other) < order.indexOf(path!), `${other} before ${path}`);
      if (order.includes(path!)) assert.ok(order.includes(other), `${other} is there`);
    }
  }
}

test('modules come after what they need', () => {
  const order = resolveModules(index, ['virtio_pci', 'ext4']);
  assertOrder(order);
  assert.equal(order.at(-1), 'kernel/fs/ext4/ext4.ko.xz');
  assert.equal(order.length, 7);
});

test('dash and underscore in a name mean the same', () => {
  assert.deepEqual(resolveModules(index, ['crc32c_intel']), ['kernel/arch/x86/crypto/crc32c-intel.ko']);
});

test('what should be loaded before is, and what should be loaded after is not', () => {
  assert.deepEqual(resolveModules(index, ['libcrc32c']), [
    'kernel/arch/x86/crypto/crc32c-intel.ko',
    'kernel/lib/libcrc32c.ko',
  ]);
});

test('soft dependencies in a circle end', () => {
  assert.deepEqual(resolveModules(index, ['a']), ['kernel/b.ko', 'kernel/a.ko']);
});

test('modules built into the kernel need no file', () => {
  assert.deepEqual(resolveModules(index, ['overlay']), []);
});

test('a module that is nowhere is named', () => {
  assert.throws(() => resolveModules(index, ['erofs']), { code: 'build_failed', message: /erofs/ });
});
