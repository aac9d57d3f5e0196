/** Puts the networks of a node together from its configuration and its host. */
import { readFile } from 'node:fs/promises';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { GatewayError, type NodeId } from '../../sdk/index.ts';
import { runCommand } from './command.ts';
import { type NetworkConfig, networkConfigSchema } from './config.ts';
import { createResolver } from './dns/resolver.ts';
import type { UpstreamServer } from './dns/upstream.ts';
import { lackOfSupport, probeHostSupport } from './host-support.ts';
import { createMachineNetworks, type MachineNetworks } from './machine-networks.ts';
import { createNetnsSockets } from './netns-sockets.ts';
import { createNft } from './nft.ts';
import { createFloor, type Floor } from './rules/floor.ts';

export interface OpenNetworksDeps {
  readonly node: NodeId;
  readonly now: () => number;
  readonly onError: (error: unknown, what: string) => void;
  /** Directory of `netns-sockets` and `slot-nft`. */
  readonly nativePath: string;
  /** Named namespace in which the uplinks of slots end; tests play the host with one. Default: the edge's own. */
  readonly outside?: string | undefined;
}

export interface NodeNetworks extends MachineNetworks {
  readonly floor: Floor;
}

/** Changes nothing on the host before a machine with a network card starts. The caller disposes. */
export async function openNetworks(deps: OpenNetworksDeps, config: NetworkConfig): Promise<NodeNetworks> {
  const { node, now, onError, nativePath } = deps;
  await using stack = new AsyncDisposableStack();
  const sockets = stack.use(createNetnsSockets({ helperPath: join(nativePath, 'netns-sockets') }));
  const nft = stack.use(createNft({ programPath: join(nativePath, 'slot-nft') }));
  const floor = createFloor({ hostAddresses: hostAddresses(), permittedRanges: config.permittedRanges });
  const servers = (config.resolvers ?? (await hostResolvers())).map(toServer);
  const { bandwidthMbitPerSecond } = config;
  const networks = stack.use(
    createMachineNetworks(
      {
        ...{ now, run: runCommand, nft, sockets, floor, onError },
        resolver: createResolver({ now }, { servers }),
        lack: lackOfSupport(await probeHostSupport()),
      },
      {
        node,
        outside: deps.outside ?? null,
        limits: {
          connections: config.connections,
          newConnectionsPerSecond: config.newConnectionsPerSecond,
        },
        bandwidthBitsPerSecond:
          bandwidthMbitPerSecond === null ? null : Math.round(bandwidthMbitPerSecond * 1e6),
        ready: config.readySlots,
        max: config.maxSlots,
      },
    ),
  );
  const held = stack.move();
  return { ...networks, floor, [Symbol.asyncDispose]: () => held.disposeAsync() };
}

/** The operator's file; all defaults when there is none. Throws `invalid_request` naming what is wrong with it. */
export async function readNetworkConfig(path: string): Promise<NetworkConfig> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '{}';
    throw error;
  });
  try {
    return networkConfigSchema.parse(JSON.parse(text));
  } catch (cause) {
    throw new GatewayError('invalid_request', `${path}: ${(cause as Error).message}`, {
      component: 'edge',
      cause,
    });
  }
}

const hostAddresses = (): string[] =>
  Object.values(networkInterfaces()).flatMap((each) => (each ?? []).map(({ address }) => address));

/** What the host itself asks. */
async function hostResolvers(): Promise<string[]> {
  const text = await readFile('/etc/resolv.conf', 'utf8').catch(() => '');
  return [...text.matchAll(/^\s*nameserver\s+([0-9a-fA-F:.]+)\s*$/gm)].flatMap(
    ([, address]) => address ?? [],
  );
}

function toServer(text: string): UpstreamServer {
  const [address = '', port = '53'] = text.split('#');
  return { address, port: Number(port) };
}
