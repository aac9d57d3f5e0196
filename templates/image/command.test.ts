import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { runCommand, toImageError } from './command.ts';
import { buildEnvironment } from './debian.ts';

const options = { signal: AbortSignal.timeout(60_000), env: buildEnvironment };
const shell = (script: string, more = {}) => runCommand('sh', ['-c', script], { ...options, ...more });

test('stdout is answered, and both streams are reported line by line', async () => {
  const lines: string[] = [];
  const { stdout } = await shell('echo one; echo two >&2', { onLine: (line: string) => lines.push(line) });
  assert.equal(stdout, 'one\n');
  assert.deepEqual(lines.sort(), ['one', 'two']);
});

test('a failure names the program and its last lines only', async () => {
  await assert.rejects(shell('seq 1 5000; echo last words >&2; exit 3'), (error) => {
    assert.ok(isGatewayError(error, 'build_failed'));
    assert.match(error.message, /^sh failed \(exit code 3\)$/);
    const lines = error.details.output!.split('\n');
    assert.ok(lines.includes('last words'));
    assert.ok(lines.length <= 40);
    return true;
  });
});

test('a full disk is told apart from other failures', async () => {
  const message = "mkfs.erofs: can't write: No space left on device";
  await assert.rejects(shell(`echo "${message}" >&2; exit 1`), { code: 'disk_full' });
  assert.equal(
    toImageError(Object.assign(new Error('write'), { code: 'ENOSPC' }), 'packing').code,
    'disk_full',
  );
});

test('a program that is not there means that the host is not ready', async () => {
  await assert.rejects(runCommand('snapgate-no-such-program', [], options), { code: 'host_not_ready' });
});

test('terminal escapes and overlong lines do not get through', async () => {
  const lines: string[] = [];
  await shell("printf '\\033[31mred\\033[0m\\a\\n'; head -c 100000 /dev/zero | tr '\\0' x; echo", {
    onLine: (line: string) => lines.push(line),
  });
  assert.equal(lines[0], 'red');
  assert.equal(lines[1]?.length, 1_000);
});

test('nothing of our own environment reaches a program', async () => {
  process.env.SNAPGATE_TEST_SECRET = 'secret';
  try {
    const { stdout } = await runCommand('env', [], options);
    assert.doesNotMatch(stdout, /secret/);
    assert.match(stdout, /^LANG=C.UTF-8$/m);
  } finally {
    delete process.env.SNAPGATE_TEST_SECRET;
  }
});

test('an abort ends the program and what it started', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'command-'));
  try {
    const pidPath = join(directory, 'pid');
    const controller = new AbortController();
    const running = shell(`sleep 600 & echo $! > ${pidPath}; echo started; wait`, {
      signal: controller.signal,
      onLine: () => controller.abort(new Error('enough')),
    });
    await assert.rejects(running, /enough/);
    const pid = (await readFile(pidPath, 'utf8')).trim();
    // The group was signalled before the pipes closed; a zombie waiting for init to reap it is as good as gone.
    const state = existsSync(`/proc/${pid}`)
      ? await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
      : '';
    assert.match(state, /^$|\) Z /);
  } finally {
    await rm(directory, { recursive: true });
  }
});
