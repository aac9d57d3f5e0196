import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isGatewayError } from '../errors.ts';
import { readNdjson } from './ndjson.ts';

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const encode = (text: string) => new TextEncoder().encode(text);

function streamOf(...chunks: Uint8Array[]): { body: ReadableStream<Uint8Array>; isCancelled: () => boolean } {
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        const chunk = chunks.shift();
        if (chunk === undefined) controller.close();
        else controller.enqueue(chunk);
      },
      cancel() {
        isCancelled = true;
      },
    },
    { highWaterMark: 0 },
  );
  return { body, isCancelled: () => isCancelled };
}

test('lines are found wherever the chunks are cut, even inside a character', async () => {
  const bytes = encode('{"a":"é"}\n\n{"b":2}\r\n{"c":3}');
  for (let size = 1; size <= bytes.length; size++) {
    const chunks: Uint8Array[] = [];
    for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.slice(at, at + size));
    const values = await collect(readNdjson(streamOf(...chunks).body));
    assert.deepEqual(values, [{ a: 'é' }, { b: 2 }, { c: 3 }], `chunks of ${size}`);
  }
});

test('a line that never ends is given up at its bound and the connection closed', async () => {
  const { body, isCancelled } = streamOf(encode('"aaaa'), encode('aaaa'), encode('aaaa'), encode('aaaa'));
  await assert.rejects(collect(readNdjson(body, 10)), (error) => isGatewayError(error, 'internal'));
  assert.ok(isCancelled());
});

test('a long line that arrives whole is refused too', async () => {
  const { body } = streamOf(encode(`"${'a'.repeat(20)}"\n1\n`));
  await assert.rejects(collect(readNdjson(body, 10)), /longer than 10/);
});

test('many short lines in one chunk are not a long line', async () => {
  const values = await collect(readNdjson(streamOf(encode('1\n2\n3\n4\n5\n6\n7\n8\n')).body, 3));
  assert.deepEqual(values, [1, 2, 3, 4, 5, 6, 7, 8]);
});

test('a line that is no JSON is an error, not skipped', async () => {
  await assert.rejects(collect(readNdjson(streamOf(encode('{"a":1}\nnope\n')).body)), /not JSON/);
});

test('whoever stops iterating closes the stream', async () => {
  const { body, isCancelled } = streamOf(encode('1\n'), encode('2\n'));
  for await (const value of readNdjson(body)) {
    assert.equal(value, 1);
    break;
  }
  assert.ok(isCancelled());
});
