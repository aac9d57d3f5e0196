import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isGatewayError } from '../../../sdk/index.ts';
import { contains, isWithin, parseAddress, parseRange } from './address.ts';
import { parseE2bNetwork } from './e2b.ts';
import { type Destination, explain, explainName, portsOfName } from './explain.ts';
import { createFloor, floorReason } from './floor.ts';
import { parseRules } from './rules.ts';

const floor = createFloor({ hostAddresses: ['93.184.216.1'], permittedRanges: ['10.1.0.0/16'] });
const to = (rest: Partial<Destination>): Destination => ({ protocol: 'tcp', port: 443, ...rest });
const verdict = (rules: ReturnType<typeof parseRules>, rest: Partial<Destination>) =>
  explain(rules, floor, to(rest)).verdict;

test('a host rule opens 80 and 443 over TCP of exactly that name', () => {
  const rules = parseRules({ 'github.com': true });
  assert.equal(verdict(rules, { name: 'GitHub.com.' }), 'allow');
  assert.equal(verdict(rules, { name: 'github.com', port: 80 }), 'allow');
  assert.equal(verdict(rules, { name: 'github.com', port: 22 }), 'refuse');
  assert.equal(verdict(rules, { name: 'github.com', port: 80, protocol: 'udp' }), 'refuse');
  assert.equal(verdict(rules, { name: 'api.github.com' }), 'refuse');
  assert.equal(verdict(rules, { address: '140.82.112.3' }), 'refuse');
});

test('a wildcard matches below its name and not the name itself', () => {
  const rules = parseRules({ '*.example.com': true });
  assert.equal(verdict(rules, { name: 'a.b.example.com' }), 'allow');
  assert.equal(verdict(rules, { name: 'example.com' }), 'refuse');
  assert.equal(verdict(rules, { name: 'badexample.com' }), 'refuse');
});

test('false subtracts wherever it stands', () => {
  const rules = parseRules({ '*': true, 'evil.example.com': false, '198.41.0.0/24': false });
  assert.equal(verdict(rules, { name: 'evil.example.com', address: '93.184.216.34' }), 'refuse');
  assert.equal(verdict(rules, { name: 'good.example.com', address: '93.184.216.34' }), 'allow');
  assert.equal(verdict(rules, { address: '198.41.0.4' }), 'refuse');
  assert.equal(explainName(rules, 'evil.example.com').rule, 'evil.example.com');
});

test('groups are the hosts they document, and decide under their own name', () => {
  const found = explain(parseRules({ pypi: true }), floor, to({ name: 'files.pythonhosted.org' }));
  assert.deepEqual([found.verdict, found.rule], ['allow', 'pypi']);
  assert.equal(verdict(parseRules({ pypi: true }), { name: 'registry.npmjs.org' }), 'refuse');
});

test('private addresses need the operator and an address rule', () => {
  assert.equal(
    verdict(parseRules({ '10.1.2.0/24:5432': true }), { address: '10.1.2.3', port: 5432 }),
    'allow',
  );
  assert.equal(
    verdict(parseRules({ '10.1.2.0/24:5432': true }), { address: '10.1.2.3', port: 5433 }),
    'refuse',
  );
  assert.equal(verdict(parseRules({ '10.2.0.0/16': true }), { address: '10.2.2.3' }), 'refuse');
  assert.equal(verdict(parseRules({ '10.0.0.0/8': true }), { address: '10.1.2.3' }), 'refuse');
  assert.equal(
    verdict(parseRules({ 'db.example.com': true }), { name: 'db.example.com', address: '10.1.2.3' }),
    'refuse',
  );
  assert.equal(verdict(parseRules({ '*': true }), { address: '10.1.2.3' }), 'refuse');
});

test('the floor covers every way of writing a metadata, host or private address', () => {
  for (const address of [
    '169.254.169.254',
    '::ffff:169.254.169.254',
    '::ffff:a9fe:a9fe',
    '64:ff9b::a9fe:a9fe',
    '2002:a9fe:a9fe::1',
    '::169.254.169.254',
    'fd00:ec2::254',
    '93.184.216.1',
    '::ffff:93.184.216.1',
    '127.0.0.1',
    '::1',
    '0.0.0.0',
    '100.64.0.1',
    '224.0.0.1',
    'fe80::1',
    '192.168.1.1',
    '0177.0.0.1',
    '2130706433',
    '127.1',
    'fe80::1%eth0',
  ])
    assert.notEqual(floorReason(floor, address), null, address);
  for (const address of ['8.8.8.8', '2606:4700::1111', '93.184.216.34'])
    assert.equal(floorReason(floor, address), null, address);
});

test('UDP 443 is refused as soon as a rule names a host', () => {
  assert.equal(verdict(parseRules({ '*': true }), { address: '8.8.8.8', protocol: 'udp' }), 'allow');
  const named = parseRules({ '*': true, 'github.com': true });
  assert.equal(explain(named, floor, to({ address: '8.8.8.8', protocol: 'udp' })).reason, 'udp_443');
});

