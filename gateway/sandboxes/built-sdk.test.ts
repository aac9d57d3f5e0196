import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join, normalize } from 'node:path';
import { before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { startSandboxHarness } from '../testing/sandbox-harness.ts';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);
const tsc = join(root, 'node_modules/typescript/bin/tsc');

/** What every runtime must be able to do; nothing in it is of one of them. `sdk` is the module, `where` the gateway. */
const program = `async ({ Snapgate, isGatewayError }, { url, key }) => {
  const snapgate = new Snapgate({ url, apiKey: key });
  const sandbox = await snapgate.sandboxes.create({ template: 'open' });
  const result = await sandbox.run('cat; echo done', { stdin: 'given ' });
  const path = '/tmp/' + sandbox.id;
  await sandbox.files.write(path, new Blob(['kept']));
  const text = await sandbox.files.readText(path);
  const part = await new Response(await sandbox.files.stream(path, { offset: 1, length: 2 })).text();
  await sandbox.files.remove(path);
  const stop = new AbortController();
  const cancelled = sandbox.run('sleep 100', { signal: stop.signal }).catch((error) => error.code);
  setTimeout(() => stop.abort(), 50);
  const { children } = await sandbox.fork({ count: 2 });
  for (const child of children) await child[Symbol.asyncDispose]();
  const events = [];
  for await (const { type } of snapgate.sandboxes.events({ sandbox: sandbox.id })) events.push(type);
  const end = await cancelled;
  await sandbox.kill();
  const missing = await snapgate.invoke('nothing').catch((error) => isGatewayError(error) && error.code);
  return [result.stdout, result.exitCode, text, part, children.length, events, end, missing];
}`;
const expected = ['given done\n', 0, 'kept', 'ep', 2, ['created'], 'cancelled', 'template_not_found'];

/** Runtimes beside browsers. Debian's own Node is the oldest that the SDK promises to run on; the others are tried when they are there. */
const runtimes: {
  readonly name: string;
  readonly command: string | null;
  readonly args: readonly string[];
}[] = [
  { name: 'Node 20', command: existsSync('/usr/bin/node') ? '/usr/bin/node' : null, args: [] },
  { name: 'Deno', command: onPath('deno'), args: ['run', '--allow-all', '--node-modules-dir=manual'] },
  { name: 'Bun', command: onPath('bun'), args: ['run'] },
];

function onPath(name: string): string | null {
  const places = (process.env.PATH ?? '').split(delimiter).map((directory) => join(directory, name));
  return places.find((place) => existsSync(place)) ?? null;
}

/** What a program in TypeScript writes; it must not compile when the declarations don't hold together. */
const consumerSource = `
  import { Snapgate, type CommandResult, type Sandbox } from './index.js';
  export async function use(sandbox: Sandbox): Promise<number | null> {
    const result: CommandResult = await sandbox.run('true');
    // @ts-expect-error a port is a number
    sandbox.port('80');
    return result.exitCode;
  }
  export const snapgate = new Snapgate({ url: 'http://127.0.0.1' });
`;
const consumerFlags =
  '--ignoreConfig --noEmit --strict --target es2022 --module nodenext --lib es2022,dom,esnext.disposable'.split(
    ' ',
  );

describe('the built SDK', () => {
  before(() => run(process.execPath, [tsc, '-p', 'sdk/tsconfig.build.json'], { cwd: root }));

  for (const { name, command, args } of runtimes) {
    test(`runs under ${name}, without anything but fetch`, async (context) => {
      if (command === null) return context.skip('it is not installed');
      await using h = await startSandboxHarness();
      // Beside the build, where every runtime finds the packages of this folder.
      const directory = await mkdtemp(join(root, 'dist/program-'));
      try {
        const file = join(directory, 'program.mjs');
        const sdk = JSON.stringify(join(root, 'dist/sdk/index.js'));
        const where = JSON.stringify({ url: h.url, key: h.key });
        const source = `const sdk = await import(${sdk}); console.log(JSON.stringify(await (${program})(sdk, ${where})));`;
        await writeFile(file, source);
        const { stdout } = await run(command, [...args, file], { cwd: root, timeout: 60_000 });
        assert.deepEqual(JSON.parse(stdout), expected);
      } finally {
        await rm(directory, { recursive: true });
      }
    });
  }

  test('runs in a page of another origin, with an import map in place of a bundler', async (context) => {
    if (!existsSync('/usr/bin/chromium')) return context.skip('there is no chromium');
    await using h = await startSandboxHarness();
    await using page = await openPage();
    const where = { url: h.url, key: h.key };
    const answer = await page.evaluate(
      `import('/dist/sdk/index.js').then((sdk) => (${program})(sdk, ${JSON.stringify(where)}))`,
    );
    assert.deepEqual(answer, expected);
    const refused = await page.evaluate(
      `import('/dist/sdk/index.js').then(({ Snapgate }) => new Snapgate({ url: ${JSON.stringify(h.url)}, apiKey: 'wrong' })
        .sandboxes.get('x').catch((error) => error.code))`,
    );
    assert.equal(refused, 'unauthenticated', 'an error of the API can be read by the page');
  });

  test('has declarations that a strict program compiles against', async () => {
    const consumer = join(root, 'dist/sdk/consumer.test-d.mts');
    await writeFile(consumer, consumerSource);
    try {
      await run(process.execPath, [tsc, ...consumerFlags, consumer], { cwd: root });
    } finally {
      await rm(consumer);
    }
  });
});

/** A page of a server that gives out the built files as they are. */
async function openPage() {
  const imports = { zod: '/node_modules/zod/index.js' };
  const html = `<!doctype html><script type="importmap">${JSON.stringify({ imports })}</script>`;
  const server = createServer((request, response) => {
    const path = normalize(new URL(request.url ?? '/', 'http://page').pathname);
    if (path === '/') return void response.setHeader('content-type', 'text/html').end(html);
    readFile(join(root, path)).then(
      (bytes) => response.setHeader('content-type', 'text/javascript').end(bytes),
      () => response.writeHead(404).end(),
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const page = await browser.newPage();
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  return {
    evaluate: (source: string): Promise<unknown> => page.evaluate(source),
    async [Symbol.asyncDispose]() {
      await browser.close();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
