/** One question to one recursive resolver: UDP from a fresh port, TCP when the answer was cut. */
import { randomInt } from 'node:crypto';
import dgram from 'node:dgram';
import net from 'node:net';
import dnsPacket, { type DecodedPacket, type Packet } from 'dns-packet';

export interface UpstreamServer {
  readonly address: string;
  readonly port: number;
}
export type AddressType = 'A' | 'AAAA';

/** Largest answer taken over TCP. */
const maxAnswerBytes = 65_535;

/** Rejects with a plain error when there is no usable answer in time; the caller tries the next server. */
export async function askUpstream(
  server: UpstreamServer,
  question: { readonly name: string; readonly type: AddressType },
  signal: AbortSignal,
): Promise<DecodedPacket> {
  const packet: Packet = {
    type: 'query',
    id: randomInt(0, 65_536),
    flags: dnsPacket.RECURSION_DESIRED,
    questions: [{ name: question.name, type: question.type, class: 'IN' }],
    additionals: [
      {
        type: 'OPT',
        name: '.',
        udpPayloadSize: 1232,
        flags: 0,
        options: [],
        extendedRcode: 0,
        ednsVersion: 0,
        flag_do: false,
      },
    ],
  };
  const answer = await overUdp(server, packet, signal);
  return answer.flag_tc ? await overTcp(server, packet, signal) : answer;
}

/** Whether it answers what was asked: anyone who guesses our port can send something. */
function isAnswerTo(answer: Packet, query: Packet): boolean {
  const [asked] = query.questions ?? [];
  const [echoed] = answer.questions ?? [];
  return (
    answer.type === 'response' &&
    answer.id === query.id &&
    answer.questions?.length === 1 &&
    echoed?.type === asked?.type &&
    echoed?.name.toLowerCase() === asked?.name
  );
}

async function overUdp(server: UpstreamServer, query: Packet, signal: AbortSignal): Promise<DecodedPacket> {
  const socket = dgram.createSocket(net.isIPv6(server.address) ? 'udp6' : 'udp4');
  const { promise, resolve, reject } = Promise.withResolvers<DecodedPacket>();
  const abort = () => reject(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  try {
    signal.throwIfAborted();
    socket.on('error', reject);
    socket.on('message', (bytes) => {
      try {
        const answer = dnsPacket.decode(bytes);
        if (isAnswerTo(answer, query)) resolve(answer);
      } catch {
        // Not a DNS message: as if it had not come.
      }
    });
    // Connected: the kernel then drops what comes from anyone else.
    socket.connect(server.port, server.address, () => socket.send(dnsPacket.encode(query)));
    return await promise;
  } finally {
    signal.removeEventListener('abort', abort);
    socket.close();
  }
}

async function overTcp(server: UpstreamServer, query: Packet, signal: AbortSignal): Promise<DecodedPacket> {
  const socket = net.connect({ host: server.address, port: server.port, signal });
  try {
    socket.write(dnsPacket.streamEncode(query));
    let bytes = Buffer.alloc(0);
    for await (const chunk of socket) {
      bytes = Buffer.concat([bytes, chunk as Buffer]);
      if (bytes.length > maxAnswerBytes + 2) break;
      if (bytes.length < 2 || bytes.length < bytes.readUInt16BE(0) + 2) continue;
      const answer = dnsPacket.decode(bytes.subarray(2));
      if (isAnswerTo(answer, query)) return answer;
      break;
    }
    throw new Error('the resolver gave no answer over TCP');
  } finally {
    socket.destroy();
  }
}
