import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { Header, type HeaderData, Pax } from 'tar';
import { isGatewayError } from '../../../sdk/index.ts';
import { contentDigest } from './content-digest.ts';
import type { ArchiveLimits, TreeEntry } from './tree.ts';
import { unpackTemplate } from './unpack.ts';

const signal = new AbortController().signal;
const limits: ArchiveLimits = {
  archiveBytes: 1_000_000,
  contentBytes: 100_000,
  entries: 50,
  pathBytes: 200,
  depth: 10,
};

/** One raw member; nothing is checked, so that lies can be told. */
function member(data: HeaderData, body = ''): Buffer {
  const header = new Header({ mode: 0o644, size: Buffer.byteLength(body), type: 'File', ...data });
  header.encode();
  const padding = (512 - (Buffer.byteLength(body) % 512)) % 512;
  return Buffer.concat([header.block!, Buffer.from(body), Buffer.alloc(padding)]);
}

const end = Buffer.alloc(1024);

class Bench {
  readonly root: string;
  #count = 0;

  constructor(root: string) {
    this.root = root;
  }

  async unpack(
    tar: Buffer,
    own: Partial<ArchiveLimits> = {},
  ): Promise<{ folder: string; entries: TreeEntry[] }> {
    this.#count += 1;
    const archive = join(this.root, `${this.#count}.tar.gz`);
    const folder = join(this.root, `${this.#count}`);
    await writeFile(archive, gzipSync(tar));
    await mkdir(folder);
    return { folder, entries: await unpackTemplate(archive, folder, { ...limits, ...own }, { signal }) };
  }

  /** Asserts that it is refused, that it says why, and that nothing was made. */
  async refuse(tar: Buffer, text: RegExp, own: Partial<ArchiveLimits> = {}): Promise<void> {
    await assert.rejects(this.unpack(tar, own), (error) => {
      assert.ok(isGatewayError(error, 'invalid_request'), String(error));
      assert.match(error.message, text);
      return true;
    });
    assert.deepEqual(await readdir(join(this.root, `${this.#count}`)), []);
  }
}

async function bench(context: TestContext): Promise<Bench> {
  const outer = await mkdtemp(join(tmpdir(), 'snapgate-unpack-'));
  context.after(() => rm(outer, { recursive: true, force: true }));
  // Some steps up that are ours, so that a way out through `..` would be seen.
  const root = join(outer, 'a', 'b');
  await mkdir(root, { recursive: true });
  return new Bench(root);
}

test('files, folders and inner links arrive, private and without the owner of the archive', async (context) => {
  const tar = Buffer.concat([
    member({ path: './', type: 'Directory' }),
    member({ path: './app/run.sh', mode: 0o4755, uid: 1234, gid: 1234 }, '#!'),
    member({ path: 'app/data', mode: 0o000 }, 'data'),
    member({ path: 'app/link', type: 'SymbolicLink', linkpath: 'data' }),
    end,
  ]);
  const { folder, entries } = await (await bench(context)).unpack(tar);
  assert.deepEqual(
    entries.map(({ kind, path }) => `${kind} ${path}`),
    ['directory app', 'file app/run.sh', 'file app/data', 'link app/link'],
  );
  const script = await stat(join(folder, 'app/run.sh'));
  assert.equal(script.mode & 0o7777, 0o700);
  assert.equal(script.uid, process.getuid?.());
  assert.equal(await readFile(join(folder, 'app/link'), 'utf8'), 'data');
});

for (const [what, tar, text] of [
  ['an absolute path', member({ path: '/etc/cron.d/x' }, 'x'), /absolute path/],
  ['a path with ..', member({ path: 'app/../../x' }, 'x'), /not plain/],
  ['a path with an inner dot', member({ path: 'app/./x' }, 'x'), /not plain/],
  ['a backslash', member({ path: 'app\\..\\x' }, 'x'), /not plain|bad name/],
  ['a link to an absolute path', member({ path: 'a', type: 'SymbolicLink', linkpath: '/etc' }), /leads out/],
  [
    'a link out of the folder',
    member({ path: 'd/a', type: 'SymbolicLink', linkpath: '../../x' }),
    /leads out/,
  ],
  ['a hard link', member({ path: 'a', type: 'Link', linkpath: '/etc/passwd' }), /a Link at "a"/],
  [
    'a character device',
    member({ path: 'a', type: 'CharacterDevice', devmaj: 1, devmin: 1 }),
    /CharacterDevice/,
  ],
  ['a block device', member({ path: 'a', type: 'BlockDevice', devmaj: 8, devmin: 0 }), /BlockDevice/],
  ['a pipe', member({ path: 'a', type: 'FIFO' }), /FIFO/],
] as const) {
  test(`${what} is refused`, async (context) => {
    await (await bench(context)).refuse(Buffer.concat([tar, end]), text);
  });
}

test('a file written through a link that the archive made before is refused', async (context) => {
  const tar = [
    member({ path: 'd', type: 'SymbolicLink', linkpath: '.' }),
    member({ path: 'd/file' }, 'x'),
    end,
  ];
  await (await bench(context)).refuse(Buffer.concat(tar), /below a link/);
});

test('a link that only the unpacking library takes for absolute is refused', async (context) => {
  const desk = await bench(context);
  const link = member({ path: 'a', type: 'SymbolicLink', linkpath: '\\/a' });
  await assert.rejects(desk.unpack(Buffer.concat([link, end])), (error) =>
    isGatewayError(error, 'invalid_request'),
  );
});

