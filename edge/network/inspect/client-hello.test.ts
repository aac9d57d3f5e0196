import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { clientHello } from '../testing/guest-io.ts';
import { readServerName } from './client-hello.ts';

const hello = await clientHello('www.example.com');

test('the name is read from a real ClientHello, and its absence seen', async () => {
  assert.deepEqual(readServerName(hello), { kind: 'name', name: 'www.example.com' });
  assert.deepEqual(readServerName(await clientHello(undefined)), { kind: 'name', name: null });
});

test('every prefix of a ClientHello asks for more', () => {
  for (let length = 0; length < hello.length; length += 1)
    assert.deepEqual(readServerName(hello.subarray(0, length)), { kind: 'more' });
});

test('a ClientHello spread over many records has the same name', () => {
  const message = hello.subarray(5);
  fc.assert(
    fc.property(fc.integer({ min: 1, max: message.length }), (size) => {
      const records: Buffer[] = [];
      for (let at = 0; at < message.length; at += size) {
        const part = message.subarray(at, at + size);
        const head = Buffer.from([22, 3, 1, 0, 0]);
        head.writeUInt16BE(part.length, 3);
        records.push(head, part);
      }
      const bytes = Buffer.concat(records);
      assert.deepEqual(
        readServerName(bytes),
        bytes.length > 16_384 ? { kind: 'invalid' } : { kind: 'name', name: 'www.example.com' },
      );
    }),
  );
});

test('two names in one ClientHello are refused, since the server could take the other one', () => {
  const one = Buffer.from('\0\0\x05a.com', 'latin1');
  const list = Buffer.concat([one, one]);
  const extension = Buffer.concat([Buffer.from([0, 0, 0, list.length + 2, 0, list.length]), list]);
  const body = Buffer.concat([
    Buffer.alloc(34),
    Buffer.from([0, 0, 2, 0x13, 1, 1, 0, 0, extension.length]),
    extension,
  ]);
  const bytes = Buffer.concat([Buffer.from([22, 3, 1, 0, body.length + 4, 1, 0, 0, body.length]), body]);
  assert.deepEqual(readServerName(bytes), { kind: 'invalid' });
});

test('other protocols and damaged messages are never a name of their own and never throw', () => {
  assert.deepEqual(readServerName(Buffer.from('GET / HTTP/1.1\r\n')), { kind: 'invalid' });
  assert.deepEqual(readServerName(Buffer.from('SSH-2.0-x\r\n')), { kind: 'invalid' });
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 600 }), (bytes) => void readServerName(Buffer.from(bytes))),
  );
  fc.assert(
    fc.property(fc.nat(hello.length - 1), fc.nat(255), (at, value) => {
      const damaged = Buffer.from(hello);
      damaged[at] = value;
      assert.ok(['name', 'more', 'invalid'].includes(readServerName(damaged).kind));
    }),
  );
});
