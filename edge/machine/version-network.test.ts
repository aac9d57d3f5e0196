import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError, isGatewayError, type MachineId, type VersionDigest } from '../../sdk/index.ts';
import { parseDefinition } from '../../templates/index.ts';
import type { MachineNetworks } from '../network/index.ts';
import type { RestorableVersion } from './restorable-version.ts';
import { admitNetwork, versionNetworks } from './version-network.ts';

const able = { requireSupport: () => {}, shut: () => [] };

test('a template without rules needs nothing of the node', () => {
  const unable = { requireSupport: () => assert.fail(), shut: () => assert.fail() };
  admitNetwork(unable, {}, () => assert.fail());
});

test('rules are refused where the node can’t enforce them, or where they mean nothing', () => {
  const lack = new GatewayError('host_not_ready', 'start it as root', { component: 'edge' });
  const unable = {
    ...able,
    requireSupport: () => {
      throw lack;
    },
  };
  assert.throws(() => admitNetwork(unable, { network: {} }, () => {}), lack);
  assert.throws(
    () => admitNetwork(able, { network: { nogroup: true } }, () => {}),
    (error) => isGatewayError(error, 'invalid_definition') && error.details.field === 'network',
  );
});

test('rules that the floor shuts here are told to whoever builds', () => {
  const told: string[] = [];
  admitNetwork({ ...able, shut: () => ['10.0.0.0/8'] }, { network: { '10.0.0.0/8': true } }, (text) =>
    told.push(text),
  );
  assert.match(told.join(), /"10\.0\.0\.0\/8" allows nothing on this node.*permittedRanges/);
});

test('machines get the rules of their version, and those without any are left alone', async () => {
  const set: unknown[] = [];
  const networks = {
    setRules: async (...words: unknown[]) => void set.push(words),
  } as unknown as MachineNetworks;
  const version = (network?: Record<string, boolean>) =>
    ({
      digest: 'sha256:1' as VersionDigest,
      definition: parseDefinition({ name: 'walled', ...(network === undefined ? {} : { network }) }),
    }) as RestorableVersion;
  const enter = versionNetworks(networks);
  await enter('m' as MachineId, version());
  assert.deepEqual(set, []);
  await enter('m' as MachineId, version({ pypi: true }));
  const [[machine, owner, rules]] = set as unknown as [[string, object, { rules: { text: string }[] }]];
  assert.deepEqual(
    [machine, owner],
    ['m', { digest: 'sha256:1', sandbox: null, ruleSet: 'template walled' }],
  );
  assert.ok(rules.rules.every(({ text }) => text === 'pypi'));
});
