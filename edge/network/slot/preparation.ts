/**
 * What a slot's namespace is made of, as one shell script: starting each of its tools from here cost three times as much
 * (45 ms against 20). Its words are all ours: names and addresses of {@link SlotLayout}, and numbers.
 */
import { guestLink, inspectMark, type SlotLayout, tapName, uplinkName } from './layout.ts';

export interface PreparationOptions {
  /** Where the uplink ends: a named namespace, or null for the caller's own. */
  readonly outside: string | null;
  /** Each way; null: not limited. */
  readonly bandwidthBitsPerSecond: number | null;
}

/**
 * For `sh -s`; fails as a whole when a step does, and leaves what it has made. An uplink of that name is of a slot that was removed
 * a moment ago and that the kernel is still clearing away.
 */
export function renderPreparation(layout: SlotLayout, options: PreparationOptions): string {
  const enter = `nsenter --net=/run/netns/${layout.netns}`;
  const outside = options.outside === null ? '' : `nsenter --net=/run/netns/${options.outside} `;
  const { bandwidthBitsPerSecond } = options;
  return `set -e
ip netns add ${layout.netns}
uplink() {
${outside}ip -batch - <<'END'
${outsideLinks(layout)}END
}
uplink 2>/dev/null || { ${outside}ip link delete dev ${layout.outsideName} 2>/dev/null || true; uplink; }
exec ${enter} sh -e <<'INSIDE'
ip -batch - <<'END'
${insideLinks(layout)}END
ip -6 rule add fwmark ${inspectMark} lookup ${inspectMark}
${kernelSettings.map(([name, value]) => `echo ${value} > /proc/sys/net/${name}\n`).join('')}${
  bandwidthBitsPerSecond === null ? '' : `tc -batch - <<'END'\n${shaping(bandwidthBitsPerSecond)}END\n`
}INSIDE
`;
}

const outsideLinks = ({
  outsideName,
  netns,
  uplink,
  uplink6,
}: SlotLayout) => `link add ${outsideName} type veth peer name ${uplinkName} netns ${netns}
addr add ${uplink.outside}/31 dev ${outsideName}
addr add ${uplink6.outside}/127 dev ${outsideName} nodad
link set ${outsideName} up
`;

const insideLinks = ({ uplink, uplink6 }: SlotLayout) => `link set lo up
tuntap add dev ${tapName} mode tap
link set ${tapName} address ${guestLink.gatewayMac}
addr add ${guestLink.gateway}/${guestLink.prefix} dev ${tapName}
addr add ${guestLink.gateway6}/${guestLink.prefix6} dev ${tapName} nodad
link set ${tapName} up
neigh replace ${guestLink.address} lladdr ${guestLink.mac} dev ${tapName} nud permanent
neigh replace ${guestLink.address6} lladdr ${guestLink.mac} dev ${tapName} nud permanent
addr add ${uplink.inside}/31 dev ${uplinkName}
addr add ${uplink6.inside}/127 dev ${uplinkName} nodad
link set ${uplinkName} up
route add default via ${uplink.outside}
route add default via ${uplink6.outside}
rule add fwmark ${inspectMark} lookup ${inspectMark}
route add local default dev lo table ${inspectMark}
route add local ::/0 dev lo table ${inspectMark}
`;

const kernelSettings = [
  ['ipv4/ip_forward', 1],
  ['ipv6/conf/all/forwarding', 1],
  ['ipv6/conf/all/accept_ra', 0],
  ['ipv6/conf/all/accept_redirects', 0],
  ['ipv4/conf/all/accept_redirects', 0],
  ['ipv4/conf/all/send_redirects', 0],
] as const;

const shaping = (bitsPerSecond: number) =>
  [tapName, uplinkName]
    .map(
      (name) =>
        `qdisc replace dev ${name} root tbf rate ${bitsPerSecond}bit burst ${Math.max(65_536, Math.ceil(bitsPerSecond / 800))} latency 200ms\n`,
    )
    .join('');
