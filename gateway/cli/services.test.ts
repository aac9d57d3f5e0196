import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { GatewayError } from '../../sdk/index.ts';
import { e2bExports } from './e2b-exports.ts';
import type { CommandEntry } from './program.ts';
import { type ServiceOptions, type StartService, serviceCommand } from './services.ts';
import { run } from './testing/terminal.ts';

const entryOver = (start: StartService): CommandEntry => ({
  name: 'up',
  summary: '',
  group: 'Serve:',
  remote: 'none',
  load: async ({ context }) => serviceCommand('up', 'serve', { context, load: async () => start }),
});

/** Runs `snapgate up …` until it says that it serves, then presses Ctrl-C. */
async function serveOnce(context: TestContext, words: string[], env: Record<string, string>) {
  const interruption = new AbortController();
  const seen: ServiceOptions[] = [];
  let closed = 0;
  const start: StartService = async (options) => {
    seen.push(options);
    queueMicrotask(() => interruption.abort());
    return {
      url: 'http://127.0.0.1:7070',
      apiKey: 'e2b_first',
      isNewKey: words.includes('--data'),
      ready: Promise.resolve(),
      close: async () => {
        assert.ok(interruption.signal.aborted, 'closed only after Ctrl-C');
        closed++;
      },
    };
  };
  const ran = await run(context, ['up', ...words], {
    entries: [entryOver(start)],
    interrupted: interruption.signal,
    env,
  });
  return { ran, options: seen[0], closed: () => closed };
}

test('a service says where it serves, runs until Ctrl-C, closes and ends with 0', async (context) => {
  const { ran, closed } = await serveOnce(context, [], {});
  assert.equal(ran.code, 0);
  assert.match(ran.stderr, /^snapgate up serves on http:\/\/127\.0\.0\.1:7070; Ctrl-C stops it\.\n/);
  assert.equal(closed(), 1);
});

test('flags win over the environment for the address and the data directory', async (context) => {
  const env = { SNAPGATE_LISTEN: '127.0.0.1:1000', SNAPGATE_DATA: '/env' };
  const fromEnv = await serveOnce(context, [], env);
  assert.equal(fromEnv.options?.listen, '127.0.0.1:1000');
  assert.equal(fromEnv.options?.dataDirectory, '/env');
  const fromFlags = await serveOnce(
    context,
    ['--listen', '[::1]:2000', '--data', '/flag', '--log', 'debug'],
    env,
  );
  assert.equal(fromFlags.options?.listen, '[::1]:2000');
  assert.equal(fromFlags.options?.dataDirectory, '/flag');
  assert.equal(fromFlags.options?.logLevel, 'debug');
});

test('a new key is shown once, an old one never', async (context) => {
  const first = await serveOnce(context, ['--data', '/new'], {});
  assert.match(first.ran.stderr, /^API key, shown this once: e2b_first\n/m);
  const second = await serveOnce(context, [], {});
  assert.ok(!second.ran.stderr.includes('e2b_first'));
});

test('programs that use an E2B SDK are told how to get here, with a key only while it is new', async (context) => {
  const e2b = { domain: 'sb.test:7443', caPath: '/data/ca.pem' };
  const shown = e2bExports(e2b, null);
  assert.match(shown, /export E2B_DOMAIN=sb\.test:7443\n/);
  assert.match(shown, /export NODE_EXTRA_CA_CERTS=\/data\/ca\.pem/);
  assert.match(shown, /export E2B_API_KEY=<a key/);
  assert.match(e2bExports(e2b, 'e2b_1'), /export E2B_API_KEY=e2b_1\n/);
  assert.doesNotMatch(e2bExports({ ...e2b, caPath: null }, null), /CA_CERTS|CERT_FILE/);

  const usual = await serveOnce(context, [], {});
  assert.equal(usual.options?.tls, undefined);
  const off = await serveOnce(context, ['--tls', 'off'], {});
  assert.equal(off.options?.tls, null);
  const words = ['--tls', '0.0.0.0:443', '--tls-cert', 'c.pem', '--tls-key', '/k.pem', '--domain', 'sb.test'];
  const { options } = await serveOnce(context, words, { SNAPGATE_TLS_LISTEN: 'off' });
  assert.equal(options?.domain, 'sb.test');
  assert.match(
    JSON.stringify(options?.tls),
    /^{"listen":"0\.0\.0\.0:443","certPath":"\/.*c\.pem","keyPath":"\/k\.pem"}$/,
  );
  const entries = [entryOver(() => assert.fail('started'))];
  for (const bad of [
    ['--tls', 'nowhere'],
    ['--tls-cert', 'c.pem'],
  ])
    assert.equal((await run(context, ['up', ...bad], { entries })).code, 2);
});

test('a log level that is none is wrong usage, wherever it comes from', async (context) => {
  const entries = [entryOver(() => assert.fail('started'))];
  assert.equal((await run(context, ['up', '--log', 'loud'], { entries })).code, 2);
  assert.equal((await run(context, ['up'], { entries, env: { SNAPGATE_LOG: 'loud' } })).code, 2);
});

test('an address without a port is wrong usage', async (context) => {
  const never = entryOver(() => assert.fail('started'));
  assert.equal((await run(context, ['up', '--listen', 'localhost'], { entries: [never] })).code, 2);
});

test('a service that cannot start reports why, with what helps', async (context) => {
  const start = async () => {
    throw new GatewayError('host_not_ready', 'there is no qemu-system-x86_64 here', { component: 'edge' });
  };
  const { code, stderr } = await run(context, ['up'], { entries: [entryOver(start)] });
  assert.equal(code, 1);
  assert.match(stderr, /^error\[host_not_ready\]: there is no qemu/);
  assert.match(stderr, /→ `snapgate doctor` says what this host lacks/);
});

test('Ctrl-C while a service is starting ends quietly with 130', async (context) => {
  const interruption = new AbortController();
  const start: StartService = async ({ signal }) => {
    interruption.abort();
    throw signal.reason;
  };
  const { code, stderr } = await run(context, ['up'], {
    entries: [entryOver(start)],
    interrupted: interruption.signal,
  });
  assert.deepEqual({ code, stderr }, { code: 130, stderr: '' });
});
