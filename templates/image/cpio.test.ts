import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type CpioEntry, packCpio } from './cpio.ts';

interface ReadMember {
  readonly name: string;
  readonly mode: number;
  readonly links: number;
  readonly device: readonly number[];
  readonly content: string;
}

/** A reader of the format written from its description, not from the writer: fixed fields, then name, then content. */
function readCpio(archive: Buffer): ReadMember[] {
  const members: ReadMember[] = [];
  for (let at = 0; ; ) {
    assert.equal(archive.toString('latin1', at, at + 6), '070701', `magic at ${at}`);
    const field = (index: number): number => {
      const start = at + 6 + index * 8;
      return Number.parseInt(archive.toString('latin1', start, start + 8), 16);
    };
    const align = (offset: number): number => Math.ceil(offset / 4) * 4;
    const nameEnd = at + 110 + field(11);
    const name = archive.toString('latin1', at + 110, nameEnd - 1);
    assert.equal(archive[nameEnd - 1], 0, 'names end with NUL');
    const start = align(nameEnd);
    if (name === 'TRAILER!!!') return members;
    const content = archive.toString('utf8', start, start + field(6));
    members.push({ name, mode: field(1), links: field(4), device: [field(9), field(10)], content });
    at = align(start + field(6));
  }
}

test('members come out as they went in, whatever the length of name and content', () => {
  const entries: CpioEntry[] = [{ type: 'directory', path: 'modules', mode: 0o755 }];
  for (let length = 0; length < 9; length += 1) {
    const content = Buffer.from('x'.repeat(length));
    entries.push({ type: 'file', path: `modules/${'m'.repeat(length + 1)}`, mode: 0o644, content });
  }
  const members = readCpio(packCpio(entries));
  assert.equal(members.length, entries.length);
  assert.deepEqual(members[0], { name: 'modules', mode: 0o040755, links: 2, device: [0, 0], content: '' });
  for (let length = 0; length < 9; length += 1) {
    assert.equal(members[length + 1]?.content, 'x'.repeat(length));
    assert.equal(members[length + 1]?.mode, 0o100644);
  }
});

test('the console is a character device with its numbers', () => {
  const console = { type: 'device', path: 'dev/console', mode: 0o600, major: 5, minor: 1 } as const;
  assert.deepEqual(readCpio(packCpio([console])), [
    { name: 'dev/console', mode: 0o020600, links: 1, device: [5, 1], content: '' },
  ]);
});

test('the same members give the same bytes', () => {
  const entries: CpioEntry[] = [{ type: 'file', path: 'init', mode: 0o755, content: Buffer.from('agent') }];
  assert.deepEqual(packCpio(entries), packCpio(structuredClone(entries)));
});

test('paths that lead elsewhere are refused', () => {
  for (const path of ['/init', '../init', 'a/../../b', '', 'a\0b', 'a b', 'x'.repeat(256)]) {
    assert.throws(() => packCpio([{ type: 'directory', path, mode: 0o755 }]), TypeError, path);
  }
});
