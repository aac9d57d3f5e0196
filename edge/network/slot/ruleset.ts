/** The nftables text of a slot: pure, one transaction, replaces whatever was there. */
import type { Floor } from '../rules/floor.ts';
import { isPermitted } from '../rules/floor.ts';
import { hostPorts, type NetworkRules, namesMatter, type Rule } from '../rules/rules.ts';
import { guestLink, inspectMark, inspectPort, tapName, uplinkName } from './layout.ts';

export interface SlotLimits {
  /** Forwarded connections at once. */
  readonly connections: number;
  readonly newConnectionsPerSecond: number;
}

/** One address opened by a name, until its time is over. */
export interface PinElement {
  readonly family: 4 | 6;
  readonly address: string;
  readonly protocol: 'tcp' | 'udp';
  readonly port: number;
  readonly ttlSeconds: number;
}

export interface RulesetInput {
  readonly rules: NetworkRules;
  readonly floor: Floor;
  /** Grows with every replacement; connections of an earlier one are judged again. 1 to 2^31. */
  readonly generation: number;
  readonly pins: readonly PinElement[];
  readonly limits: SlotLimits;
}

export const slotTable = 'slot';
/**
 * Mark of connections that replaced rules cut while the guest waited for an answer: the far end's next packet becomes the reset
 * that tells the guest, and the one after it is answered with a reset. Below every generation.
 */
const toldMark = 1;
/** Most pinned addresses of a slot, per set. */
export const maxPins = 4096;
/** How long the kernel remembers what it refused. */
export const refusalSeconds = 60;

/** Whether a pin's connection goes through the name check. */
const isInspected = (pin: { readonly protocol: 'tcp' | 'udp'; readonly port: number }): boolean =>
  pin.protocol === 'tcp' && hostPorts.includes(pin.port);

/** `add element` lines that pin addresses; an address that is pinned already gets its time anew. */
export function renderPins(pins: readonly PinElement[]): string {
  return pins
    .map((pin) => {
      const set = `${isInspected(pin) ? 'web' : 'raw'}${pin.family}`;
      const key = isInspected(pin)
        ? `${pin.address} . ${pin.port}`
        : `${pin.address} . ${pin.protocol} . ${pin.port}`;
      // Adding an element again leaves its old time; deleting one that is not there fails, hence three steps.
      const element = (flags: string) => `element inet ${slotTable} ${set} { ${key}${flags} }`;
      return `add ${element('')}\ndelete ${element('')}\nadd ${element(` timeout ${pin.ttlSeconds}s`)}\n`;
    })
    .join('');
}

/** The whole ruleset. */
export function renderRuleset(input: RulesetInput): string {
  const groups = groupRules(input.rules);
  const sets: string[] = [];
  const judge = (direction: Direction) =>
    judgeChain(input, groups, direction, direction === 'out' ? sets : []);
  const chains = [
    judge('out'),
    judge('back'),
    flooredChain(input, 'out'),
    flooredChain(input, 'back'),
    ...(namesMatter(input.rules) ? [steerChain(input, groups)] : []),
  ];
  return `table inet ${slotTable}
delete table inet ${slotTable}
table netdev ${slotTable}
delete table netdev ${slotTable}
table netdev ${slotTable} {
${antiSpoof}}
table inet ${slotTable} {
${[...addressSets(input.floor), ...pinSets, ...sets].join('')}${frame(input)}${chains.join('')}}
${renderPins(input.pins)}`;
}

const antiSpoof = `  chain ingress {
    type filter hook ingress device "${tapName}" priority 0; policy drop;
    ether saddr != ${guestLink.mac} drop
    ip saddr ${guestLink.address} accept
    arp saddr ip ${guestLink.address} accept
    ip6 saddr ${guestLink.address6} accept
    ip6 saddr { fe80::/10, :: } icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit } accept
  }
`;

const addressSet = (name: string, family: 4 | 6, elements: readonly string[]) =>
  `  set ${name} { type ipv${family}_addr; flags interval; auto-merge;${elements.length === 0 ? '' : ` elements = { ${elements.join(', ')} };`} }\n`;

function addressSets(floor: Floor): string[] {
  return ([4, 6] as const).flatMap((family) => [
    addressSet(
      `floor${family}`,
      family,
      floor.refused.filter((f) => f.range.family === family).map((f) => f.range.text),
    ),
    addressSet(
      `permitted${family}`,
      family,
      floor.permitted.filter((r) => r.family === family).map((r) => r.text),
    ),
  ]);
}

const pinSets = ([4, 6] as const).map(
  (family) => `  set web${family} { type ipv${family}_addr . inet_service; flags timeout; size ${maxPins}; }
  set raw${family} { type ipv${family}_addr . inet_proto . inet_service; flags timeout; size ${maxPins}; }
  set refused${family} { type ipv${family}_addr . inet_proto . inet_service; flags dynamic,timeout; timeout ${refusalSeconds}s; size 256; counter; }
`,
);

