/** A node whose machines have network cards, in an internet of its own: for tests with real guests. */
import assert from 'node:assert/strict';
import dgram from 'node:dgram';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import net, { type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import tls from 'node:tls';
import dnsPacket, { type Packet } from 'dns-packet';
import pino from 'pino';
import {
  type CreateSandboxRequest,
  createSandboxRequestSchema,
  type NetworkChoice,
  type SandboxId,
  type SandboxInfo,
  type TemplateName,
  type VersionDigest,
} from '../../../sdk/index.ts';
import { packTemplate, parseDefinition } from '../../../templates/index.ts';
import { edgeCertificate, edgeKey } from '../../client/http-test-certificates.ts';
import type { SandboxOrigin } from '../../client/sandbox-port.ts';
import type { Edge } from '../../edge.ts';
import { openEdge } from '../../main.ts';
import { makeDataDirectory, vmmsOf } from '../../sandbox/testing/sandbox-node.ts';
import { networkConfigSchema } from '../config.ts';
import { createWorld, type World, worldHosts } from './world.ts';

const templateFolder = join(import.meta.dirname, 'template');
export const anyTime = () => AbortSignal.timeout(120_000);

/** Addresses by name; `null`: the name exists and has none of that family. */
export type Zone = Map<string, { readonly addresses: readonly string[]; readonly ttl: number }>;

export interface Outcome {
  readonly outcome: unknown;
  readonly ms: number;
}

export interface NetworkedNode extends AsyncDisposable {
  readonly world: World;
  readonly dataDirectory: string;
  readonly zone: Zone;
  readonly origin: SandboxOrigin & { readonly kind: 'version' };
  readonly edge: Edge;
  /** Names that were asked of the resolver behind the node, in order. */
  readonly asked: string[];
  create(
    network?: Record<string, boolean> | NetworkChoice,
    request?: Partial<CreateSandboxRequest>,
  ): Promise<SandboxInfo>;
  /** Runs `probe.py` of the template with these steps; answers how each ended. */
  probe(id: string, steps: readonly Record<string, unknown>[]): Promise<unknown[]>;
  probeTimed(id: string, steps: readonly Record<string, unknown>[]): Promise<Outcome[]>;
  /** A server in the internet; `tcp` says its own address, `http` and `tls` the host that was asked for. */
  serve(kind: 'tcp' | 'http' | 'tls' | 'udp', address: string, port: number): Promise<void>;
  /** What UDP servers heard. */
  readonly heard: string[];
  /** Ends the edge as a kill would, or properly, and opens another one on the same directory. */
  reopen(): Promise<void>;
}

/** Publishes a template with these rules. The caller disposes, which asserts that nothing is left behind. */
export async function openNetworkedNode(
  options: {
    readonly network?: Record<string, boolean>;
    readonly changes?: Record<string, unknown>;
    readonly config?: Record<string, unknown>;
  } = {},
): Promise<NetworkedNode> {
  await using stack = new AsyncDisposableStack();
  const world = stack.use(await createWorld());
  const zone: Zone = new Map();
  const asked: string[] = [];
  const upstream = stack.use(await openUpstream(zone, asked));
  const dataDirectory = await makeDataDirectory();
  stack.defer(() => rm(dataDirectory, { recursive: true, force: true }));
  const open = () =>
    openEdge(
      {
        log: pino({ level: process.env.NETWORK_TEST_LOG ?? 'fatal' }),
        onStep: () => {},
        networkOutside: world.outside,
        signal: new AbortController().signal,
      },
      {
        dataDirectory,
        accelerator: 'tcg',
        network: networkConfigSchema.parse({
          permittedRanges: ['10.1.0.0/16'],
          resolvers: [`127.0.0.1#${upstream.port}`],
          ...options.config,
        }),
      },
    );
  let edge = await open();
  stack.defer(async () => {
    await edge.dispose();
    for (const pid of await vmmsOf(dataDirectory)) process.kill(pid, 'SIGKILL');
  });
  const digest = await publish(edge, options.network ?? {}, options.changes ?? {});
  const served = { digest, template: 'networked' as TemplateName, version: 'v1' };
  const [set] = await edge.setServing([served]);
  assert.equal(set?.error, null);
  const heard: string[] = [];
  const held = stack.move();
  const origin = { kind: 'version', ...served } as const;

  async function probeTimed(id: string, steps: readonly Record<string, unknown>[]): Promise<Outcome[]> {
    using use = await edge.sandboxes.use(id as SandboxId, { signal: anyTime() });
    const process = `probe-${Math.random().toString(36).slice(2)}`;
    const signal = anyTime();
    await use.channel.startProcess(
      { id: process, argv: ['python3', '/app/probe.py', JSON.stringify(steps)], user: 'root' },
      { signal },
    );
    const [output, errors] = await Promise.all(
      (['stdout', 'stderr'] as const).map(async (stream) =>
        text(await use.channel.processOutput(process, stream, { signal, follow: true })),
      ),
    );
    const { exitCode } = await use.channel.waitProcess(process, { signal });
    assert.equal(exitCode, 0, errors);
    return JSON.parse(output ?? '') as Outcome[];
  }

  return {
    world,
    dataDirectory,
    zone,
    asked,
    heard,
    origin,
    get edge() {
      return edge;
    },
    create(network, request = {}) {
      const choice: NetworkChoice | undefined =
        network === undefined
          ? undefined
          : typeof network.kind === 'string'
            ? (network as NetworkChoice)
            : { kind: 'native', rules: network as Record<string, boolean> };
      return edge.sandboxes.create(origin, createSandboxRequestSchema.parse(request), {
        signal: anyTime(),
        ...(choice === undefined ? {} : { network: choice }),
      });
    },
    probeTimed,
    probe: async (id, steps) => (await probeTimed(id, steps)).map(({ outcome }) => outcome),
    async serve(kind, address, port) {
      if (kind === 'udp') {
        const socket = await world.sockets.udp(world.internet, address, port);
        socket.on('message', (bytes, from) => {
          heard.push(bytes.toString());
          socket.send(`hi from ${address}`, from.port, from.address);
        });
        held.defer(() => void socket.close());
        return;
      }
      held.use(listenAs(kind, await world.sockets.listen(world.internet, address, port), address));
    },
    async reopen() {
      await edge.dispose();
      edge = await open();
      const [again] = await edge.setServing([served]);
      assert.equal(again?.error, null);
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}

async function publish(
  edge: Edge,
  network: Record<string, boolean>,
  changes: Record<string, unknown>,
): Promise<VersionDigest> {
  const source = JSON.parse(await readFile(join(templateFolder, 'template.json'), 'utf8'));
  const definition = parseDefinition({ ...source, network, ...changes });
  const archive = await packTemplate(templateFolder, definition);
  for await (const event of edge.build(archive, { signal: AbortSignal.timeout(300_000) }))
    if (event.type === 'built') return event.facts.digest as VersionDigest;
  throw new Error('the build ended without a result');
}

/** A resolver as a host has one, on loopback; answers over UDP, and over TCP what a client asks there. */
async function openUpstream(
  zone: Zone,
  asked: string[],
): Promise<AsyncDisposable & { readonly port: number }> {
  const answer = (query: Packet): Packet => {
    const [question] = query.questions ?? [];
    const name = question?.name ?? '';
    asked.push(name);
    const found = zone.get(name);
    const family = question?.type === 'AAAA' ? 6 : 4;
    return {
      type: 'response',
      id: query.id ?? 0,
      flags: found === undefined ? 3 : 0,
      questions: query.questions ?? [],
      answers: (found?.addresses ?? [])
        .filter((address) => net.isIP(address) === family)
        .map((data) => ({ type: family === 6 ? 'AAAA' : 'A', name, ttl: found?.ttl ?? 60, data })),
    };
  };
  const socket = dgram.createSocket('udp4');
  socket.on('message', (bytes, from) =>
    socket.send(dnsPacket.encode(answer(dnsPacket.decode(bytes))), from.port, from.address),
  );
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    port: socket.address().port,
    async [Symbol.asyncDispose]() {
      socket.close();
    },
  };
}

function listenAs(kind: 'tcp' | 'http' | 'tls', server: Server, address: string): Disposable {
  const sockets = new Set<Socket>();
  const http = (host: string) => {
    const body = `hi ${host} at ${address}\n`;
    return `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  };
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
    if (kind === 'tls') {
      const secure = new tls.TLSSocket(socket, { isServer: true, cert: edgeCertificate, key: edgeKey });
      secure.on('error', () => {});
      secure.once('data', () => secure.end(http(String(secure.servername))));
      socket.resume();
      return;
    }
    socket.on('data', (bytes) => {
      const [, host = ''] = /^host: (.*)$/im.exec(bytes.toString('latin1')) ?? [];
      if (kind === 'http') socket.write(http(host.trim()));
      else if (bytes.toString() === 'stream') flood(socket);
      else socket.write(`hi from ${address}\n`);
    });
    socket.resume();
  });
  return {
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
    },
  };
}

/** A little every now and then, until the other side is gone. */
function flood(socket: Socket): void {
  const timer = setInterval(() => socket.write('.'.repeat(256)), 50);
  socket.once('close', () => clearInterval(timer));
}

export { worldHosts };
