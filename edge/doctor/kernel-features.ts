import { asRoot } from './packages.ts';
import type { HostProbes } from './probes.ts';
import type { DoctorCheck } from './report.ts';

/** Controllers with which a machine is kept within its share. */
const wantedControllers = ['cpu', 'io', 'memory', 'pids'];

/** Which cgroups the host has: v2 bounds what a machine takes, without it nothing does. */
export async function checkCgroups(probes: HostProbes): Promise<DoctorCheck> {
  const base = { id: 'cgroups', title: 'Control groups' };
  const controllers = (await probes.readText('/sys/fs/cgroup/cgroup.controllers'))?.trim().split(/\s+/);
  if (controllers !== undefined) {
    const lacking = wantedControllers.filter((name) => !controllers.includes(name));
    return lacking.length === 0
      ? { ...base, status: 'ok', detail: `version 2 with ${wantedControllers.join(', ')}` }
      : {
          ...base,
          status: 'warn',
          detail: `version 2, but without ${lacking.join(', ')}: those are not bounded.`,
        };
  }
  const isVersion1 = await probes.canAccess('/sys/fs/cgroup/memory', 'exist');
  return {
    ...base,
    status: 'warn',
    detail: isVersion1
      ? 'version 1: memory, processes and disk use of a machine are not bounded by the host.'
      : 'none: what a machine takes is not bounded by the host.',
  };
}

/** What network rules are made with, in a namespace that is gone afterwards. */
const trial =
  'nft add table inet snapgate && nft "add chain inet snapgate c { type filter hook prerouting priority -150 ; }" && nft add rule inet snapgate c meta l4proto tcp tproxy ip to 127.0.0.1:1 && ip tuntap add dev tap0 mode tap';

/** Network rules live in a namespace for each machine, enforced by nftables in it; frames come by a tap. */
export async function checkNetworkRules(probes: HostProbes): Promise<DoctorCheck> {
  const base = { id: 'network-rules', title: 'Network rules' };
  const answer = await probes.run('unshare', ['--net', 'sh', '-c', trial]);
  if (answer?.exitCode === 0) {
    return {
      ...base,
      status: 'ok',
      detail: 'Network namespaces, nftables with transparent proxying, and taps work.',
    };
  }
  return {
    ...base,
    status: 'warn',
    detail: `Templates with network rules cannot run here: ${firstLine(answer?.output) ?? 'unshare is not installed'}`,
    fix: probes.uid === 0 ? asRoot(probes, 'modprobe --all nf_tables nft_tproxy tun') : 'sudo npm start',
  };
}

/** Node itself. */
export function checkNode(probes: HostProbes): DoctorCheck {
  const isCurrent = Number(/^v(\d+)\./.exec(probes.nodeVersion)?.[1] ?? 0) >= 24;
  return {
    id: 'node',
    title: 'Node',
    status: isCurrent ? 'ok' : 'fail',
    detail: isCurrent ? probes.nodeVersion : `${probes.nodeVersion}; 24 or later is needed`,
    ...(isCurrent ? {} : { fix: 'node scripts/bootstrap.mjs' }),
  };
}

const firstLine = (text: string | undefined): string | undefined => {
  const line = text?.trim().split('\n', 1)[0];
  return line === '' ? 'the trial failed without a word' : line;
};
