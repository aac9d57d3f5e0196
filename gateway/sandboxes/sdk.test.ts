import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { type ErrorCode, isGatewayError, type Sandbox, type SandboxId, Snapgate } from '../../sdk/index.ts';
import { type SandboxHarness, startSandboxHarness } from '../testing/sandbox-harness.ts';

let h: SandboxHarness;
let snapgate: Snapgate;
let sandbox: Sandbox;
let directory: string;
const server = createServer((request, response) => void response.end(`${request.method} ${request.url}`));
before(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  h = await startSandboxHarness({ port: (server.address() as AddressInfo).port });
  snapgate = new Snapgate({ url: h.url, apiKey: h.key });
  sandbox = await snapgate.sandboxes.create({ template: 'open', metadata: { team: 'a' } });
  directory = await h.sandboxes.directoryOf(sandbox.id as SandboxId);
});
after(async () => {
  await h[Symbol.asyncDispose]();
  server.closeAllConnections();
  server.close();
});

const rejectsWith = (work: Promise<unknown>, code: ErrorCode) =>
  assert.rejects(work, (error) => isGatewayError(error, code));

async function text(source: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

it('a function is called and tells how its answer came to be', async () => {
  const { response, start } = await snapgate.invoke('closed', { path: '/x' });
  assert.deepEqual([response.status, await response.text(), start?.type], [200, 'ok', 'reused']);
});

describe('run', () => {
  it('gives output and exit code of a shell line or an argument list', async () => {
    const shell = await sandbox.run('echo out; echo err >&2; exit 4');
    assert.deepEqual([shell.stdout, shell.stderr, shell.exitCode], ['out\n', 'err\n', 4]);
    const list = await sandbox.run(['/bin/echo', '$HOME', 'a b'], { env: { X: '1' } });
    assert.equal(list.stdout, '$HOME a b\n');
  });

  it('passes input, tells output as it comes, and bounds what it keeps', async () => {
    const seen: string[] = [];
    const input = 'grüße '.repeat(20_000);
    const { stdout, isTruncated } = await sandbox.run(['/bin/cat'], {
      stdin: input,
      onStdout: (piece) => seen.push(piece),
    });
    assert.equal(stdout, input);
    assert.equal(seen.join(''), input);
    assert.equal(isTruncated, false);
    const cut = await sandbox.run(['/bin/cat'], { stdin: input, maxOutputBytes: 8 });
    assert.deepEqual([cut.stdout, cut.isTruncated], ['grüße '.slice(-8), true]);
  });

  it('ends at its own timeout, and kills the command when the caller gives up', async () => {
    const slow = await sandbox.run(['/bin/sleep', '1000'], { timeoutMs: 50 });
    assert.equal(slow.isTimedOut, true);
    const stop = new AbortController();
    const running = sandbox.run(['/bin/sleep', '1000'], { id: 'given-up', signal: stop.signal });
    const handle = sandbox.process('given-up');
    for (;;) {
      const status = await handle.status().catch(() => null);
      if (status !== null) break;
    }
    stop.abort();
    await rejectsWith(running, 'cancelled');
    assert.equal((await handle.wait()).signal, 9);
  });

  it('says what is wrong with a command that cannot be started', async () => {
    await rejectsWith(sandbox.run(['/bin/no-such-program']), 'file_not_found');
    await rejectsWith(sandbox.run(['/bin/true'], { cwd: 'relative' }), 'invalid_request');
  });
});

it('a started process takes input, is found again by its id, and is killed', async () => {
  const process = await sandbox.start(['/bin/cat'], { id: 'kept' });
  await Promise.all([process.write('one '), process.write('two ')]);
  const again = sandbox.process('kept');
  await again.write('three');
  await again.closeStdin();
  assert.equal(await text(process.stdout()), 'one two three');
  assert.equal((await process.wait()).exitCode, 0);
  const sleeper = await sandbox.start(['/bin/sleep', '1000']);
  assert.ok((await sandbox.processes()).some(({ id }) => id === sleeper.id));
  await sleeper.kill();
  assert.equal((await sleeper.wait()).signal, 9);
  await sleeper.remove();
  await rejectsWith(sleeper.status(), 'process_not_found');
});

it('a terminal echoes, resizes and ends with its shell', async () => {
  const terminal = await sandbox.pty({ cols: 80, rows: 24, command: ['/bin/sh'] });
  await terminal.resize({ cols: 99, rows: 22 });
  await terminal.write('stty size; exit 5\n');
  assert.match(await text(terminal.output()), /22 99/);
  assert.equal((await terminal.wait()).exitCode, 5);
});

it('files are written, read in whole and in part, listed, moved, watched and removed', async () => {
  const { files } = sandbox;
  const bytes = randomBytes(300_000);
  await files.write(`${directory}/a/b.bin`, bytes, { mode: 0o600 });
  assert.ok(Buffer.from(await files.read(`${directory}/a/b.bin`)).equals(bytes));
  const part = await files.stream(`${directory}/a/b.bin`, { offset: 10, length: 5 });
  assert.ok(Buffer.from(await new Response(part).arrayBuffer()).equals(bytes.subarray(10, 15)));
  assert.equal((await files.stat(`${directory}/a/b.bin`)).mode, 0o600);
  await files.mkdir(`${directory}/a/c`);
  await files.move(`${directory}/a/b.bin`, `${directory}/a/c/d.bin`);
  const names = (await files.list(`${directory}/a`, { depth: 2 })).map(({ name }) => name);
  assert.deepEqual(names, ['c', 'd.bin']);
  const events: string[] = [];
  for await (const { type, path } of files.watch(`${directory}/a`)) {
    events.push(`${type} ${path.slice(directory.length)}`);
    if (type === 'started') await files.write(`${directory}/a/new.txt`, 'hi');
    if (events.some((event) => event.includes('new.txt'))) break;
  }
  assert.equal(await files.readText(`${directory}/a/new.txt`), 'hi');
  await rejectsWith(files.remove(`${directory}/a`), 'conflict');
  await files.remove(`${directory}/a`, { recursive: true });
  await rejectsWith(files.read(`${directory}/a/new.txt`), 'file_not_found');
});

it('a port is asked with credentials it does not see, and no path leads out of it', async () => {
  const port = sandbox.port(8080);
  assert.equal(await (await port.fetch('/x?y')).text(), 'GET /x?y');
  assert.equal(await (await port.fetch('/x', { body: 'b' })).text(), 'POST /x');
  await rejectsWith(port.fetch('/../../../../keys'), 'invalid_request');
  assert.throws(() => sandbox.port(0));
});

it('forks, pauses, snapshots and rewinds keep their promises of identity', async () => {
  const { children, failures, notInherited } = await sandbox.fork({ count: 3, metadata: { n: '1' } });
  assert.deepEqual([children.length, failures.length, notInherited], [3, 0, []]);
  assert.equal(new Set(children.map(({ id, token }) => id + token)).size, 3);
  assert.deepEqual(children[0]!.info.metadata, { team: 'a', n: '1' });
  const found: string[] = [];
  for await (const one of snapgate.sandboxes.list({ metadata: { n: '1' } })) found.push(one.id);
  assert.deepEqual(found.sort(), children.map(({ id }) => id).sort());
  await Promise.all(children.map((child) => child.kill()));

  const snapshot = await sandbox.snapshot({ name: 'here' });
  assert.equal((await sandbox.rewind(snapshot)).basis, snapshot.id);
  await using copy = await snapgate.sandboxes.create({ snapshot: 'snapshot:here' });
  assert.deepEqual(copy.info.parent, { kind: 'snapshot', id: snapshot.id });
  assert.equal((await copy.pause()).state, 'paused');
  await rejectsWith(copy.run('true'), 'conflict');
  assert.equal((await copy.resume()).state, 'running');
  assert.equal((await copy.run('echo back')).stdout, 'back\n');
});

it('`await using` ends a sandbox, and what it was asked afterwards says that it is gone', async () => {
  let id = '';
  {
    await using short = await snapgate.sandboxes.create({ template: 'open' });
    id = short.id;
  }
  const ended = await snapgate.sandboxes.get(id);
  assert.equal(ended.info.termination?.reason, 'killed');
  await rejectsWith(ended.run('true'), 'sandbox_not_found');
  await ended.kill();
});

it('a request whose answer was lost is asked again and done once', async () => {
  let losses = 0;
  const lossy: typeof fetch = async (...call) => {
    const response = await fetch(...call);
    if (losses > 0) return response;
    losses += 1;
    await response.arrayBuffer();
    throw new TypeError('the connection was lost');
  };
  const before = h.sandboxes.asked.length;
  const client = new Snapgate({ url: h.url, apiKey: h.key, fetch: lossy });
  await using made = await client.sandboxes.create({ template: 'open' });
  assert.equal(h.sandboxes.asked.length - before, 1);
  assert.equal((await made.refresh()).state, 'running');
});

it('output is read on at the right byte after the connection broke', async () => {
  let broken = 0;
  const breaking: typeof fetch = async (...call) => {
    const response = await fetch(...call);
    if (!String(call[0]).includes('/output/stdout') || broken >= 3) return response;
    broken += 1;
    const reader = response.body!.getReader();
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { value } = await reader.read();
        if (value !== undefined) controller.enqueue(value.subarray(0, 3));
        await reader.cancel();
        controller.error(new TypeError('broken'));
      },
    });
    return new Response(body, { headers: response.headers });
  };
  const client = new Snapgate({ url: h.url, apiKey: h.key, fetch: breaking });
  const same = await client.sandboxes.get(sandbox.id);
  const { stdout } = await same.run('echo 0123456789');
  assert.deepEqual([stdout, broken], ['0123456789\n', 3]);
});

it('a reader that comes late is told which bytes are gone', async () => {
  const process = await sandbox.start('head -c 2000000 /dev/zero');
  await process.wait();
  const gaps: [number, number][] = [];
  let size = 0;
  for await (const chunk of process.stdout({ offset: 5, onGap: (...gap) => void gaps.push(gap) }))
    size += chunk.length;
  assert.deepEqual(gaps, [[5, 2_000_000 - size]]);
});
