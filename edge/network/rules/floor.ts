/**
 * The floor below every rule: addresses that no allow list opens. Ranges as in the IANA special-purpose registries, and
 * those IPv6 ranges through which an IPv4 address can be written.
 */
import { type AddressRange, contains, isWithin, parseAddress, parseRange } from './address.ts';

const ranges: readonly (readonly [reason: string, ...ranges: string[]])[] = [
  // First, so that they are named as what they are; most lie in a wider range below.
  [
    'metadata address',
    '169.254.169.254',
    '169.254.170.2',
    '100.100.100.200',
    '168.63.129.16',
    'fd00:ec2::/32',
  ],
  ['metadata address', '192.0.0.192', 'fd20:ce::254'],
  ['loopback', '127.0.0.0/8', '::1'],
  ['link-local', '169.254.0.0/16', 'fe80::/10', 'fec0::/10'],
  ['private range', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7'],
  ['carrier-grade NAT', '100.64.0.0/10'],
  ['this network', '0.0.0.0/8', '::'],
  ['multicast', '224.0.0.0/4', 'ff00::/8'],
  ['reserved', '192.0.0.0/24', '192.0.2.0/24', '198.51.100.0/24', '203.0.113.0/24', '192.88.99.0/24'],
  ['reserved', '198.18.0.0/15', '240.0.0.0/4', '100::/64', '2001:db8::/32', '3fff::/20', '5f00::/16'],
  ['holds an IPv4 address', '::/96', '::ffff:0:0:0/96', '64:ff9b::/96', '64:ff9b:1::/48', '2002::/16'],
  ['holds an IPv4 address', '2001::/23'],
];

export interface FloorRange {
  readonly range: AddressRange;
  /** A few words for people. */
  readonly reason: string;
}

/** A node's floor: the ranges above, its own addresses, and what its operator opens to the rules of templates. */
export interface Floor {
  readonly refused: readonly FloorRange[];
  /** Inside these the floor leaves the decision to address rules that lie wholly within one of them. */
  readonly permitted: readonly AddressRange[];
}

export interface FloorOptions {
  /** Addresses of this host, whatever their range. */
  readonly hostAddresses: readonly string[];
  /** `network.permittedRanges` of the node's configuration; explicit ranges only. */
  readonly permittedRanges: readonly string[];
}

/** Throws `RangeError` for text that is no address or range: node configuration is checked before it gets here. */
export function createFloor(options: FloorOptions): Floor {
  const must = (text: string): AddressRange => {
    const range = parseRange(text);
    if (range === null) throw new RangeError(`not an address range: ${text}`);
    return range;
  };
  return {
    refused: [
      ...options.hostAddresses.map((text) => ({ range: must(text), reason: 'address of this host' })),
      ...ranges.flatMap(([reason, ...texts]) => texts.map((text) => ({ range: must(text), reason }))),
    ],
    permitted: options.permittedRanges.map(must),
  };
}

/** Why the floor covers this address; null when it does not. What is no address is covered. */
export function floorReason(floor: Floor, address: string): string | null {
  const parsed = parseAddress(address);
  if (parsed === null) return 'not an address';
  return floor.refused.find(({ range }) => contains(range, parsed.text))?.reason ?? null;
}

/** Whether an address rule may decide about addresses that the floor covers. */
export const isPermitted = (floor: Floor, rule: AddressRange): boolean =>
  floor.permitted.some((permitted) => isWithin(rule, permitted));
