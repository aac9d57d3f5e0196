import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CreatedSandbox, FileInfo, ProcessStatusInfo, SandboxId } from '../../sdk/index.ts';
import { type SandboxHarness, startSandboxHarness } from '../testing/sandbox-harness.ts';

let h: SandboxHarness;
let sandbox: CreatedSandbox;
let directory: string;
let base: string;
before(async () => {
  h = await startSandboxHarness();
  sandbox = await h.post('/v1/sandboxes', { template: 'open', env: { A: '1' }, secrets: { S: 'hush' } });
  directory = await h.sandboxes.directoryOf(sandbox.id as SandboxId);
  base = `/v1/sandboxes/${sandbox.id}`;
});
after(() => h[Symbol.asyncDispose]());

const start = (body: Record<string, unknown>) => h.post<ProcessStatusInfo>(`${base}/processes`, body);
const wait = (id: string) => h.get<ProcessStatusInfo>(`${base}/processes/${id}/wait`);
const put = (path: string, body: string | Uint8Array<ArrayBuffer>, headers: Record<string, string> = {}) =>
  fetch(`${h.url}${path}`, { method: 'PUT', headers: { ...h.headers, ...headers }, body });

describe('a process', () => {
  it('sees env and secrets of the sandbox under its own, and is waited for', async () => {
    const { id } = await start({ shell: 'echo $A-$S-$B; exit 3', env: { B: 'b' } });
    const ended = await wait(id);
    assert.deepEqual([ended.state, ended.exitCode], ['exited', 3]);
    const output = await h.raw('GET', `${base}/processes/${id}/output/stdout`);
    assert.equal(output.headers.get('x-snapgate-offset'), '0');
    assert.equal(await output.text(), '1-hush-b\n');
  });

  it('is read from any offset, also while it runs, and takes input at its offset', async () => {
    await start({ id: 'cat', argv: ['/bin/cat'], stdin: true });
    const input = `${base}/processes/cat/stdin`;
    assert.equal((await put(`${input}?offset=0`, 'abc')).status, 200);
    const follower = h.raw('GET', `${base}/processes/cat/output/stdout?follow=true`);
    assert.deepEqual(await (await put(`${input}?offset=1`, 'bcdef')).json(), { offset: 6 });
    assert.equal((await put(`${input}?offset=9`, 'gap')).status, 409);
    assert.equal((await put(`${input}?offset=6&close=true`, '')).status, 200);
    assert.equal(await (await follower).text(), 'abcdef');
    const part = await h.raw('GET', `${base}/processes/cat/output/stdout?offset=-4`);
    assert.equal(await part.text(), 'cdef');
    assert.equal((await wait('cat')).exitCode, 0);
  });

  it('says where what is left of its output begins', async () => {
    await start({ id: 'flood', shell: 'head -c 2000000 /dev/zero; echo end' });
    assert.equal((await wait('flood')).stdoutBytes, 2_000_004);
    const kept = await h.raw('GET', `${base}/processes/flood/output/stdout?offset=7`);
    const size = (await kept.arrayBuffer()).byteLength;
    assert.deepEqual(
      [kept.headers.get('x-snapgate-offset'), kept.headers.get('x-snapgate-truncated')],
      [String(2_000_004 - size), 'true'],
    );
    const tail = await h.raw('GET', `${base}/processes/flood/output/stdout?offset=-4`);
    assert.deepEqual(
      [tail.headers.get('x-snapgate-offset'), tail.headers.get('x-snapgate-truncated')],
      ['2000000', 'false'],
    );
    assert.equal(await tail.text(), 'end\n');
  });

  it('is not held up for others by a reader that takes nothing, who finds its place again', async () => {
    await start({ id: 'paced', shell: 'read line; head -c 12000000 /dev/zero; echo end', stdin: true });
    const path = `${base}/processes/paced/output/stdout?follow=true`;
    const stalled = await h.raw('GET', path);
    const lively = await h.raw('GET', path);
    await put(`${base}/processes/paced/stdin?offset=0`, 'go\n');
    let size = 0;
    for await (const chunk of lively.body!) size += chunk.length;
    assert.equal(size, 12_000_004);
    assert.equal((await wait('paced')).exitCode, 0);
    // It goes on where it was, as far as that is retained; what is missing breaks it off, and its place is its own to name.
    const reader = stalled.body!.getReader();
    let taken = 0;
    const broken = (async () => {
      for (let piece = await reader.read(); !piece.done; piece = await reader.read())
        taken += piece.value.length;
    })();
    await assert.rejects(broken);
    const rest = await h.raw('GET', `${base}/processes/paced/output/stdout?offset=${taken}`);
    assert.equal(rest.headers.get('x-snapgate-truncated'), 'true');
    await rest.body!.cancel();
  });

  it('is told from one that is not there, is signalled, listed and forgotten', async () => {
    assert.equal((await h.raw('GET', `${base}/processes/nobody`)).status, 404);
    await start({ id: 'sleeper', argv: ['/bin/sleep', '1000'] });
    const running = await h.get<ProcessStatusInfo>(`${base}/processes/sleeper/wait?timeoutMs=1`);
    assert.equal(running.state, 'running');
    const list = await h.get<{ items: ProcessStatusInfo[] }>(`${base}/processes`);
    assert.ok(list.items.some(({ id }) => id === 'sleeper'));
    assert.equal((await h.raw('POST', `${base}/processes/sleeper/signal`, { signal: 15 })).status, 204);
    assert.equal((await wait('sleeper')).signal, 15);
    assert.equal((await h.raw('DELETE', `${base}/processes/sleeper`)).status, 204);
    assert.equal((await h.raw('GET', `${base}/processes/sleeper`)).status, 404);
  });

  it('with a terminal is one stream, and its terminal changes size', async () => {
    await start({ id: 'tty', shell: 'read line; stty size', pty: { cols: 80, rows: 24 }, stdin: true });
    const size = { cols: 101, rows: 33 };
    assert.equal((await h.raw('POST', `${base}/processes/tty/resize`, size)).status, 204);
    await put(`${base}/processes/tty/stdin?offset=0`, 'x\n');
    const output = await h.raw('GET', `${base}/processes/tty/output/pty?follow=true`);
    assert.match(await output.text(), /33 101/);
  });

  it('goes on being read and waited for when the channel is cut', async () => {
    await start({ id: 'reader', shell: 'echo first; read line; echo second', stdin: true });
    const waiting = wait('reader');
    const output = await h.raw('GET', `${base}/processes/reader/output/stdout?follow=true`);
    const reader = output.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    while (!text.includes('first')) text += (await reader.read()).value;
    // Readers that went away before, in other tests, are noticed as having gone a moment later.
    for (let tries = 0; tries < 500 && h.sandboxes.uses > 0; tries++) await sleep(10);
    assert.equal(h.sandboxes.uses, 0, 'a watcher holds nothing');
    await h.sandboxes.cut(sandbox.id as SandboxId);
    await put(`${base}/processes/reader/stdin?offset=0`, 'x\n');
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += piece.value;
    assert.equal(text, 'first\nsecond\n');
    assert.equal((await waiting).exitCode, 0);
  });
});

