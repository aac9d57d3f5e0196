import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { inNamespace, runCommand } from '../command.ts';
import { createFloor } from '../rules/floor.ts';
import { parseRules } from '../rules/rules.ts';
import { cannotRun, createWorld } from '../testing/world.ts';
import { renderRuleset } from './ruleset.ts';

const floor = createFloor({ hostAddresses: ['192.0.2.1', '2001:db8::1'], permittedRanges: ['10.1.0.0/16'] });
const render = (rules: Record<string, boolean>) =>
  renderRuleset({
    rules: parseRules(rules),
    floor,
    generation: 7,
    pins: [{ family: 4, address: '93.184.216.34', protocol: 'tcp', port: 443, ttlSeconds: 30 }],
    limits: { connections: 100, newConnectionsPerSecond: 50 },
  });
const chain = (text: string, name: string) => text.split(`  chain ${name} {\n`)[1]?.split('  }\n')[0] ?? '';

test('the floor is looked at before any rule, in both directions and before steering', () => {
  const text = render({ '*': true, 'evil.example.com': false });
  for (const [name, word] of [
    ['judge_out', 'goto floored_out'],
    ['judge_back', 'goto floored_back'],
    ['steer', 'return'],
  ] as const)
    assert.match(
      chain(text, name),
      new RegExp(`^    ip .addr @floor4 ${word}\n    ip6 .addr @floor6 ${word}\n`),
    );
});

test('without rules nothing is admitted, and nothing steered', () => {
  const text = render({});
  assert.doesNotMatch(text, /goto admit|jump steer/);
});

test('where a name is refused, web connections are never forwarded unasked', () => {
  assert.match(
    chain(render({ '*': true, 'evil.example.com': false }), 'judge_out'),
    /tcp dport \{ 80, 443 \} goto refuse\n(.*\n)*.*goto admit/,
  );
});

test('only a range inside what the operator permits opens the floor', () => {
  const text = chain(render({ '*': true, '10.0.0.0/8': true, '10.1.2.0/24:5432': true }), 'floored_out');
  assert.match(text, /ip daddr 10\.1\.2\.0\/24 .*th dport 5432 goto admit/);
  assert.equal(text.match(/goto admit/g)?.length, 1);
});

test('nft takes the ruleset of any rules', { skip: cannotRun }, async () => {
  await using world = await createWorld();
  const key = fc.oneof(
    fc.constantFrom('*', '*:80', 'pypi', 'a.example.com', '*.example.com:22', 'a.example.com:443'),
    fc.tuple(fc.ipV4(), fc.integer({ min: 0, max: 32 })).map(([address, prefix]) => `${address}/${prefix}`),
    fc
      .tuple(fc.ipV6(), fc.integer({ min: 0, max: 95 }), fc.integer({ min: 1, max: 65_535 }))
      .map(([a, p, port]) => `[${a.includes('.') ? '2606::1' : a}]/${p}:${port}`),
  );
  const nft = (input: string) =>
    runCommand(inNamespace(world.internet, ['nft', '--check', '-f', '-']), { input });
  await runCommand(inNamespace(world.internet, ['ip', 'tuntap', 'add', 'dev', 'tap0', 'mode', 'tap']));
  await fc.assert(
    fc.asyncProperty(
      fc.dictionary(key, fc.boolean(), { maxKeys: 12 }),
      async (rules) => void (await nft(render(rules))),
    ),
    { numRuns: 25 },
  );
  const many = Object.fromEntries(
    Array.from({ length: 1000 }, (_, n) => [`8.${n >> 8}.${n & 255}.0/24`, n % 3 > 0]),
  );
  await nft(render(many));
});
