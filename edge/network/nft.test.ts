import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { cannotRun, createWorld } from './testing/world.ts';

test('commands run in the namespace they name, in order, and failures have nft’s words', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  const { nft, internet, outside } = world;
  await Promise.all([
    nft.run(internet, 'add table inet here'),
    nft.run(internet, 'add chain inet here chain_of_ten'),
  ]);
  assert.match(await nft.run(internet, 'list tables'), /table inet here/);
  assert.doesNotMatch(await nft.run(outside, 'list tables'), /here/);
  const json = JSON.parse(await nft.run(internet, 'list tables', { isJson: true }));
  assert.ok(Array.isArray(json.nftables));
  await assert.rejects(nft.run(internet, 'add rule inet here other_chain accept'), (error) => {
    assert.ok(isGatewayError(error, 'host_not_ready'));
    return /No such file/.test(error.details.output ?? '');
  });
  await assert.rejects(nft.run('nowhere', 'list tables'), (error) => isGatewayError(error, 'host_not_ready'));
});

test('the process is started anew when it was killed, and a large text passes whole', {
  skip: cannotRun,
}, async () => {
  await using world = await createWorld();
  const { nft, internet } = world;
  await nft.run(internet, 'add table inet here');
  const [pid] = childrenNamed('slot-nft');
  assert.ok(pid !== undefined);
  process.kill(pid, 'SIGKILL');
  // What comes before its end is noticed is lost with it, and said to be.
  for (let isBack = false; !isBack; )
    isBack = await nft.run(internet, 'list tables').then(
      () => true,
      (error) => !isGatewayError(error, 'host_not_ready'),
    );
  const many = Array.from({ length: 20_000 }, (_, n) => `10.${n >> 16}.${(n >> 8) & 255}.${n & 255}`);
  await nft.run(
    internet,
    `table inet here { set large { type ipv4_addr; elements = { ${many.join(', ')} }; }; }`,
  );
  assert.match(await nft.run(internet, 'list set inet here large'), /10\.0\.78\.31/);
});

const childrenNamed = (name: string): number[] =>
  readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .filter((entry) => {
      const { stdout } = spawnSync('cat', [`/proc/${entry}/stat`], { encoding: 'utf8' });
      const [, command, parent] = /^\d+ \((.*)\) [^Z] (\d+)/.exec(stdout) ?? [];
      return (
        command === name &&
        Number(parent) === process.pid &&
        readFileSync(`/proc/${entry}/comm`, 'utf8') !== ''
      );
    })
    .map(Number);