const frame = ({ generation, limits, rules }: RulesetInput) => `  chain prerouting {
    type filter hook prerouting priority mangle; policy accept;
    iifname "${tapName}" meta l4proto tcp socket transparent 1 meta mark set ${inspectMark} accept
${namesMatter(rules) ? `    iifname "${tapName}" ct direction original tcp dport { ${hostPorts.join(', ')} } jump steer\n` : ''}  }
  chain input {
    type filter hook input priority filter; policy drop;
    iif lo accept
    iifname "${tapName}" meta mark ${inspectMark} accept
    iifname "${tapName}" ip daddr ${guestLink.gateway} meta l4proto { tcp, udp } th dport 53 accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ct state established,related accept
    iifname "${tapName}" goto refuse
  }
  chain output {
    type filter hook output priority filter; policy drop;
    oifname { "lo", "${tapName}" } accept
    icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    ip daddr @floor4 ip daddr != @permitted4 reject
    ip6 daddr @floor6 ip6 daddr != @permitted6 reject
    meta l4proto tcp accept
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state invalid drop
    ct mark ${generation} ct state established accept
    ct state related accept
    iifname "${tapName}" oifname "${uplinkName}" ct direction original jump judge_out
    iifname "${uplinkName}" oifname "${tapName}" ct direction reply jump judge_back
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "${uplinkName}" masquerade
  }
  chain refuse {
    update @refused4 { ip daddr . meta l4proto . th dport }
    update @refused6 { ip6 daddr . meta l4proto . th dport }
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }
  chain cut {
    update @refused4 { ip saddr . meta l4proto . th sport }
    update @refused6 { ip6 saddr . meta l4proto . th sport }
    meta l4proto tcp ct mark ${toldMark} reject with tcp reset
    meta l4proto tcp ct mark set ${toldMark} tcp flags set rst accept
    reject with icmpx admin-prohibited
  }
  chain admit {
    ct state new ct count over ${limits.connections} goto refuse
    ct state new limit rate over ${limits.newConnectionsPerSecond}/second burst ${limits.newConnectionsPerSecond} packets goto refuse
    ct mark set ${generation} accept
  }
`;

type Direction = 'out' | 'back';
/** Where the far end stands in a packet of that direction. */
const far = { out: { address: 'daddr', port: 'dport' }, back: { address: 'saddr', port: 'sport' } } as const;

/** Neighbouring rules of one kind and verdict: a set lookup each, however many there are. */
type Group =
  | { readonly kind: 'range'; readonly verdict: Rule['verdict']; readonly rules: readonly Rule[] }
  | { readonly kind: 'any'; readonly verdict: Rule['verdict']; readonly port: number | null }
  /** Once, where the first host is allowed. */
  | { readonly kind: 'pins' };

function groupRules({ rules }: NetworkRules): Group[] {
  const groups: Group[] = [];
  for (const rule of rules) {
    const last = groups.at(-1);
    if (rule.target.kind === 'any') groups.push({ kind: 'any', verdict: rule.verdict, port: rule.port });
    else if (rule.target.kind === 'host') {
      if (rule.verdict === 'allow' && !groups.some(({ kind }) => kind === 'pins'))
        groups.push({ kind: 'pins' });
    } else if (last?.kind === 'range' && last.verdict === rule.verdict)
      groups[groups.length - 1] = { ...last, rules: [...last.rules, rule] };
    else groups.push({ kind: 'range', verdict: rule.verdict, rules: [rule] });
  }
  return groups;
}

/** Lines that act on what a group of ranges matches; its sets are added to `sets` under names made of `name`. */
function rangeLines(
  rules: readonly Rule[],
  name: string,
  direction: Direction,
  action: string,
  sets: string[],
): string[] {
  const { address, port } = far[direction];
  return ([4, 6] as const).flatMap((family) => {
    const ip = family === 4 ? 'ip' : 'ip6';
    const found = rules.flatMap((rule) =>
      rule.target.kind === 'range' && rule.target.range.family === family
        ? [{ text: rule.target.range.text, port: rule.port }]
        : [],
    );
    const whole = found.filter((r) => r.port === null).map((r) => r.text);
    const ports = Map.groupBy(
      found.filter((r) => r.port !== null),
      (r) => r.port,
    );
    const lines: string[] = [];
    if (whole.length > 0) {
      sets.push(addressSet(`${name}_${family}`, family, whole));
      lines.push(`    ${ip} ${address} @${name}_${family} ${action}\n`);
    }
    for (const [number, entries] of ports) {
      sets.push(
        addressSet(
          `${name}_${family}_${number}`,
          family,
          entries.map((r) => r.text),
        ),
      );
      lines.push(
        `    meta l4proto { tcp, udp } th ${port} ${number} ${ip} ${address} @${name}_${family}_${number} ${action}\n`,
      );
    }
    return lines;
  });
}

