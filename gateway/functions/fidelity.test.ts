import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { startHarness } from '../testing/harness.ts';
import { rawConnect } from '../testing/raw-client.ts';

const token = fc.stringMatching(/^[a-zA-Z][a-zA-Z0-9!#$%&'*+.^|~-]{0,20}$/);
/** Names a proxy has business with; every other one must go through untouched. */
const controlled =
  /^(host|connection|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade|expect|content-length|forwarded|x-forwarded-.*|x-real-ip|x-request-id|x-snapgate-.*|authorization|x-api-key|date|server-timing)$/i;
const value = fc
  .stringMatching(/^[\x21-\x7e\xa0-\xff]([\x20-\x7e\xa0-\xff]{0,40}[\x21-\x7e\xa0-\xff])?$/)
  .filter((text) => text.trim() === text);
const headers = fc.array(
  fc.tuple(
    token.filter((name) => !controlled.test(name)),
    value,
  ),
  { maxLength: 12 },
);
const chunks = fc.array(fc.uint8Array({ minLength: 1, maxLength: 3000 }), { maxLength: 8 });
const target = fc.stringMatching(/^\/[a-zA-Z0-9%/.?&=;:@!$'()*+,~_-]{0,40}$/);

test('random targets, headers, bodies and chunkings arrive byte-identical in both directions', async () => {
  let seen = { url: '', rawHeaders: [] as string[], body: Buffer.alloc(0) };
  let reply = { headers: [] as [string, string][], chunks: [] as Uint8Array[] };
  await using h = await startHarness({
    listener: async (request, response) => {
      const parts: Buffer[] = [];
      for await (const part of request) parts.push(part);
      seen = { url: request.url ?? '', rawHeaders: request.rawHeaders, body: Buffer.concat(parts) };
      response.writeHead(200, reply.headers.flat());
      for (const chunk of reply.chunks) response.write(chunk);
      response.end();
    },
  });
  await fc.assert(
    fc.asyncProperty(
      target,
      headers,
      chunks,
      headers,
      chunks,
      fc.boolean(),
      async (path, up, upBody, down, downBody, hasLength) => {
        reply = { headers: down, chunks: downBody };
        const sent = Buffer.concat(upBody);
        using client = await rawConnect(h.port);
        const framing = hasLength ? `Content-Length: ${sent.length}` : 'Transfer-Encoding: chunked';
        const lines = up.map(([name, text]) => `${name}: ${text}\r\n`).join('');
        client.write(
          `POST /fn/open${path} HTTP/1.1\r\nHost: a\r\n${framing}\r\nConnection: close\r\n${lines}\r\n`,
        );
        for (const chunk of upBody) {
          if (!hasLength) client.write(`${chunk.length.toString(16)}\r\n`);
          client.write(Buffer.from(chunk));
          if (!hasLength) client.write('\r\n');
        }
        if (!hasLength) client.write('0\r\n\r\n');
        await client.ended();
        const [head = '', ...rest] = client.received().split('\r\n\r\n');
        assert.equal(seen.url, path);
        assert.deepEqual(seen.body, sent);
        assert.deepEqual(pairsOf(seen.rawHeaders), up);
        const answered = head
          .split('\r\n')
          .slice(1)
          .map((line): [string, string] => [
            line.slice(0, line.indexOf(':')),
            line.slice(line.indexOf(':') + 2),
          ]);
        assert.deepEqual(pairsOf(answered.flat()), down);
        assert.deepEqual(dechunk(Buffer.from(rest.join('\r\n\r\n'), 'latin1')), Buffer.concat(downBody));
      },
    ),
    { numRuns: 60 },
  );
});

/** Header pairs a proxy has no business with. */
function pairsOf(rawHeaders: readonly string[]): [string, string][] {
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (!controlled.test(rawHeaders[at]!)) pairs.push([rawHeaders[at]!, rawHeaders[at + 1]!]);
  }
  return pairs;
}

function dechunk(data: Buffer): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = data.indexOf('\r\n', at);
    const size = Number.parseInt(data.toString('latin1', at, end), 16);
    if (size === 0) return Buffer.concat(parts);
    parts.push(data.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}
