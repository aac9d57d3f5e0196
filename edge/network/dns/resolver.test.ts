import assert from 'node:assert/strict';
import dgram from 'node:dgram';
import { once } from 'node:events';
import net from 'node:net';
import { test } from 'node:test';
import dnsPacket, { type Answer, type Packet } from 'dns-packet';
import { createResolver } from './resolver.ts';

interface Upstream extends AsyncDisposable {
  readonly port: number;
  /** `udp NAME` and `tcp NAME`, in order. */
  readonly asked: string[];
}

/** A resolver on loopback, over UDP and TCP on one port. */
async function upstreamOf(
  answer: (name: string, over: 'udp' | 'tcp', query: Packet) => Partial<Packet> | null,
): Promise<Upstream> {
  const asked: string[] = [];
  const reply = (bytes: Buffer, over: 'udp' | 'tcp'): Packet | null => {
    const query = dnsPacket.decode(bytes);
    const name = query.questions?.[0]?.name ?? '';
    asked.push(`${over} ${name}`);
    const more = answer(name, over, query);
    return more === null
      ? null
      : { type: 'response', id: query.id ?? 0, questions: query.questions ?? [], ...more };
  };
  const udp = dgram.createSocket('udp4');
  udp.on('message', (bytes, from) => {
    const packet = reply(bytes, 'udp');
    if (packet !== null) udp.send(dnsPacket.encode(packet), from.port, from.address);
  });
  udp.bind(0, '127.0.0.1');
  await once(udp, 'listening');
  const { port } = udp.address();
  const tcp = net.createServer((socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => {
      const packet = reply(bytes.subarray(2), 'tcp');
      if (packet === null) socket.destroy();
      // In two pieces, as a network may deliver it.
      else for (const part of halves(dnsPacket.streamEncode(packet))) socket.write(part);
    });
  });
  tcp.listen(port, '127.0.0.1');
  await once(tcp, 'listening');
  return {
    port,
    asked,
    async [Symbol.asyncDispose]() {
      udp.close();
      await new Promise((resolve) => tcp.close(resolve));
    },
  };
}

const halves = (bytes: Buffer) => [bytes.subarray(0, 7), bytes.subarray(7)];
const address = (name: string, data: string, ttl = 60): Answer => ({ type: 'A', name, ttl, data });
const alias = (name: string, data: string, ttl = 60): Answer => ({ type: 'CNAME', name, ttl, data });
const resolverOf = (now: () => number, ...ports: number[]) =>
  createResolver({ now }, { servers: ports.map((port) => ({ address: '127.0.0.1', port })), timeoutMs: 300 });

test('an answer that was cut is asked for again over TCP, and taken whole', async () => {
  const many = Array.from({ length: 40 }, (_, n) => address('a.example.com', `192.0.2.${n}`));
  await using upstream = await upstreamOf((_, over) =>
    over === 'udp' ? { flags: dnsPacket.TRUNCATED_RESPONSE } : { answers: many },
  );
  const found = await resolverOf(() => 0, upstream.port).resolve('a.example.com', 'A');
  assert.equal(found.addresses.length, 32);
  assert.deepEqual(upstream.asked, ['udp a.example.com', 'tcp a.example.com']);
});

test('aliases are followed through further questions, and the shortest time counts', async () => {
  await using upstream = await upstreamOf((name) => {
    if (name === 'a.example.com') return { answers: [alias(name, 'b.example.net', 30)] };
    if (name === 'b.example.net')
      return { answers: [alias(name, 'c.example.net', 20), address('c.example.net', '192.0.2.9')] };
    return { flags: 3 };
  });
  const found = await resolverOf(() => 1000, upstream.port).resolve('a.example.com', 'A');
  assert.deepEqual(found, { exists: true, addresses: ['192.0.2.9'], expiresAt: 21_000 });
  await using loop = await upstreamOf((name) => ({ answers: [alias(name, `x${name}`)] }));
  await assert.rejects(resolverOf(() => 0, loop.port).resolve('a.example.com', 'A'), /too many aliases/);
  assert.ok(loop.asked.length <= 9);
});

test('answers are kept for their time within bounds, and asked for once while under way', async () => {
  let now = 0;
  await using upstream = await upstreamOf((name) => ({
    answers: [address(name, '192.0.2.1', name.startsWith('long') ? 1_000_000 : 1)],
  }));
  const resolver = resolverOf(() => now, upstream.port);
  await Promise.all([1, 2, 3].map(() => resolver.resolve('a.example.com', 'A')));
  now = 4_999;
  await resolver.resolve('a.example.com', 'A');
  assert.equal(upstream.asked.length, 1);
  now = 5_000;
  await resolver.resolve('a.example.com', 'A');
  assert.equal(upstream.asked.length, 2);
  assert.equal((await resolver.resolve('long.example.com', 'A')).expiresAt, now + 3_600_000);
});

test('what answers something else, or in another family, is not believed; the next server is asked', async () => {
  await using wrong = await upstreamOf((name, _, query) => ({
    id: ((query.id ?? 0) + 1) % 65_536,
    answers: [address(name, '192.0.2.66')],
  }));
  await using failing = await upstreamOf(() => ({ flags: 2 }));
  await using right = await upstreamOf((name) => ({
    answers: [
      address('other.example.com', '192.0.2.77'),
      { type: 'AAAA', name, ttl: 60, data: '2001:db8::1' },
      address(name, '192.0.2.1'),
    ],
  }));
  const found = await resolverOf(() => 0, wrong.port, failing.port, right.port).resolve('a.example.com', 'A');
  assert.deepEqual(found.addresses, ['192.0.2.1']);
  await assert.rejects(resolverOf(() => 0, failing.port).resolve('a.example.com', 'A'), /code 2/);
  await using mapped = await upstreamOf((name) => ({
    answers: [{ type: 'AAAA', name, ttl: 60, data: '::ffff:10.0.0.1' }],
  }));
  const none = await resolverOf(() => 0, mapped.port).resolve('a.example.com', 'AAAA');
  assert.deepEqual(none.addresses, []);
});
