import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { inNamespace, runCommand } from '../command.ts';
import { cannotRun, createWorld, inside } from '../testing/world.ts';

const program = join(import.meta.dirname, 'build/tap-launch');
const launch = (...argv: string[]) =>
  spawnSync(program, argv, { encoding: 'utf8', env: { PATH: '/usr/bin:/bin:/usr/sbin:/sbin' } });

test('a program gets the tap of its slot, and nothing else of any network, and is not root', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  await runCommand(inNamespace(world.internet, ['ip', 'tuntap', 'add', 'dev', 'tap0', 'mode', 'tap']));
  const look =
    'cat /proc/self/status /proc/self/fdinfo/7; readlink /proc/self/ns/net; ls /proc/self/fd; ip -brief link';
  const { stdout, stderr, status } = launch(
    world.internet,
    'tap0',
    '7',
    '1234',
    '2345',
    '/bin/sh',
    '-c',
    look,
  );
  assert.equal(status, 0, stderr);
  assert.match(stdout, /^iff:\ttap0$/m);
  assert.match(stdout, /^Uid:\t1234\t1234\t1234\t1234$/m);
  assert.match(stdout, /^Gid:\t2345\t2345\t2345\t2345$/m);
  assert.match(stdout, /^Groups:\t *$/m);
  assert.match(stdout, /^CapEff:\t0{16}$/m);
  const [, namespace] = /^(net:\[\d+\])$/m.exec(stdout) ?? [];
  const slot = (await inside(world.internet, ['readlink', '/proc/self/ns/net'])).trim();
  assert.ok(namespace !== undefined && ![slot, readlinkSync('/proc/self/ns/net')].includes(namespace));
  assert.deepEqual(
    stdout
      .split('\n')
      .filter((line) => /UP|DOWN/.test(line))
      .map((line) => line.split(/\s/)[0]),
    ['lo'],
  );
  // Standard streams, the tap, and the directory that is being listed.
  assert.deepEqual(
    stdout.split('\n').filter((line) => /^\d+$/.test(line)),
    ['0', '1', '2', '3', '7'],
  );
});

test('what can not be opened is said, and nothing is started', { skip: cannotRun }, async () => {
  await using world = await createWorld();
  for (const [netns, tap, words] of [
    ['nowhere', 'tap0', /No such file/],
    ['../netns', 'tap0', /Invalid argument/],
    [world.internet, 'x'.repeat(16), /Invalid argument/],
  ] as const) {
    const { stdout, stderr, status } = launch(netns, tap, '7', '1', '1', '/bin/echo', 'started');
    assert.deepEqual([status, stdout], [71, '']);
    assert.match(stderr, words);
  }
});
