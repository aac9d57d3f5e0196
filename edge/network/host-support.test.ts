import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lackOfSupport } from './host-support.ts';

const status = (mask: string) => `Name:\tnode\nCapEff:\t${mask}\nSeccomp:\t0\n`;
const all = status('000001ffffffffff');

test('a host with its capabilities and taps can enforce rules', () => {
  assert.equal(lackOfSupport({ uid: 0, status: all, hasTun: true }), null);
});

test('what is missing is named with the command that changes it', () => {
  const words = (...probes: Parameters<typeof lackOfSupport>) => lackOfSupport(...probes)?.message ?? '';
  assert.match(
    words({ uid: 1000, status: status('0000000000000000'), hasTun: true }),
    /lacks CAP_NET_ADMIN and CAP_SYS_ADMIN; start it as root: sudo npm start$/,
  );
  // A root in a container without CAP_NET_ADMIN (bit 12).
  assert.match(
    words({ uid: 0, status: status('000001ffffffefff'), hasTun: false }),
    /lacks CAP_NET_ADMIN and \/dev\/net\/tun; start its container with: --cap-add NET_ADMIN --device \/dev\/net\/tun$/,
  );
  assert.equal(lackOfSupport({ uid: 0, status: '', hasTun: true })?.code, 'host_not_ready');
});
