/** Names and addresses of slots. Inside, all slots look the same; only the uplink differs. */
import type { NodeId } from '../../../sdk/index.ts';

/** What every guest with a NIC sees: the same in every clone, so a snapshot can hold it. */
export const guestLink = {
  mac: '02:73:6e:61:70:02',
  address: '172.31.255.2',
  prefix: 30,
  /** Also where the resolver answers. */
  gateway: '172.31.255.1',
  gatewayMac: '02:73:6e:61:70:01',
  address6: 'fd73:6e61:7067::2',
  prefix6: 64,
  gateway6: 'fd73:6e61:7067::1',
} as const;

/** Interfaces inside a slot. */
export const tapName = 'tap0';
export const uplinkName = 'up0';
/** Where the name check listens inside a slot; the kernel steers connections there, nothing else can reach it. */
export const inspectPort = 15_001;
/** Packet mark of connections steered to the name check; the slot's own routing table of that number delivers them. */
export const inspectMark = 1;

/** Most slots of a node; the uplinks of that many fit below 198.18.0.0/15, which is never routed (RFC 2544). */
export const maxSlots = 4096;

export interface SlotLayout {
  readonly netns: string;
  /** Our end of the uplink, outside; at most 15 characters. */
  readonly outsideName: string;
  readonly uplink: { readonly outside: string; readonly inside: string };
  readonly uplink6: { readonly outside: string; readonly inside: string };
}

/** Prefix of every slot's namespace and interface of a node: what a restarted edge reclaims by. */
export const slotPrefix = (node: NodeId): string => `sg${node}x`;
/** The slot that a namespace of this node belongs to. */
export const slotIndex = (node: NodeId, netns: string): number =>
  Number.parseInt(netns.slice(slotPrefix(node).length), 36);
/** Table of ours outside. */
export const outsideTable = (node: NodeId): string => `snapgate_${node}`;
export const uplinkRange = '198.18.0.0/15';
export const uplinkRange6 = 'fd73:6e61:7068::/48';

/** Uplinks that 198.18.0.0/15 has room for. */
const uplinks = 65_536;
/** Several edges may share a host, such as one that is tried beside one that serves: each begins elsewhere. */
const startOf = (node: NodeId): number => (Number.parseInt(node, 36) * 40_503) % uplinks;

export function slotLayout(node: NodeId, index: number): SlotLayout {
  const name = `${slotPrefix(node)}${index.toString(36)}`;
  const first = ((startOf(node) + index) % uplinks) * 2;
  const v4 = (n: number) => `198.${18 + (n >> 16)}.${(n >> 8) & 255}.${n & 255}`;
  // Not the first of a network, which means any router of it.
  const v6 = (n: number) =>
    `fd73:6e61:7068::${((n + 2) >> 16).toString(16)}:${((n + 2) & 0xffff).toString(16)}`;
  return {
    netns: name,
    outsideName: name,
    uplink: { outside: v4(first), inside: v4(first + 1) },
    uplink6: { outside: v6(first), inside: v6(first + 1) },
  };
}