describe('a file', () => {
  const file = (name: string, more = '') =>
    `${base}/files?path=${encodeURIComponent(`${directory}/${name}`)}${more}`;

  it('is written and read as a stream, in whole and in part', async () => {
    const bytes = randomBytes(3 * 1024 * 1024);
    assert.equal((await put(file('deep/big.bin', '&mode=640'), bytes)).status, 204);
    const whole = await h.raw('GET', file('deep/big.bin'));
    assert.ok(Buffer.from(await whole.arrayBuffer()).equals(bytes));
    for (const [range, first, last] of [
      ['bytes=0-0', 0, 0],
      ['bytes=100-199', 100, 199],
      ['bytes=-5', bytes.length - 5, bytes.length - 1],
      ['bytes=3145000-', 3_145_000, bytes.length - 1],
    ] as const) {
      const part = await h.raw('GET', file('deep/big.bin'), undefined, { range });
      assert.equal(part.status, 206);
      assert.equal(part.headers.get('content-range'), `bytes ${first}-${last}/${bytes.length}`);
      assert.ok(Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(first, last + 1)));
    }
    const behind = await h.raw('GET', file('deep/big.bin'), undefined, { range: 'bytes=9999999-' });
    assert.equal(behind.status, 400);
    assert.equal(h.sandboxes.uses, 0);
  });

  it('is looked at, listed, moved and removed', async () => {
    await put(file('one.txt'), 'one');
    const { path } = await h.get<FileInfo>(file('one.txt').replace('/files?', '/files/stat?'));
    assert.equal(path, `${directory}/one.txt`);
    const made = { path: `${directory}/dir`, mode: 0o700 };
    assert.equal((await h.raw('POST', `${base}/files/mkdir`, made)).status, 204);
    assert.equal((await h.raw('POST', `${base}/files/mkdir`, made)).status, 409);
    const move = { from: path, to: `${directory}/dir/two.txt` };
    assert.equal((await h.raw('POST', `${base}/files/move`, move)).status, 204);
    const list = await h.raw('GET', file('dir').replace('/files?', '/files/list?'));
    assert.match(await list.text(), /two\.txt/);
    assert.equal((await h.raw('DELETE', file('dir'))).status, 409);
    assert.equal((await h.raw('DELETE', file('dir', '&recursive=true'))).status, 204);
    assert.equal((await h.raw('GET', file('dir/two.txt'))).status, 404);
    assert.equal((await h.raw('GET', `${base}/files?path=relative`)).status, 400);
  });

  it('is watched from the moment the answer says so, across a cut channel', async () => {
    const stop = new AbortController();
    const path = file('').replace('/files?', '/files/watch?');
    const answer = await fetch(`${h.url}${path}`, { headers: h.headers, signal: stop.signal });
    const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const until = async (wanted: string) => {
      while (!text.includes(wanted)) text += (await reader.read()).value ?? assert.fail(text);
    };
    await until('"started"');
    await put(file('seen.txt'), 'x');
    await until('seen.txt');
    await h.sandboxes.cut(sandbox.id as SandboxId);
    await until('"overflow"');
    await put(file('again.txt'), 'x');
    await until('again.txt');
    stop.abort();
    await reader.cancel().catch(() => {});
  });
});

