/** Our one table outside the slots: lets their uplinks out under the host's address, and nowhere else. */
import type { NodeId } from '../../../sdk/index.ts';
import { inNamespace, type RunCommand } from '../command.ts';
import { outsideTable, slotPrefix, uplinkRange, uplinkRange6 } from './layout.ts';

/** The table's text: nothing from a slot enters the host or another slot; what leaves is masqueraded. */
function renderOutside(node: NodeId): string {
  const table = outsideTable(node);
  const slots = `"${slotPrefix(node)}*"`;
  return `table inet ${table}
delete table inet ${table}
table inet ${table} {
  chain input {
    type filter hook input priority filter - 5; policy accept;
    iifname ${slots} icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept
    iifname ${slots} ct state established,related accept
    iifname ${slots} meta l4proto tcp reject with tcp reset
    iifname ${slots} reject with icmpx admin-prohibited
  }
  chain forward {
    type filter hook forward priority filter - 5; policy accept;
    iifname ${slots} oifname ${slots} reject with icmpx admin-prohibited
    oifname ${slots} ct state new drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat - 5; policy accept;
    ip saddr ${uplinkRange} masquerade
    ip6 saddr ${uplinkRange6} masquerade
  }
}
`;
}

/** Installs the table and lets the host forward. Undone by {@link removeOutside}, but for forwarding. */
export async function installOutside(run: RunCommand, node: NodeId, outside: string | null): Promise<void> {
  await run(inNamespace(outside, ['nft', '-f', '-']), { input: renderOutside(node) });
  await run(
    inNamespace(outside, ['sysctl', '-q', '-w', 'net.ipv4.ip_forward=1', 'net.ipv6.conf.all.forwarding=1']),
  );
}

export async function removeOutside(run: RunCommand, node: NodeId, outside: string | null): Promise<void> {
  const table = outsideTable(node);
  await run(inNamespace(outside, ['nft', '-f', '-']), {
    input: `table inet ${table}\ndelete table inet ${table}\n`,
  });
}
