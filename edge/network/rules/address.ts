/** Addresses and ranges in one canonical form, over `ipaddr.js`. IPv4-mapped IPv6 is IPv4 everywhere: it has one meaning. */
import ipaddr from 'ipaddr.js';

type Parsed = ipaddr.IPv4 | ipaddr.IPv6;

/** An address range. `text` is canonical (`10.0.0.0/8`, `2001:db8::/32`), host bits cleared. */
export interface AddressRange {
  readonly family: 4 | 6;
  readonly prefix: number;
  readonly text: string;
}

const decimalQuad = /^(0|[1-9]\d{0,2})(\.(0|[1-9]\d{0,2})){3}$/;

/** Only forms with one meaning: no octal, hexadecimal or short IPv4, no zone. Null for anything else. */
function parse(text: string): Parsed | null {
  if (text.includes(':')) {
    if (text.includes('%') || !ipaddr.IPv6.isValid(text)) return null;
    const address = ipaddr.IPv6.parse(text);
    return address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
  }
  return decimalQuad.test(text) && ipaddr.IPv4.isValid(text) ? ipaddr.IPv4.parse(text) : null;
}

const familyOf = (address: Parsed): 4 | 6 => (address.kind() === 'ipv4' ? 4 : 6);
const format = (address: Parsed): string =>
  address.kind() === 'ipv4' ? address.toString() : (address as ipaddr.IPv6).toRFC5952String();

/** Canonical text and family; null when it is no address. `::ffff:10.0.0.1` becomes `10.0.0.1`. */
export function parseAddress(text: string): { readonly family: 4 | 6; readonly text: string } | null {
  const address = parse(text);
  return address === null ? null : { family: familyOf(address), text: format(address) };
}

/** `ADDRESS[/PREFIX]` with optional brackets around an IPv6 address; host bits are cleared. Null when it is none. */
export function parseRange(text: string): AddressRange | null {
  const [bare = '', prefixText, ...rest] = text.replace(/^\[([^\]]*)\]/, '$1').split('/');
  if (rest.length > 0 || (prefixText !== undefined && !/^(0|[1-9]\d{0,2})$/.test(prefixText))) return null;
  const address = parse(bare);
  if (address === null) return null;
  const family = familyOf(address);
  const bits = family === 4 ? 32 : 128;
  // A prefix written for the mapped form counts its first 96 bits too.
  const isMapped = family === 4 && bare.includes(':');
  const prefix =
    (prefixText === undefined ? (isMapped ? 128 : bits) : Number(prefixText)) - (isMapped ? 96 : 0);
  if (prefix < 0 || prefix > bits) return null;
  const bytes = address.toByteArray().map((byte, index) => {
    const kept = Math.min(8, Math.max(0, prefix - index * 8));
    return byte & (0xff << (8 - kept)) & 0xff;
  });
  return { family, prefix, text: `${format(ipaddr.fromByteArray(bytes))}/${prefix}` };
}

/** Whether the address (canonical or not) lies in the range. False for what is no address. */
export function contains(range: AddressRange, address: string): boolean {
  const parsed = parse(address);
  if (parsed === null || familyOf(parsed) !== range.family) return false;
  const [base = '', prefix = ''] = range.text.split('/');
  return parsed.match(ipaddr.parse(base) as never, Number(prefix));
}

/** Whether every address of `inner` lies in `outer`. */
export function isWithin(inner: AddressRange, outer: AddressRange): boolean {
  return inner.prefix >= outer.prefix && contains(outer, inner.text.split('/')[0] ?? '');
}
