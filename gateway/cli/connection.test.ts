import assert from 'node:assert/strict';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { findConnection } from './connection.ts';
import { makeContext, type Setting, temporaryDirectory } from './testing/terminal.ts';

const stored = { url: 'http://127.0.0.1:9999', apiKey: 'e2b_stored' };
const ownUserId = process.geteuid?.() ?? 0;

/** A home with a credentials file of the running user, as a local gateway leaves it. */
async function homeWith(context: TestContext, text: string, mode = 0o600) {
  const home = await temporaryDirectory(context);
  const path = join(home, 'data', 'credentials.json');
  await mkdir(dirname(path));
  await writeFile(path, text);
  await chmod(path, mode);
  const env = { SNAPGATE_DATA: join(home, 'data') };
  return (setting: Setting = {}) =>
    makeContext(home, { userId: ownUserId, ...setting, env: { ...env, ...setting.env } }).context;
}

test('with nothing said, address and key come from the credentials file of the local gateway', async (context) => {
  const at = await homeWith(context, JSON.stringify(stored));
  assert.deepEqual(findConnection({}, at()), stored);
});

test('without a credentials file it is the default address and no key', async (context) => {
  const home = await temporaryDirectory(context);
  const { context: bare } = makeContext(home, { env: { SNAPGATE_DATA: home } });
  assert.deepEqual(findConnection({}, bare), { url: 'http://127.0.0.1:7070' });
});

test('flags win over the environment, and the environment over the file', async (context) => {
  const at = await homeWith(context, JSON.stringify(stored));
  const env = { SNAPGATE_URL: 'http://env', SNAPGATE_API_KEY: 'env-key' };
  assert.deepEqual(findConnection({}, at({ env })), { url: 'http://env', apiKey: 'env-key' });
  assert.deepEqual(findConnection({ url: 'http://flag', apiKey: 'flag-key' }, at({ env })), {
    url: 'http://flag',
    apiKey: 'flag-key',
  });
});

test('the stored key is sent to its own address only', async (context) => {
  const at = await homeWith(context, JSON.stringify(stored));
  assert.deepEqual(findConnection({ url: 'http://elsewhere' }, at()), { url: 'http://elsewhere' });
  assert.deepEqual(findConnection({ url: `${stored.url}/` }, at()), {
    url: `${stored.url}/`,
    apiKey: stored.apiKey,
  });
});

test("a key from the environment is not sent to a credentials file's address", async (context) => {
  const at = await homeWith(context, JSON.stringify({ ...stored, url: 'http://planted' }));
  assert.deepEqual(findConnection({}, at({ env: { SNAPGATE_API_KEY: 'mine' } })), {
    url: 'http://127.0.0.1:7070',
    apiKey: 'mine',
  });
});

test('a credentials file that others may read is refused with the command that closes it', async (context) => {
  const at = await homeWith(context, JSON.stringify(stored), 0o644);
  assert.throws(
    () => findConnection({}, at()),
    (error: Error) => isGatewayError(error, 'invalid_request') && /chmod 600 \//.test(error.message),
  );
});

test('a credentials file of another user is refused', async (context) => {
  if (ownUserId === 0) return context.skip('files of root are trusted, and the tests run as root');
  const at = await homeWith(context, JSON.stringify(stored));
  assert.throws(() => findConnection({}, at({ userId: ownUserId + 1 })), /must belong to you/);
});

test('a malformed credentials file is refused without quoting what is in it', async (context) => {
  for (const text of [
    '{"url":"http://h","apiKey":"e2b_secret"',
    JSON.stringify({ ...stored, apiKey: 'e2b_secret', more: 1 }),
    JSON.stringify({ url: 'nope', apiKey: 'e2b_secret' }),
    `"e2b_secret${' '.repeat(70_000)}"`,
  ]) {
    const at = await homeWith(context, text);
    assert.throws(
      () => findConnection({}, at()),
      (error: Error) => isGatewayError(error, 'invalid_request') && !error.message.includes('e2b_secret'),
    );
  }
});
