import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type NetworkedNode, openNetworkedNode, worldHosts } from './testing/networked-node.ts';
import { cannotRun } from './testing/world.ts';

const { shared, other } = worldHosts;

describe('network rules around real guests', { skip: cannotRun }, () => {
  let node: NetworkedNode;
  before(async () => {
    node = await openNetworkedNode();
    node.zone.set('a.example.com', { addresses: [shared], ttl: 60 });
    node.zone.set('b.example.com', { addresses: [shared], ttl: 60 });
    for (const address of [shared, other]) {
      await node.serve('tls', address, 443);
      await node.serve('http', address, 80);
    }
  });
  after(() => node?.[Symbol.asyncDispose]());

  test('a guest reaches an allowed name and no other', async () => {
    const { id } = await node.create({ 'a.example.com': true });
    const found = await node.probe(id, [
      { do: 'resolve', name: 'a.example.com' },
      { do: 'tls', address: shared, port: 443, sni: 'a.example.com' },
      { do: 'http', address: shared, port: 80, hosts: ['a.example.com', 'b.example.com'] },
      { do: 'resolve', name: 'b.example.com' },
      { do: 'tls', address: shared, port: 443, sni: 'b.example.com' },
      { do: 'tls', address: other, port: 443, sni: 'a.example.com' },
      { do: 'run', argv: ['cat', '/etc/resolv.conf', '/proc/net/route'] },
    ]);
    console.log(found);
  });
});