test('a port of a name is pinned only when its rules open it', () => {
  const rules = parseRules({ 'a.example.com': true, 'a.example.com:22': true, 'a.example.com:80': false });
  assert.deepEqual(
    portsOfName(rules, 'a.example.com'),
    [
      { port: 443, protocol: 'tcp' },
      { port: 22, protocol: 'tcp' },
      { port: 22, protocol: 'udp' },
    ].sort((a, b) => [80, 443, 22].indexOf(a.port) - [80, 443, 22].indexOf(b.port)),
  );
});

test('rules that mean nothing or two things are refused', () => {
  for (const text of [
    '',
    'localhost',
    'a..b',
    '1.2.3',
    '0x7f.1',
    'a.b:0',
    'a.b:65536',
    '2001:db8::/33:443x',
    'a b.c',
    '**.a.b',
    '10.0.0.0/33',
    '[::1',
    '2001:db8::/32:443',
  ])
    assert.throws(
      () => parseRules({ [text]: true }),
      (error) => isGatewayError(error, 'invalid_request'),
      text,
    );
  assert.equal(verdict(parseRules({ '[2606:4700::]/32:443': true }), { address: '2606:4700::1' }), 'allow');
});

test('in the E2B form what is allowed wins over what is denied, and the rest follows the denial of all', () => {
  const closed = parseE2bNetwork({ allowOut: ['8.8.8.8', '*.example.com'], denyOut: ['0.0.0.0/0'] });
  assert.equal(verdict(closed, { address: '8.8.8.8' }), 'allow');
  assert.equal(verdict(closed, { address: '8.8.4.4' }), 'refuse');
  assert.equal(verdict(closed, { address: '2606:4700::1' }), 'refuse');
  assert.equal(verdict(closed, { name: 'www.example.com' }), 'allow');
  const open = parseE2bNetwork({ denyOut: ['8.8.8.0/24'], allowOut: ['8.8.8.8'] });
  assert.equal(verdict(open, { address: '8.8.8.8' }), 'allow');
  assert.equal(verdict(open, { address: '8.8.8.9' }), 'refuse');
  assert.equal(verdict(open, { address: '1.1.1.1' }), 'allow');
  assert.equal(verdict(parseE2bNetwork({}), { address: '169.254.169.254' }), 'refuse');
  assert.equal(verdict(parseE2bNetwork({ allowInternetAccess: false }), { address: '1.1.1.1' }), 'refuse');
});

test('the E2B form refuses denied names, ports and names without a denial of all', () => {
  const bad = [{ denyOut: ['a.example.com'] }, { allowOut: ['8.8.8.8:53'] }, { allowOut: ['a.example.com'] }];
  for (const input of bad)
    assert.throws(
      () => parseE2bNetwork(input),
      (error) => isGatewayError(error, 'invalid_request'),
    );
});

const v4 = fc.ipV4();
const v6 = fc.ipV6();

test('parsing an address is idempotent, and a range of full length holds exactly its address', () => {
  fc.assert(
    fc.property(fc.oneof(v4, v6), (text) => {
      const parsed = parseAddress(text);
      assert.ok(parsed !== null);
      assert.deepEqual(parseAddress(parsed.text), parsed);
      const range = parseRange(parsed.text);
      assert.ok(range !== null && contains(range, text));
      assert.ok(isWithin(range, range));
    }),
  );
});

test('no set of rules opens an address of the floor without an operator', () => {
  const strict = createFloor({ hostAddresses: [], permittedRanges: [] });
  const key = fc.oneof(
    fc.constantFrom('*', 'pypi', 'a.example.com', '*.example.com', '0.0.0.0/0', '::/0'),
    v4.map((a) => `${a}/8`),
  );
  fc.assert(
    fc.property(
      fc.dictionary(key, fc.boolean()),
      fc.oneof(
        fc.ipV4().map((a) => a.replace(/^\d+/, '10')),
        fc.constantFrom('169.254.169.254', '127.0.0.1', 'fe80::1', '::ffff:10.0.0.1'),
      ),
      fc.constantFrom(undefined, 'a.example.com', 'pypi.org'),
      fc.constantFrom<'tcp' | 'udp'>('tcp', 'udp'),
      (input, address, name, protocol) => {
        const found = explain(parseRules(input), strict, {
          protocol,
          port: 443,
          address,
          ...(name === undefined ? {} : { name }),
        });
        assert.equal(found.verdict, 'refuse');
      },
    ),
  );
});

test('adding a false rule never opens anything', () => {
  const key = fc.constantFrom(
    '*',
    'a.example.com',
    '*.example.com',
    'a.example.com:22',
    '8.8.8.0/24',
    '8.8.8.8:53',
  );
  fc.assert(
    fc.property(
      fc.dictionary(key, fc.boolean()),
      key,
      fc.constantFrom('8.8.8.8', '9.9.9.9'),
      fc.constantFrom('a.example.com', 'b.example.com'),
      fc.constantFrom(22, 53, 80, 443),
      (input, extra, address, name, port) => {
        const before = verdict(parseRules(input), { address, name, port });
        const after = verdict(parseRules({ ...input, [extra]: false }), { address, name, port });
        if (before === 'refuse') assert.equal(after, 'refuse');
      },
    ),
  );
});