describe('the token of a sandbox', () => {
  it('opens its processes and files, and nothing else', async () => {
    const headers = { authorization: `Bearer ${sandbox.token}` };
    const status = async (path: string, method = 'GET') =>
      (await fetch(`${h.url}${path}`, { method, headers })).status;
    assert.equal(await status(`${base}/processes`), 200);
    assert.equal(await status(`${base}/files/stat?path=/tmp`), 200);
    assert.equal(await status(base), 401);
    assert.equal(await status(base, 'DELETE'), 401);
    assert.equal(await status(`${base}/fork`, 'POST'), 401);
    assert.equal(await status('/v1/keys'), 401);
    const other = await h.post<CreatedSandbox>('/v1/sandboxes', { template: 'open' });
    assert.equal(await status(`/v1/sandboxes/${other.id}/processes`), 401);
  });
});

it('a use that can wait no longer ends with a typed 503 and Retry-After', async () => {
  await start({ id: 'full', argv: ['/bin/sleep', '1000'], stdin: true });
  // A pipe takes 64 KiB; the rest waits for a reader that never comes.
  const stuck = put(`${base}/processes/full/stdin?offset=0`, Buffer.alloc(512 * 1024));
  while (h.sandboxes.uses === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  h.sandboxes.evict(sandbox.id as SandboxId);
  const answer = await stuck;
  assert.equal(answer.status, 503);
  assert.equal(answer.headers.get('retry-after'), '1');
  await h.raw('DELETE', `${base}/processes/full`);
});