test('an entry that replaces another is refused', async (context) => {
  const desk = await bench(context);
  await desk.refuse(Buffer.concat([member({ path: 'a' }, '1'), member({ path: 'a' }, '2'), end]), /twice/);
  const swapped = [
    member({ path: 'a/b' }, '1'),
    member({ path: 'a', type: 'SymbolicLink', linkpath: 'b' }),
    end,
  ];
  await desk.refuse(Buffer.concat(swapped), /twice/);
});

test('a path hidden in an extended header is checked like any other', async (context) => {
  const pax = new Pax({ path: '../../etc/x' }).encode();
  await (await bench(context)).refuse(
    Buffer.concat([pax, member({ path: 'innocent' }, 'x'), end]),
    /not plain/,
  );
});

test('each limit is named', async (context) => {
  const desk = await bench(context);
  const files = Array.from({ length: 5 }, (_, index) => member({ path: `f${index}` }, 'x'.repeat(100)));
  const tar = Buffer.concat([...files, end]);
  await desk.refuse(tar, /more than 4 entries/, { entries: 4 });
  await desk.refuse(tar, /larger than 499 bytes/, { contentBytes: 499 });
  await desk.refuse(Buffer.concat([member({ path: 'a/b/c/d' }, 'x'), end]), /more than 3 steps/, {
    depth: 3,
  });
  await desk.refuse(Buffer.concat([member({ path: 'n'.repeat(90) }, 'x'), end]), /too long/, {
    pathBytes: 80,
  });
  const deep = Buffer.concat([member({ path: 'a/b/c/d/e' }, 'x'), end]);
  await desk.refuse(deep, /more than 4 entries/, { entries: 4 });
});

test('a file that claims to be huge is refused before its bytes come', async (context) => {
  const header = new Header({ path: 'huge', mode: 0o644, size: 2 ** 40, type: 'File' });
  header.encode();
  await (await bench(context)).refuse(header.block!, /larger than/);
});

test('a bomb of empty blocks is refused', async (context) => {
  await (await bench(context)).refuse(Buffer.alloc(3_000_000), /the unpacked template is larger/);
});

test('an archive that is cut, damaged or compressed twice is refused', async (context) => {
  const desk = await bench(context);
  const tar = Buffer.concat([member({ path: 'a' }, 'x'.repeat(2000)), end]);
  await desk.refuse(tar.subarray(0, 1024), /not a readable gzipped tar/);
  const damaged = Buffer.from(tar);
  damaged.write('zzz', 0);
  await desk.refuse(damaged, /not a readable gzipped tar/);
  await desk.refuse(gzipSync(tar), /compressed twice/);
});

test('the content digest does not depend on the order of the archive', async (context) => {
  const desk = await bench(context);
  const members = [
    member({ path: 'b', mode: 0o600 }, '2'),
    member({ path: 'a/x', mode: 0o755 }, '1'),
    member({ path: 'c', type: 'SymbolicLink', linkpath: 'b' }),
  ];
  const digestOf = async (parts: Buffer[]) => {
    const { folder, entries } = await desk.unpack(Buffer.concat([...parts, end]));
    return contentDigest(folder, entries, { signal });
  };
  const digest = await digestOf(members);
  assert.equal(await digestOf(members.toReversed()), digest);
  assert.equal(await digestOf([member({ path: 'a', type: 'Directory' }), ...members]), digest);
  const executable = member({ path: 'b', mode: 0o711 }, '2');
  assert.notEqual(await digestOf([executable, ...members.slice(1)]), digest);
});

const step = fc.constantFrom('a', 'b', '..', '.', '', 'long'.repeat(80), 'ü', '\\');
const path = fc.array(step, { minLength: 1, maxLength: 5 }).map((steps) => steps.join('/'));
const type = fc.constantFrom(
  'File',
  'Directory',
  'SymbolicLink',
  'Link',
  'FIFO',
  'CharacterDevice',
  'OldFile',
);
const anyMember = fc.record({
  path,
  type,
  linkpath: path,
  mode: fc.nat(0o7777),
  body: fc.string({ maxLength: 600 }),
});

test('no archive makes anything outside of its folder, and every refusal is a plain one', async (context) => {
  const desk = await bench(context);
  const garbage = fc.uint8Array({ maxLength: 2048 }).map((bytes) => Buffer.from(bytes));
  const tars = fc.oneof(
    { weight: 5, arbitrary: fc.array(anyMember, { maxLength: 8 }).map(toTar) },
    { weight: 1, arbitrary: garbage },
    {
      weight: 2,
      arbitrary: fc.tuple(fc.array(anyMember, { maxLength: 4 }).map(toTar), fc.nat(), fc.nat(255)).map(flip),
    },
  );
  await fc.assert(
    fc.asyncProperty(tars, async (tar) => {
      await desk.unpack(tar).catch((error: unknown) => {
        assert.ok(isGatewayError(error, 'invalid_request'), `${error}`);
      });
    }),
    { numRuns: 200 },
  );
  for (const [folder, only] of [
    ['..', 'b'],
    ['../..', 'a'],
  ] as const) {
    assert.deepEqual(await readdir(join(desk.root, folder)), [only]);
  }
  const made = await readdir(desk.root);
  assert.deepEqual(
    made.filter((name) => !/^\d+(\.tar\.gz)?$/.test(name)),
    [],
  );
});

function toTar(
  members: { path: string; type: string; linkpath: string; mode: number; body: string }[],
): Buffer {
  const parts = members.map(({ body, linkpath, ...data }) => {
    const isLink = data.type.endsWith('Link');
    return member({ ...data, ...(isLink ? { linkpath } : {}) } as HeaderData, isLink ? '' : body);
  });
  return Buffer.concat([...parts, end]);
}

function flip([tar, position, value]: [Buffer, number, number]): Buffer {
  const flipped = Buffer.from(tar);
  flipped[position % flipped.length] = value;
  return flipped;
}
