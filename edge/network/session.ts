/** The rules of one machine in force: its slot, its resolver and its name check, under one decision function. */
import type { Socket as UdpSocket } from 'node:dgram';
import type { Server } from 'node:net';
import { createDnsProxy, type NameAnswer } from './dns/proxy.ts';
import type { Resolver } from './dns/resolver.ts';
import type { AddressType } from './dns/upstream.ts';
import { createInspector, type InspectedTarget } from './inspect/inspector.ts';
import type { NetnsSockets } from './netns-sockets.ts';
import { contains, parseAddress } from './rules/address.ts';
import { explain, explainName, portsOfName } from './rules/explain.ts';
import { type Floor, floorReason, isPermitted } from './rules/floor.ts';
import { type NetworkRules, parseHostName } from './rules/rules.ts';
import { guestLink, inspectPort } from './slot/layout.ts';
import { maxPins, type PinElement } from './slot/ruleset.ts';
import type { Slot } from './slot/slot.ts';

/** One refusal, for logs and events. */
export interface SessionRefusal {
  /** Epoch ms; of several, the last. */
  readonly at: number;
  readonly count: number;
  readonly kind: 'name' | 'connection';
  readonly name: string | null;
  readonly address: string | null;
  readonly protocol: 'tcp' | 'udp' | null;
  readonly port: number | null;
  /** The deciding rule as written; null: none did. */
  readonly rule: string | null;
  readonly text: string;
}

export interface SessionDeps {
  readonly now: () => number;
  readonly resolver: Resolver;
  readonly sockets: NetnsSockets;
  readonly floor: Floor;
  readonly onRefusal: (refusal: SessionRefusal) => void;
}

export interface NetworkSession extends AsyncDisposable {
  readonly rules: NetworkRules;
  /** Replaces the rules while the guest runs; names stay resolved, what is no longer allowed is cut. */
  replace(rules: NetworkRules): Promise<void>;
  /** Tells of what the kernel refused by itself since the last look, as of all other refusals. */
  lookAtKernel(): Promise<void>;
}

/** How much longer than its answer an address stays open: the guest connects a moment after it was told. */
const pinGraceSeconds = 5;

