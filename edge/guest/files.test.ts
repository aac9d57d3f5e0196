import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { chmod, lstat, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { after, before, beforeEach, describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError, isGatewayError } from '../../sdk/index.ts';
import type { FileRow, SandboxChannel, WatchEvent } from './port.ts';
import { readText, startTestAgent, type TestAgent } from './test-agent.ts';

const soon = () => ({ signal: AbortSignal.timeout(20_000) });
const isRoot = process.getuid?.() === 0;

let agent: TestAgent;
let channel: SandboxChannel;
let root: string;
let round = 0;
before(async () => {
  agent = await startTestAgent();
  await chmod(agent.directory, 0o755);
  channel = await agent.connect();
});
after(async () => {
  channel.close();
  await agent.stop();
});
beforeEach(async () => {
  root = path.join(agent.directory, `round-${round++}`);
  await mkdir(root);
});

const is =
  (...codes: Parameters<typeof isGatewayError>[1][]) =>
  (error: unknown) =>
    isGatewayError(error, ...codes);

describe('writing a file', () => {
  it('makes its parents, sets its mode, and leaves nothing else there', async () => {
    const target = `${root}/a b/ü%/file`;
    const bytes = randomBytes(3_000_000);
    await channel.writeFile(target, Readable.from([bytes.subarray(0, 7), bytes.subarray(7)]), {
      mode: 0o640,
      ...soon(),
    });
    assert.ok((await readFile(target)).equals(bytes));
    assert.equal((await lstat(target)).mode & 0o7777, 0o640);
    assert.deepEqual(await readdir(path.dirname(target)), ['file']);
  });

  it('brings extended attributes, which rows tell when they are asked for and which go with the file', async () => {
    const target = `${root}/noted`;
    const attributes = { 'user.colour': 'grün', 'user.e2b.author': 'mish' };
    await channel.writeFile(target, Buffer.from('x'), { attributes, ...soon() });
    const wanted = { withAttributes: true, ...soon() };
    assert.deepEqual((await channel.statFile(target, wanted)).attributes, attributes);
    assert.equal((await channel.statFile(target, soon())).attributes, undefined);
    for await (const row of await channel.listFiles(root, wanted))
      assert.deepEqual(row.attributes, attributes);
    await channel.writeFile(target, Buffer.from('y'), soon());
    assert.equal((await channel.statFile(target, wanted)).attributes, undefined);
    const refused: Record<string, string>[] = [
      { 'trusted.x': 'y' },
      { 'user.': 'y' },
      { 'user.x': 'y'.repeat(9000) },
    ];
    for (const bad of refused)
      await assert.rejects(
        channel.writeFile(target, Buffer.from('z'), { attributes: bad, ...soon() }),
        is('invalid_request'),
      );
    assert.equal(await readFile(target, 'utf8'), 'y');
  });

  it('over another keeps that one’s mode, and follows a symbolic link to it', async () => {
    await writeFile(`${root}/script`, 'old', { mode: 0o750 });
    await symlink('script', `${root}/link`);
    await channel.writeFile(`${root}/link`, Buffer.from('new'), soon());
    assert.equal(await readFile(`${root}/script`, 'utf8'), 'new');
    assert.equal((await lstat(`${root}/script`)).mode & 0o7777, 0o750);
    assert.ok((await lstat(`${root}/link`)).isSymbolicLink());
  });

  it('that breaks off changes nothing, whatever ends it', async () => {
    await writeFile(`${root}/kept`, 'as it was');
    const stop = new AbortController();
    const endless = new PassThrough();
    endless.write(Buffer.alloc(100_000));
    const aborted = channel.writeFile(`${root}/kept`, endless, { signal: stop.signal });
    for (let i = 0; i < 300 && (await readdir(root)).length < 2; i++) await sleep(10);
    assert.equal((await readdir(root)).length, 2);
    stop.abort();
    await assert.rejects(aborted, is('cancelled'));

    const broken = new PassThrough();
    broken.write(Buffer.alloc(100_000));
    const failed = channel.writeFile(`${root}/kept`, broken, soon());
    await sleep(50);
    broken.destroy(new GatewayError('body_too_large', 'the source says no'));
    await assert.rejects(failed, is('body_too_large'));

    const own = await agent.connect();
    channel = own;
    const lost = new PassThrough();
    lost.write(Buffer.alloc(100_000));
    const cut = own.writeFile(`${root}/kept`, lost, soon());
    await sleep(50);
    own.close();
    await assert.rejects(cut, is('guest_unreachable'));
    channel = await agent.connect();

    for (let i = 0; i < 300 && (await readdir(root)).length > 1; i++) await sleep(10);
    assert.deepEqual(await readdir(root), ['kept']);
    assert.equal(await readFile(`${root}/kept`, 'utf8'), 'as it was');
  });

  it('that is refused while it is still large leaves the channel usable', async () => {
    const chunks = function* () {
      for (let i = 0; i < 100; i++) yield Buffer.alloc(1024 * 1024);
    };
    const body = Readable.from(chunks());
    await assert.rejects(channel.writeFile('/proc/absent', body, soon()), is('file_not_found'));
    assert.equal((await channel.ping(soon())).protocol, 2);
    assert.ok(body.destroyed);
    await sleep(50);
    assert.equal((await channel.ping(soon())).protocol, 2);
  });

  it('where it cannot be says why', async () => {
    await writeFile(`${root}/file`, '');
    const body = Buffer.from('x');
    await assert.rejects(channel.writeFile(root, body, soon()), is('conflict'));
    await assert.rejects(channel.writeFile(`${root}/file/below`, body, soon()), is('conflict'));
    await assert.rejects(channel.writeFile(`${root}/dir/`, body, soon()), is('invalid_request'));
    await assert.rejects(channel.writeFile('relative', body, soon()), is('invalid_request'));
    await assert.rejects(channel.writeFile(`${root}/\0`, body, soon()), is('invalid_request'));
    await assert.rejects(channel.writeFile('/dev/full', body, soon()), is('invalid_request'));
    await assert.rejects(
      channel.writeFile(`${root}/x`, body, { user: 'nobody-knows-me', ...soon() }),
      is('invalid_request'),
    );
  });

  it('as a user has that user’s rights, no more', async (context) => {
    if (!isRoot) return context.skip('needs root');
    const options = { user: 'nobody', ...soon() };
    await assert.rejects(channel.writeFile(`${root}/mine`, Buffer.from('x'), options), is('forbidden'));
    const owning = { ownParents: true, ...options };
    await channel.writeFile(`${root}/a/b/mine`, Buffer.from('x'), owning);
    for (const name of ['a', 'a/b', 'a/b/mine'])
      assert.equal((await lstat(`${root}/${name}`)).uid, 65_534, name);
    await assert.rejects(channel.writeFile(`${root}/mine`, Buffer.from('x'), owning), is('forbidden'));
    await mkdir(`${root}/shut`, { mode: 0o700 });
    await assert.rejects(
      channel.writeFile(`${root}/shut/a/mine`, Buffer.from('x'), owning),
      is('forbidden', 'file_not_found'),
    );
    assert.deepEqual(await readdir(`${root}/shut`), []);
    await chmod(root, 0o777);
    await channel.writeFile(`${root}/deep/mine`, Buffer.from('x'), options);
    const found = await lstat(`${root}/deep/mine`);
    assert.deepEqual([found.uid, (await lstat(`${root}/deep`)).uid], [65_534, 65_534]);
    await writeFile(`${root}/secret`, 'x', { mode: 0o600 });
    await assert.rejects(channel.readFile(`${root}/secret`, options), is('forbidden'));
    // And the agent is itself again.
    assert.equal(await readText(await channel.readFile(`${root}/secret`, soon())), 'x');
  });
});

describe('reading a file', () => {
  it('gives all of it, or a part', async () => {
    const bytes = randomBytes(2_000_000);
    await writeFile(`${root}/data`, bytes);
    const chunks: Buffer[] = [];
    for await (const chunk of await channel.readFile(`${root}/data`, soon())) chunks.push(chunk as Buffer);
    assert.ok(Buffer.concat(chunks).equals(bytes));
    const part = await channel.readFile(`${root}/data`, { offset: 1_999_990, length: 4, ...soon() });
    const [only] = await part.toArray();
    assert.ok((only as Buffer).equals(bytes.subarray(1_999_990, 1_999_994)));
    await writeFile(`${root}/empty`, '');
    assert.equal(await readText(await channel.readFile(`${root}/empty`, soon())), '');
  });

  it('refuses what is no regular file', async () => {
    await assert.rejects(channel.readFile(`${root}/absent`, soon()), is('file_not_found'));
    await assert.rejects(channel.readFile(root, soon()), is('conflict'));
    await assert.rejects(channel.readFile('/dev/zero', soon()), is('invalid_request'));
    await assert.rejects(channel.readFile(agent.socketPath, soon()), (error) => isGatewayError(error));
  });

  it('ends with its signal', async () => {
    await writeFile(`${root}/large`, Buffer.alloc(30_000_000));
    const stop = new AbortController();
    const body = await channel.readFile(`${root}/large`, { signal: stop.signal });
    await once(body, 'data');
    stop.abort();
    await assert.rejects(body.toArray(), is('cancelled'));
  });

  it('whose channel is lost fails instead of looking complete', async () => {
    await writeFile(`${root}/large`, Buffer.alloc(30_000_000));
    const own = await agent.connect();
    const body = await own.readFile(`${root}/large`, soon());
    await once(body, 'data');
    body.pause();
    own.close();
    await assert.rejects(body.toArray(), is('guest_unreachable'));
    channel = await agent.connect();
  });
});

describe('looking at files', () => {
  it('describes an entry without following links', async () => {
    await writeFile(`${root}/file`, 'four', { mode: 0o604 });
    await symlink('file', `${root}/link`);
    const { mtimeMs, user, group, ...file } = await channel.statFile(`${root}/file`, soon());
    assert.deepEqual(file, {
      path: `${root}/file`,
      name: 'file',
      type: 'file',
      size: 4,
      mode: 0o604,
      uid: process.getuid?.(),
      gid: process.getgid?.(),
    });
    assert.ok(Math.abs(mtimeMs - Date.now()) < 60_000 && user.length > 0 && group.length > 0);
    const link = await channel.statFile(`${root}/link`, soon());
    assert.deepEqual([link.type, link.target], ['symlink', 'file']);
    assert.equal((await channel.statFile('/', soon())).name, '/');
    await assert.rejects(channel.statFile(`${root}/absent`, soon()), is('file_not_found'));
  });

  it('lists to the depth that was asked for, directories before what is in them', async () => {
    await mkdir(`${root}/a/b/c`, { recursive: true });
    await writeFile(`${root}/a/b/file`, '');
    await symlink('/', `${root}/everything`);
    const names = async (depth?: number) => {
      const rows: FileRow[] = [];
      const options = depth === undefined ? soon() : { depth, ...soon() };
      for await (const row of await channel.listFiles(root, options)) rows.push(row);
      return rows.map((row) => row.path.slice(root.length)).sort();
    };
    assert.deepEqual(await names(), ['/a', '/everything']);
    assert.deepEqual(await names(2), ['/a', '/a/b', '/everything']);
    assert.deepEqual(await names(64), ['/a', '/a/b', '/a/b/c', '/a/b/file', '/everything']);
    await assert.rejects(channel.listFiles(`${root}/a/b/file`, soon()), is('conflict'));
    await assert.rejects(channel.listFiles(root, { depth: 65, ...soon() }), is('invalid_request'));
  });

  it('lists a thousand entries, and can be left in the middle', async () => {
    await Promise.all(Array.from({ length: 1_000 }, (_, i) => writeFile(`${root}/f${i}`, '')));
    let count = 0;
    for await (const _ of await channel.listFiles(root, soon())) count++;
    assert.equal(count, 1_000);
    for await (const _ of await channel.listFiles(root, soon())) break;
    assert.equal((await channel.ping(soon())).protocol, 2);
  });

  it('survives names that are no UTF-8', async () => {
    await writeFile(Buffer.concat([Buffer.from(`${root}/bad-`), Buffer.of(0xff, 0x0a)]), '');
    const rows: FileRow[] = [];
    for await (const row of await channel.listFiles(root, soon())) rows.push(row);
    assert.deepEqual(
      rows.map(({ name }) => name),
      ['bad-\ufffd\n'],
    );
  });
});

describe('changing files', () => {
  it('makes directories with their parents and says when one exists', async () => {
    await channel.makeDirectory(`${root}/x/y/z/`, { mode: 0o700, ...soon() });
    assert.equal((await lstat(`${root}/x/y/z`)).mode & 0o7777, 0o700);
    await assert.rejects(channel.makeDirectory(`${root}/x/y`, soon()), is('conflict'));
  });

  it('moves, and makes the parents of the new place', async () => {
    await writeFile(`${root}/from`, 'content');
    await channel.moveFile(`${root}/from`, `${root}/new/to`, soon());
    assert.equal(await readFile(`${root}/new/to`, 'utf8'), 'content');
    await assert.rejects(channel.moveFile(`${root}/from`, `${root}/x`, soon()), is('file_not_found'));
  });

  it('deletes trees only when told to, and never what a link points to', async () => {
    await mkdir(`${root}/tree/deep`, { recursive: true });
    await writeFile(`${root}/outside`, 'stays');
    await symlink(`${root}/outside`, `${root}/tree/link`);
    await symlink(root, `${root}/tree/deep/up`);
    await assert.rejects(channel.deleteFile(`${root}/tree`, soon()), is('conflict'));
    await channel.deleteFile(`${root}/tree`, { isRecursive: true, ...soon() });
    assert.deepEqual(await readdir(root), ['outside']);
    await channel.deleteFile(`${root}/outside`, soon());
    await assert.rejects(channel.deleteFile(`${root}/outside`, soon()), is('file_not_found'));
  });
});

describe('watching a directory', () => {
  async function collect(events: AsyncIterable<WatchEvent>, last: string, into: string[]): Promise<void> {
    for await (const { type, path: place } of events) {
      into.push(`${type} ${place.slice(root.length)}`);
      if (into.at(-1) === last) return;
    }
  }

  it('tells what happens in it, and below it in directories that are made later', async () => {
    await mkdir(`${root}/old`);
    const seen: string[] = [];
    const watching = collect(
      await channel.watchFiles(root, { isRecursive: true, ...soon() }),
      'remove /end',
      seen,
    );
    await writeFile(`${root}/old/file`, 'x');
    await chmod(`${root}/old/file`, 0o600);
    await rename(`${root}/old/file`, `${root}/moved`);
    await mkdir(`${root}/made/later`, { recursive: true });
    await sleep(100);
    await writeFile(`${root}/made/later/file`, '');
    await rename(`${root}/made`, `${root}/renamed`);
    await sleep(100);
    await writeFile(`${root}/renamed/later/again`, '');
    await writeFile(`${root}/end`, '');
    await rm(`${root}/end`);
    await watching;
    for (const event of [
      'create /old/file',
      'write /old/file',
      'chmod /old/file',
      'rename /old/file',
      'create /moved',
      'create /made',
      'create /made/later',
      'create /made/later/file',
      'rename /made',
      'create /renamed',
      'create /renamed/later/again',
    ])
      assert.ok(seen.includes(event), `${event} is missing from ${seen.join(', ')}`);
  });

  it('says that events were lost when its reader is too slow for them, and goes on', async () => {
    const events = await channel.watchFiles(root, { isRecursive: true, ...soon() });
    const names = Array.from({ length: 25_000 }, (_, index) => `${root}/${index % 100}`);
    for (const name of names) {
      writeFileSync(name, '');
      rmSync(name);
    }
    let count = 0;
    for await (const { type } of events) {
      count += 1;
      if (type === 'overflow') break;
    }
    assert.ok(count < names.length * 2, `${count} events came although none was read`);
  });

  it('without recursion tells of its own entries only, and ends when it is gone', async () => {
    await mkdir(`${root}/watched/below`, { recursive: true });
    const seen: string[] = [];
    const watching = collect(await channel.watchFiles(`${root}/watched`, soon()), 'never', seen);
    await writeFile(`${root}/watched/below/file`, '');
    await rm(`${root}/watched`, { recursive: true });
    await watching;
    assert.deepEqual(seen, ['remove /watched/below']);
  });

  it('can be ended by its signal, and refuses what is no directory', async () => {
    const stop = new AbortController();
    const events = await channel.watchFiles(root, { signal: stop.signal });
    setTimeout(() => stop.abort(), 50);
    await assert.rejects(async () => {
      for await (const _ of events);
    }, is('cancelled'));
    await writeFile(`${root}/file`, '');
    await assert.rejects(channel.watchFiles(`${root}/file`, soon()), is('conflict'));
    await assert.rejects(channel.watchFiles(`${root}/absent`, soon()), is('file_not_found'));
  });
});
