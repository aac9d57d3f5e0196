// Everything done before the snapshot is kept in it: every machine wakes up with this table in memory.
import { createHash } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { createServer } from 'node:http';

const squares = new Map(Array.from({ length: 100_000 }, (_, n) => [n, n * n]));
const loadedAt = new Date().toISOString();
let requests = 0;

// Randomness kept in this process (Math.random, OpenSSL's generator) is part of the snapshot too, and would be the same
// in every machine. So ids are derived from a seed that is drawn from the kernel again after each restore.
function seedFromKernel() {
  const bytes = Buffer.alloc(32);
  const file = openSync('/dev/urandom', 'r');
  readSync(file, bytes, 0, bytes.length, null);
  closeSync(file);
  return bytes;
}
let seed = seedFromKernel();
const newId = () => createHash('sha256').update(seed).update(String(requests)).digest('hex').slice(0, 16);

const server = createServer((request, response) => {
  const [pathname, query] = request.url.split('?', 2);
  if (pathname === '/healthz') return response.end('ok\n');
  if (pathname === '/_snapgate/restored') {
    seed = seedFromKernel();
    return response.end('reseeded\n');
  }
  requests += 1;
  const n = Number(new URLSearchParams(query).get('n') ?? 12);
  const answer = { id: newId(), n, square: squares.get(n) ?? null, requests, loadedAt };
  response.setHeader('content-type', 'application/json');
  response.end(`${JSON.stringify(answer)}\n`);
});
// Longer than the gateway keeps a connection, so that it never meets one that is just being closed.
server.keepAliveTimeout = 120_000;
server.listen(Number(process.env.PORT ?? 8000));
