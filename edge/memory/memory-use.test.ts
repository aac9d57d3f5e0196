import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseMemoryUse, readMemoryUse } from './memory-use.ts';

const mapping = (header: string, fields: Record<string, number>) =>
  [header, ...Object.entries(fields).map(([name, kib]) => `${name}:${String(kib).padStart(15)} kB`)].join(
    '\n',
  );

const smaps = [
  mapping('55d0c0000000-55d0c0800000 rw-p 00000000 00:00 0                          [heap]', {
    Size: 8192,
    Rss: 900,
    Pss: 900,
    Private_Dirty: 800,
    Anonymous: 900,
    Swap: 7,
  }),
  'VmFlags: rd wr mr mw me ac sd',
  mapping('7f0000000000-7f0010000000 rw-p 00000000 fe:00 131 /data/my image, v1/base.mem', {
    Size: 262144,
    Rss: 5000,
    Pss: 3000,
    Private_Dirty: 2900,
    Anonymous: 2048,
    Swap: 2,
  }),
  mapping('7f0020000000-7f0024000000 rwxp 00000000 00:00 0 ', { Rss: 4096, Pss: 4096, Private_Dirty: 4000 }),
  mapping('7f0030000000-7f0030100000 r-xp 00000000 fe:00 77 /usr/lib/libc.so.6', { Rss: 1000, Pss: 10 }),
  '',
].join('\n');

test('memory use separates RAM, translation cache and the rest', () => {
  assert.deepEqual(parseMemoryUse(smaps, '/data/my image, v1/base.mem'), {
    ram: { privateBytes: 2050 * 1024, residentBytes: 5000 * 1024, proportionalBytes: 3000 * 1024 },
    translationCacheBytes: 4000 * 1024,
    overheadBytes: 807 * 1024,
    proportionalBytes: (900 + 3000 + 4096 + 10) * 1024,
  });
});

test('memory use of a live process adds up', async () => {
  const use = await readMemoryUse(process.pid, '/nothing');
  assert.equal(use.ram.residentBytes, 0);
  assert.ok(use.overheadBytes > 1e6 && use.proportionalBytes >= use.overheadBytes);
});

test('memory use of a process that is gone rejects', async () => {
  await assert.rejects(readMemoryUse(2 ** 22 + 1, '/nothing'), { code: 'ENOENT' });
});
