/** A node whose machines have network cards, in an internet of its own: for tests with real guests. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import dgram from 'node:dgram';
import { once } from 'node:events';
import { readdir, readFile, rm } from 'node:fs/promises';
import net, { type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import tls from 'node:tls';
import dnsPacket, { type Packet } from 'dns-packet';
import pino from 'pino';
import {
  type CreateSandboxRequest,
  createSandboxRequestSchema,
  type NetworkChoice,
  type NodeId,
  type SandboxId,
  type SandboxInfo,
  type TemplateName,
  type VersionDigest,
} from '../../../sdk/index.ts';
import { packTemplate, parseDefinition } from '../../../templates/index.ts';
import { edgeCertificate, edgeKey } from '../../client/http-test-certificates.ts';
import type { SandboxOrigin } from '../../client/sandbox-port.ts';
import type { Edge } from '../../edge.ts';
import { GuestHttp } from '../../machine/guest-http.ts';
import { openEdge } from '../../main.ts';
import { makeDataDirectory, vmmsOf } from '../../sandbox/testing/sandbox-node.ts';
import { inNamespace, runCommand } from '../command.ts';
import { networkConfigSchema } from '../config.ts';
import { slotPrefix } from '../slot/layout.ts';
import type { CrashOptions } from './crash-process.ts';
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
  /** Has `probe.py` of the template take these steps; answers how each ended. */
  probe(id: string, steps: readonly Record<string, unknown>[]): Promise<unknown[]>;
  probeTimed(id: string, steps: readonly Record<string, unknown>[]): Promise<Outcome[]>;
  /**
   * A server in the internet; `tcp` says its own address, `http` and `tls` the host that was asked for, or what `files` has of
   * the path behind the host.
   */
  serve(
    kind: 'tcp' | 'http' | 'tls' | 'udp',
    address: string,
    port: number,
    files?: ReadonlyMap<string, string | Buffer>,
  ): Promise<void>;
  /** What UDP servers heard, and which streams began. */
  readonly heard: string[];
  /** Opens another edge on the same directory; with `crash` after one in between that was killed. */
  reopen(how?: 'crash'): Promise<void>;
  /** Namespaces of this node's slots. */
  slots(): Promise<string[]>;
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
  const config = {
    dataDirectory,
    accelerator: 'tcg' as const,
    network: networkConfigSchema.parse({
      permittedRanges: ['10.1.0.0/16'],
      resolvers: [`127.0.0.1#${upstream.port}`],
      readySlots: 2,
      ...options.config,
    }),
  };
  const open = () =>
    openEdge(
      {
        log: pino({ level: process.env.NETWORK_TEST_LOG ?? 'fatal' }),
        onStep: () => {},
        networkOutside: world.outside,
        signal: new AbortController().signal,
      },
      config,
    );
  let edge = await open();
  const { id: node } = await edge.node();
  const slots = async () =>
    (await readdir('/run/netns')).filter((name) => name.startsWith(slotPrefix(node as NodeId)));
  stack.defer(async () => {
    for (const { id } of await edge.sandboxes.list({})) await edge.sandboxes.kill(id as SandboxId);
    await edge.dispose();
    for (const pid of await vmmsOf(dataDirectory)) process.kill(pid, 'SIGKILL');
    assert.deepEqual(await slots(), [], 'slots are left behind');
    const tables = await runCommand(inNamespace(world.outside, ['nft', 'list', 'tables']));
    assert.equal(tables.includes(node), false, `left behind: ${tables}`);
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
    const http = new GuestHttp(use.channel, { port: 8000, connections: 1 });
    try {
      const request = { method: 'POST', path: '/', body: JSON.stringify(steps) };
      const { status, body } = await http.probe(request, { signal: anyTime() });
      assert.equal(status, 200, body);
      return JSON.parse(body) as Outcome[];
    } finally {
      await http.destroy();
    }
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
    async serve(kind, address, port, files = new Map()) {
      if (kind === 'udp') {
        const socket = await world.sockets.udp(world.internet, address, port);
        socket.on('message', (bytes, from) => {
          heard.push(bytes.toString());
          socket.send(`hi from ${address}`, from.port, from.address);
        });
        held.defer(() => void socket.close());
        return;
      }
      const server = await world.sockets.listen(world.internet, address, port);
      held.use(listenAs(kind, server, address, files, heard));
    },
    slots,
    async reopen(how) {
      await edge.dispose();
      if (how === 'crash') {
        const what: CrashOptions = { config, outside: world.outside, digest };
        const program = join(import.meta.dirname, 'crash-process.ts');
        const child = spawn(process.execPath, [program, JSON.stringify(what)], { stdio: 'inherit' });
        const [, signalName] = await once(child, 'exit');
        assert.equal(signalName, 'SIGKILL');
      }
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

function listenAs(
  kind: 'tcp' | 'http' | 'tls',
  server: Server,
  address: string,
  files: ReadonlyMap<string, string | Buffer>,
  heard: string[],
): Disposable {
  const sockets = new Set<Socket>();
  const http = (host: string, request: string): Buffer => {
    const [, path = '/'] = /^GET (\S+)/.exec(request) ?? [];
    const body = Buffer.from(files.get(`${host}${path}`) ?? `hi ${host} at ${address}\n`);
    const status = files.size === 0 || files.has(`${host}${path}`) ? '200 OK' : '404 Not Found';
    return Buffer.concat([Buffer.from(`HTTP/1.1 ${status}\r\ncontent-length: ${body.length}\r\n\r\n`), body]);
  };
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.once('close', () => sockets.delete(socket));
    if (kind === 'tls') {
      const secure = new tls.TLSSocket(socket, { isServer: true, cert: edgeCertificate, key: edgeKey });
      secure.on('error', () => {});
      secure.once('data', (bytes: Buffer) =>
        secure.end(http(String(secure.servername), bytes.toString('latin1'))),
      );
      socket.resume();
      return;
    }
    socket.on('data', (bytes) => {
      const request = bytes.toString('latin1');
      const [, host = ''] = /^host: (.*)$/im.exec(request) ?? [];
      if (kind === 'http') socket.write(http(host.trim(), request));
      else if (request === 'stream') {
        heard.push(`stream ${address}`);
        flood(socket);
      } else if (request.startsWith('pull ')) socket.write(Buffer.alloc(Number(request.slice(5))));
      else if (request.startsWith('push ')) takeAll(socket, Number(request.slice(5)));
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

/** Says so at the beginning and when all has come. */
function takeAll(socket: Socket, bytes: number): void {
  let left = bytes;
  socket.removeAllListeners('data');
  socket.on('data', (chunk: Buffer) => {
    left -= chunk.length;
    if (left <= 0) socket.write('.');
  });
  socket.write('.');
}

/** A little every now and then, until the other side is gone. */
function flood(socket: Socket): void {
  const timer = setInterval(() => socket.write('.'.repeat(256)), 50);
  socket.once('close', () => clearInterval(timer));
}

export { worldHosts };