/** Puts rules in force on a slot. The caller keeps the slot, and returns it after the session is disposed. */
export async function openNetworkSession(
  deps: SessionDeps,
  slot: Slot,
  initial: NetworkRules,
): Promise<NetworkSession> {
  const { now, floor } = deps;
  let rules = initial;
  /** Name and address to the instant until which the name opens it. */
  const pins = new Map<string, { readonly name: string; readonly address: string; readonly until: number }>();
  await using stack = new AsyncDisposableStack();

  const refused = (target: Partial<SessionRefusal>, rule: string | null, text: string) =>
    deps.onRefusal({
      at: now(),
      count: 1,
      kind: 'connection',
      name: null,
      address: null,
      protocol: null,
      port: null,
      ...target,
      rule,
      text,
    });

  function pinsOf({ name, address, until }: { name: string; address: string; until: number }): PinElement[] {
    const ttlSeconds = Math.ceil((until - now()) / 1000);
    const parsed = parseAddress(address);
    if (parsed === null || ttlSeconds <= 0) return [];
    return portsOfName(rules, name).flatMap(({ port, protocol }) =>
      explain(rules, floor, { name, address, port, protocol }).verdict === 'allow'
        ? [{ family: parsed.family, address, protocol, port, ttlSeconds }]
        : [],
    );
  }

  function dropOldPins(): void {
    for (const [key, pin] of pins) if (pin.until <= now()) pins.delete(key);
  }

  /** The name by which a guest knows an address, where it asked for it. */
  const nameOf = (address: string): string | null =>
    [...pins.values()].find((pin) => pin.address === address)?.name ?? null;

  /** Packets that were refused at each destination when the kernel was last asked. */
  let counted = new Map<string, number>();

  async function lookAtKernel(): Promise<void> {
    const found = await slot.refusals();
    const before = counted;
    counted = new Map(found.map((each) => [`${each.address} ${each.protocol} ${each.port}`, each.packets]));
    for (const { address, protocol, port, packets, at } of found) {
      // A set forgets after a while, and counts anew then.
      const known = before.get(`${address} ${protocol} ${port}`) ?? 0;
      const count = packets > known ? packets - known : packets < known ? packets : 0;
      if (count === 0) continue;
      const decision = explain(rules, floor, { address, protocol, port });
      const text =
        decision.verdict === 'refuse'
          ? decision.text
          : 'too many connections at once or in a second, or no longer allowed';
      refused({ at, count, name: nameOf(address), address, protocol, port }, decision.rule, text);
    }
  }

  /** A private answer is passed on only where an address rule covers it; that rule then decides, not the name. */
  const mayTell = (address: string): boolean =>
    floorReason(floor, address) === null ||
    rules.rules.some(
      ({ target, verdict }) =>
        verdict === 'allow' &&
        target.kind === 'range' &&
        isPermitted(floor, target.range) &&
        contains(target.range, address),
    );

  async function answer(asked: string, type: AddressType): Promise<NameAnswer> {
    const name = parseHostName(asked);
    const decision = explainName(rules, asked);
    if (name === null || decision.verdict === 'refuse') {
      refused({ kind: 'name', name: asked.slice(0, 253) }, decision.rule, decision.text);
      return { kind: 'unknown' };
    }
    try {
      const found = await deps.resolver.resolve(name, type);
      if (!found.exists) return { kind: 'unknown' };
      const addresses = found.addresses.filter(mayTell);
      for (const address of found.addresses.filter((each) => !addresses.includes(each)))
        refused(
          { kind: 'name', name, address },
          null,
          `the name leads to ${address}, which is never reachable (${floorReason(floor, address)})`,
        );
      const ttlSeconds = Math.max(1, Math.ceil((found.expiresAt - now()) / 1000));
      await open(name, addresses, found.expiresAt + pinGraceSeconds * 1000);
      return { kind: 'addresses', addresses, ttlSeconds };
    } catch {
      return { kind: 'failed' };
    }
  }

  async function open(name: string, addresses: readonly string[], until: number): Promise<void> {
    dropOldPins();
    const fresh = addresses
      .map((address) => ({ name, address, until }))
      .filter((pin) => (pins.get(`${name} ${pin.address}`)?.until ?? 0) < until);
    if (pins.size + fresh.length > maxPins) throw new Error('too many names are resolved at once');
    await slot.pin(fresh.flatMap(pinsOf));
    for (const pin of fresh) pins.set(`${name} ${pin.address}`, pin);
  }

  /** Quiet: what the name check lets pass. */
  function decide({ address, port, name }: InspectedTarget): {
    readonly isAllowed: boolean;
    readonly rule: string | null;
    readonly text: string;
  } {
    const canonical = parseAddress(address)?.text ?? '';
    const byAddress = explain(rules, floor, { address: canonical, port, protocol: 'tcp' });
    if (name === null) return { ...byAddress, isAllowed: byAddress.verdict === 'allow' };
    const byName = explain(rules, floor, { name, address: canonical, port, protocol: 'tcp' });
    if (byName.verdict === 'refuse' || byAddress.verdict === 'allow')
      return { ...byName, isAllowed: byName.verdict === 'allow' };
    const pin = pins.get(`${parseHostName(name)} ${canonical}`);
    if (pin !== undefined && pin.until > now()) return { ...byName, isAllowed: true };
    return { isAllowed: false, rule: null, text: `${canonical} is not an address of ${name}` };
  }

  const inspector = stack.use(
    createInspector({
      isAllowed(target) {
        const found = decide(target);
        if (!found.isAllowed) refused({ ...target, protocol: 'tcp' }, found.rule, found.text);
        return found.isAllowed;
      },
      isStillAllowed: ({ address, port, name }) =>
        explain(rules, floor, { address, port, protocol: 'tcp', ...(name === null ? {} : { name }) })
          .verdict === 'allow',
      openSocket: (address, port) => deps.sockets.connect(slot.layout.netns, address, port),
      onRefused: (target, why) => refused({ ...target, protocol: 'tcp' }, null, why),
    }),
  );
  const dns = stack.use(
    createDnsProxy({
      answer,
      now,
      onRefused: (name, type) =>
        refused({ kind: 'name', name }, null, `only addresses are resolved, not ${type}`),
    }),
  );

  const { netns } = slot.layout;
  const closeServer = (server: Server) => new Promise<void>((resolve) => server.close(() => resolve()));
  const listen = async (address: string, port: number): Promise<Server> =>
    stack.adopt(await deps.sockets.listen(netns, address, port), (server) => void closeServer(server));
  const udp: UdpSocket = stack.adopt(
    await deps.sockets.udp(netns, guestLink.gateway, 53),
    (socket) => void socket.close(),
  );
  dns.serveUdp(udp);
  dns.serveTcp(await listen(guestLink.gateway, 53));
  inspector.serve(await listen('127.0.0.1', inspectPort));
  inspector.serve(await listen('::1', inspectPort));
  await slot.apply(rules);
  const held = stack.move();

  return {
    get rules() {
      return rules;
    },
    async replace(next) {
      const before = rules;
      rules = next;
      dropOldPins();
      try {
        await slot.apply(next, [...pins.values()].flatMap(pinsOf));
      } catch (error) {
        // The kernel still has the old ones.
        rules = before;
        throw error;
      }
      inspector.reconsider();
    },
    lookAtKernel,
    async [Symbol.asyncDispose]() {
      await held.disposeAsync();
    },
  };
}
