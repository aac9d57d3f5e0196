import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { loadOwnCertificate } from './authority.ts';

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'sg-tls-'));
});
after(() => rm(directory, { recursive: true }));

const dayMs = 86_400_000;
const load = (domain: string, now = Date.now()) =>
  loadOwnCertificate(join(directory, 'tls'), domain, { clock: { now: () => now } });

test('the authority outlives everything; its leaf follows the domain and is renewed before it expires', async () => {
  const first = await load('sb.test');
  const ca = new X509Certificate(await readFile(first.caPath ?? ''));
  const leaf = new X509Certificate(first.cert);
  assert.ok(ca.ca && !leaf.ca && leaf.verify(ca.publicKey) && leaf.checkIssued(ca));
  for (const name of ['49983-abc.sb.test', 'api.sb.test', 'sb.test', 'hello.fn.sb.test', 'localhost'])
    assert.ok(leaf.checkHost(name), name);
  assert.equal(leaf.checkHost('a.b.sb.test'), undefined);
  assert.ok(leaf.checkIP('127.0.0.1'));

  assert.deepEqual(await load('sb.test'), first);
  const other = await load('other.test');
  const soon = await load('other.test', Date.now() + 370 * dayMs);
  for (const changed of [other, soon]) {
    assert.notEqual(changed.cert, first.cert);
    assert.ok(new X509Certificate(changed.cert).verify(ca.publicKey));
  }
  assert.notEqual(soon.cert, other.cert);
});

test('keys are for their owner only, nothing half-written stays, and a damaged file is replaced', async () => {
  const names = await readdir(join(directory, 'tls'));
  assert.deepEqual(names.sort(), ['ca.key', 'ca.pem', 'server.key', 'server.pem']);
  for (const name of ['ca.key', 'server.key'])
    assert.equal((await stat(join(directory, 'tls', name))).mode & 0o777, 0o600);
  await writeFile(join(directory, 'tls', 'server.pem'), 'garbage');
  const again = await load('other.test');
  assert.ok(new X509Certificate(again.cert).checkHost('api.other.test'));
});
