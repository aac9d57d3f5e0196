/**
 * An internet of our own for tests: namespaces for the outside, hosts on it, and a guest wired to a slot where its tap
 * would be. Nothing is sent anywhere else. Node's own servers are put into namespaces by the helper under test.
 */
import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type NodeId, newNodeId } from '../../../sdk/index.ts';
import { inNamespace, runCommand } from '../command.ts';
import { createNetnsSockets, type NetnsSockets } from '../netns-sockets.ts';
import { createNft, type Nft } from '../nft.ts';
import { guestLink, tapName } from '../slot/layout.ts';
import type { Slot } from '../slot/slot.ts';

const nativePath = join(import.meta.dirname, '../native/build');

/** Whether this host can run the tests; else why not, for `skip`. */
export const cannotRun: string | false =
  process.getuid?.() === 0 ? false : 'needs root for network namespaces';

/** Public-looking addresses that live in the world's own namespace. */
export const worldHosts = {
  shared: '93.184.216.34',
  other: '93.184.216.35',
  metadata: '169.254.169.254',
  private: '10.1.2.3',
  otherPrivate: '10.2.2.3',
  shared6: '2606:4700::34',
} as const;

export interface World extends AsyncDisposable {
  readonly node: NodeId;
  /** Where uplinks end: plays the host. */
  readonly outside: string;
  /** Where the servers are. */
  readonly internet: string;
  readonly sockets: NetnsSockets;
  readonly nft: Nft;
  /** Runs a program in the internet's namespace. */
  run(argv: readonly string[]): Promise<string>;
  /** Wires a guest to a slot's tap; returns its namespace. */
  guest(slot: { readonly index: number; readonly layout: Pick<Slot['layout'], 'netns'> }): Promise<string>;
}

/** Makes a world with names of its own; disposing asserts that no namespace of it is left. */
export async function createWorld(): Promise<World> {
  await runCommand(['make', '--silent', '-C', join(import.meta.dirname, '../native')]);
  const tag = newNodeId();
  const outside = `sgw${tag}-host`;
  const internet = `sgw${tag}-net`;
  const sockets = createNetnsSockets({ helperPath: join(nativePath, 'netns-sockets') });
  await using made = new AsyncDisposableStack();
  const makeNamespace = async (netns: string, owner: AsyncDisposableStack) => {
    await runCommand(['ip', 'netns', 'add', netns]);
    owner.defer(async () => void (await runCommand(['ip', 'netns', 'delete', netns])));
  };
  made.defer(async () => {
    const left = (await readdir('/run/netns')).filter((name) => name.includes(tag));
    assert.deepEqual(left, [], 'namespaces are left behind');
  });
  const batch = (netns: string, input: string) =>
    runCommand(inNamespace(netns, ['ip', '-batch', '-']), { input });
  for (const netns of [outside, internet]) await makeNamespace(netns, made);
  await batch(
    outside,
    `link set lo up\nlink add world type veth peer name host netns ${internet}\naddr add 192.0.2.1/24 dev world\naddr add 2001:db8::1/64 dev world nodad\nlink set world up\nroute add default via 192.0.2.2\nroute add default via 2001:db8::2\n`,
  );
  await batch(
    internet,
    `link set lo up\naddr add 192.0.2.2/24 dev host\naddr add 2001:db8::2/64 dev host nodad\nlink set host up\n${Object.values(
      worldHosts,
    )
      .map((address) => `addr add ${address} dev lo${address.includes(':') ? ' nodad' : ''}\n`)
      .join('')}`,
  );
  made.use(sockets);
  const nft = made.use(createNft({ programPath: join(nativePath, 'slot-nft') }));
  const held = made.move();
  return {
    node: tag,
    outside,
    internet,
    sockets,
    nft,
    run: (argv) => inside(internet, argv),
    async guest(slot) {
      const netns = `sgw${tag}-g${slot.index}`;
      await makeNamespace(netns, held);
      await batch(
        slot.layout.netns,
        `link delete ${tapName}\nlink add ${tapName} type veth peer name eth0 netns ${netns}\nlink set ${tapName} address ${guestLink.gatewayMac}\naddr add ${guestLink.gateway}/${guestLink.prefix} dev ${tapName}\naddr add ${guestLink.gateway6}/${guestLink.prefix6} dev ${tapName} nodad\nlink set ${tapName} up\n`,
      );
      await batch(
        netns,
        `link set lo up\nlink set eth0 address ${guestLink.mac}\naddr add ${guestLink.address}/${guestLink.prefix} dev eth0\naddr add ${guestLink.address6}/${guestLink.prefix6} dev eth0 nodad\nlink set eth0 up\nroute add default via ${guestLink.gateway}\nroute add default via ${guestLink.gateway6}\n`,
      );
      return netns;
    },
    async [Symbol.asyncDispose]() {
      await held.disposeAsync();
    },
  };
}

/** Runs a program inside a namespace. */
export const inside = (netns: string, argv: readonly string[]) => runCommand(inNamespace(netns, argv));