/** What refuses a packet of that direction. */
const refusal = { out: 'goto refuse', back: 'goto cut' } as const;
const actionOf = (verdict: Rule['verdict'], direction: Direction) =>
  verdict === 'allow' ? 'goto admit' : refusal[direction];

function judgeChain(
  input: RulesetInput,
  groups: readonly Group[],
  direction: Direction,
  sets: string[],
): string {
  const { address, port } = far[direction];
  const linesOf = (group: Group, index: number): string[] => {
    if (group.kind === 'range')
      return rangeLines(group.rules, `g${index}`, direction, actionOf(group.verdict, direction), sets);
    if (group.kind === 'any') {
      const ports = group.port === null ? tcpOrUdp : `meta l4proto { tcp, udp } th ${port} ${group.port} `;
      return [`    ${ports}${actionOf(group.verdict, direction)}\n`];
    }
    return ['ip', 'ip6'].map(
      (ip) => `    ${ip} ${address} . meta l4proto . th ${port} @raw${ip === 'ip' ? 4 : 6} goto admit\n`,
    );
  };
  const lines = groups.flatMap(linesOf);
  // Without a listener steering does nothing: what had to be asked must not slip through then.
  const unasked = mustAsk(input.rules)
    ? `    tcp ${port} { ${hostPorts.join(', ')} } ${refusal[direction]}\n`
    : '';
  return `  chain judge_${direction} {
    ip ${address} @floor4 goto floored_${direction}
    ip6 ${address} @floor6 goto floored_${direction}
${namesMatter(input.rules) ? `    udp ${port} 443 ${refusal[direction]}\n` : ''}${unasked}${lines.join('')}${input.rules.otherwise === 'allow' ? `    ${tcpOrUdp}goto admit\n` : ''}    ${refusal[direction]}
  }
`;
}

const tcpOrUdp = 'meta l4proto { tcp, udp } ';

/** What the floor covers: only ranges inside what the operator permits can open it. */
function flooredChain({ rules, floor }: RulesetInput, direction: Direction): string {
  const { address, port } = far[direction];
  const lines = rules.rules.flatMap(({ target, verdict, port: number }) => {
    if (
      target.kind === 'host' ||
      (verdict === 'allow' && (target.kind === 'any' || !isPermitted(floor, target.range)))
    )
      return [];
    const ports = number === null ? tcpOrUdp : `meta l4proto { tcp, udp } th ${port} ${number} `;
    const where =
      target.kind === 'any'
        ? ''
        : `${target.range.family === 4 ? 'ip' : 'ip6'} ${address} ${target.range.text} `;
    return [`    ${where}${ports}${actionOf(verdict, direction)}\n`];
  });
  const quic = namesMatter(rules) ? `    udp ${port} 443 ${refusal[direction]}\n` : '';
  return `  chain floored_${direction} {\n${quic}${lines.join('')}    ${refusal[direction]}\n  }\n`;
}

/** Where names are refused, also what an address rule allows could be one of them: then all of it is asked. */
const mustAsk = ({ rules }: NetworkRules): boolean =>
  rules.some((rule) => rule.target.kind === 'host' && rule.verdict === 'refuse');

/** Sends to the name check what it has to see; what is left alone is judged when it is forwarded. */
function steerChain({ rules }: RulesetInput, groups: readonly Group[]): string {
  const actionFor = (verdict: Rule['verdict']) =>
    verdict === 'allow' && mustAsk(rules) ? 'goto inspect' : 'return';
  const linesOf = (group: Group, index: number): string[] => {
    if (group.kind === 'range')
      return rangeLines(group.rules, `g${index}`, 'out', actionFor(group.verdict), []);
    if (group.kind === 'any')
      return [`    ${group.port === null ? '' : `tcp dport ${group.port} `}${actionFor(group.verdict)}\n`];
    return ['ip', 'ip6'].map((ip) => `    ${ip} daddr . tcp dport @web${ip === 'ip' ? 4 : 6} goto inspect\n`);
  };
  return `  chain inspect {
    meta nfproto ipv4 meta l4proto tcp tproxy ip to 127.0.0.1:${inspectPort} meta mark set ${inspectMark} accept
    meta nfproto ipv6 meta l4proto tcp tproxy ip6 to [::1]:${inspectPort} meta mark set ${inspectMark} accept
  }
  chain steer {
    ip daddr @floor4 return
    ip6 daddr @floor6 return
${groups.flatMap(linesOf).join('')}    ${actionFor(rules.otherwise)}
  }
`;
}
