import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { GatewayError } from '../../sdk/index.ts';
import { FrameReader, frameHeader, jsonFrame } from './http-frames.ts';

const dataFrame = (data: Buffer) => Buffer.concat([frameHeader('data', data.length), data]);

test('frames come out as they went in, however the bytes are cut', () => {
  const part = fc.oneof(
    fc.uint8Array({ maxLength: 50 }).map((bytes) => ({ type: 'data' as const, data: Buffer.from(bytes) })),
    fc.jsonValue().map((value) => ({ type: 'trailers' as const, value })),
  );
  fc.assert(
    fc.property(
      fc.array(part, { maxLength: 20 }),
      fc.array(fc.integer({ min: 1, max: 20 }), { minLength: 1 }),
      (parts, cuts) => {
        const sent = Buffer.concat(
          parts.map((frame) =>
            frame.type === 'data' ? dataFrame(frame.data) : jsonFrame('trailers', frame.value),
          ),
        );
        const seen: unknown[] = [];
        const reader = new FrameReader({
          onJson(type, value) {
            seen.push([type, value]);
            return 'frames';
          },
          onData: (piece) => seen.push(piece.toString('hex')),
        });
        for (let at = 0, cut = 0; at < sent.length; cut++) {
          const size = cuts[cut % cuts.length]!;
          assert.equal(reader.push(sent.subarray(at, at + size)).length, 0);
          at += size;
        }
        const expected = parts.map((frame) =>
          frame.type === 'data'
            ? frame.data.toString('hex')
            : ['trailers', JSON.parse(JSON.stringify(frame.value))],
        );
        assert.deepEqual(joined(seen), joined(expected));
      },
    ),
  );
});

/** Pieces of data next to each other become one. */
function joined(values: readonly unknown[]): unknown[] {
  const result: unknown[] = [];
  for (const value of values) {
    const last = result.at(-1);
    if (typeof value === 'string' && typeof last === 'string') result[result.length - 1] = last + value;
    else if (value !== '') result.push(value);
  }
  return result;
}

test('bytes behind the frame that ends the framing are handed back', () => {
  const reader = new FrameReader({ onJson: () => 'raw', onData: () => assert.fail() });
  const rest = reader.push(Buffer.concat([jsonFrame('head', {}), Buffer.from('raw bytes')]));
  assert.equal(rest.toString(), 'raw bytes');
  assert.equal(reader.push(Buffer.from('more')).toString(), 'more');
});

test('what is no frame is refused before anything of it is kept', () => {
  for (const bytes of [
    Buffer.from('HTTP/1.1 200 OK\r\n'),
    Buffer.from([9, 0, 0, 0, 1, 0]),
    frameHeader('head', 0),
    frameHeader('head', 0xffff_ffff),
    Buffer.concat([frameHeader('head', 1), Buffer.from('{')]),
  ]) {
    const reader = new FrameReader({ onJson: () => assert.fail(), onData: () => assert.fail() });
    assert.throws(() => reader.push(bytes), GatewayError);
  }
});
