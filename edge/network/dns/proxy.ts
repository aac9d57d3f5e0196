/** The resolver a guest sees: answers for allowed names only, and opens the addresses before it tells them. */
import type { Socket as UdpSocket } from 'node:dgram';
import type { Server, Socket } from 'node:net';
import dnsPacket, { type Answer, type Packet } from 'dns-packet';
import type { AddressType } from './upstream.ts';

/** What the policy says to a question. */
export type NameAnswer =
  | { readonly kind: 'addresses'; readonly addresses: readonly string[]; readonly ttlSeconds: number }
  | { readonly kind: 'unknown' }
  | { readonly kind: 'failed' };

/** Decides, resolves, pins; resolves when the kernel lets the guest through. Never rejects. */
export type AnswerName = (name: string, type: AddressType) => Promise<NameAnswer>;

export interface DnsProxyDeps {
  readonly answer: AnswerName;
  /** Told of questions that are refused for their form: other record types carry data out and in. */
  readonly onRefused: (name: string, type: string) => void;
  readonly now: () => number;
}

/** Questions under way and per second, and TCP connections, of one machine. */
const dnsLimits = {
  concurrent: 64,
  perSecond: 100,
  connections: 8,
  idleMs: 10_000,
  messageBytes: 4096,
} as const;

/** Disposing ends its TCP connections; the sockets it was given are their owner's. */
export interface DnsProxy extends Disposable {
  serveUdp(socket: UdpSocket): void;
  serveTcp(server: Server): void;
}

export function createDnsProxy(deps: DnsProxyDeps): DnsProxy {
  let underWay = 0;
  let windowStart = 0;
  let inWindow = 0;
  const connections = new Set<Socket>();

  /** Null: no answer at all. */
  async function handle(bytes: Buffer, maxBytes: number): Promise<Buffer | null> {
    const query = decode(bytes);
    if (query === null) return null;
    const now = deps.now();
    if (now - windowStart >= 1000) [windowStart, inWindow] = [now, 0];
    inWindow += 1;
    if (underWay >= dnsLimits.concurrent || inWindow > dnsLimits.perSecond)
      return encode(query, 'REFUSED', [], maxBytes);
    underWay += 1;
    try {
      return await respond(query, maxBytes);
    } finally {
      underWay -= 1;
    }
  }

  async function respond(query: Packet, maxBytes: number): Promise<Buffer> {
    const [question] = query.questions ?? [];
    if (query.questions?.length !== 1 || question === undefined)
      return encode(query, 'FORMERR', [], maxBytes);
    const { name, type } = question;
    if ((type !== 'A' && type !== 'AAAA') || (question.class ?? 'IN') !== 'IN') {
      deps.onRefused(name.slice(0, 253), type);
      return encode(query, 'REFUSED', [], maxBytes);
    }
    const found = await deps.answer(name, type);
    switch (found.kind) {
      case 'failed':
        return encode(query, 'SERVFAIL', [], maxBytes);
      case 'unknown':
        return encode(query, 'NXDOMAIN', [], maxBytes);
      case 'addresses':
        return encode(
          query,
          'NOERROR',
          found.addresses.map((data) => ({ type, name, class: 'IN', ttl: found.ttlSeconds, data })),
          maxBytes,
        );
    }
  }

  return {
    serveUdp(socket) {
      // Errors of single datagrams are the guest's business.
      socket.on('error', () => {});
      // A question may still be under way when the session ends; sending on a closed socket throws.
      let isClosed = false;
      socket.once('close', () => {
        isClosed = true;
      });
      socket.on('message', (bytes, from) => {
        void handle(bytes, 512).then((answer) => {
          if (answer !== null && !isClosed) socket.send(answer, from.port, from.address, () => {});
        });
      });
    },
    serveTcp(server) {
      server.on('error', () => {});
      server.on('connection', (socket) => {
        if (connections.size >= dnsLimits.connections) {
          socket.resetAndDestroy();
          return;
        }
        connections.add(socket);
        socket.once('close', () => connections.delete(socket));
        void serveConnection(socket, handle);
      });
    },
    [Symbol.dispose]() {
      for (const socket of connections) socket.destroy();
    },
  };
}

async function serveConnection(
  socket: Socket,
  handle: (bytes: Buffer, maxBytes: number) => Promise<Buffer | null>,
): Promise<void> {
  socket.on('error', () => {});
  socket.setTimeout(dnsLimits.idleMs, () => socket.destroy());
  let bytes = Buffer.alloc(0);
  try {
    for await (const chunk of socket) {
      bytes = Buffer.concat([bytes, chunk as Buffer]);
      while (bytes.length >= 2) {
        const length = bytes.readUInt16BE(0);
        if (length > dnsLimits.messageBytes) return;
        if (bytes.length < length + 2) break;
        const answer = await handle(bytes.subarray(2, length + 2), 65_535);
        bytes = bytes.subarray(length + 2);
        if (answer === null) return;
        const prefix = Buffer.alloc(2);
        prefix.writeUInt16BE(answer.length);
        socket.write(Buffer.concat([prefix, answer]));
      }
    }
  } catch {
    // The guest broke off.
  } finally {
    socket.destroySoon();
  }
}

/** 0 is a plain question. */
const opcodeOf = (flags: number): number => (flags >> 11) & 15;

function decode(bytes: Buffer): Packet | null {
  try {
    const packet = dnsPacket.decode(bytes);
    return packet.type === 'query' && opcodeOf(packet.flags ?? 0) === 0 ? packet : null;
  } catch {
    return null;
  }
}

const rcodes = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, REFUSED: 5 } as const;

function encode(query: Packet, rcode: keyof typeof rcodes, answers: Answer[], maxBytes: number): Buffer {
  const flags =
    dnsPacket.RECURSION_AVAILABLE | ((query.flags ?? 0) & dnsPacket.RECURSION_DESIRED) | rcodes[rcode];
  const base: Packet = {
    type: 'response',
    id: query.id ?? 0,
    flags,
    questions: (query.questions ?? []).slice(0, 1),
  };
  const whole = dnsPacket.encode({ ...base, answers });
  return whole.length <= maxBytes
    ? whole
    : dnsPacket.encode({ ...base, flags: flags | dnsPacket.TRUNCATED_RESPONSE });
}
