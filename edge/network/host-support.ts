/** Whether this host can enforce network rules, and if not, the command that changes it. */
import { access, constants, readFile } from 'node:fs/promises';
import { GatewayError } from '../../sdk/index.ts';

/** Capabilities by their bit, see capabilities(7). */
const needed = [
  { bit: 12, name: 'CAP_NET_ADMIN', option: 'NET_ADMIN' },
  { bit: 21, name: 'CAP_SYS_ADMIN', option: 'SYS_ADMIN' },
] as const;

export interface HostSupportProbes {
  readonly uid: number;
  /** Text of `/proc/self/status`. */
  readonly status: string;
  readonly hasTun: boolean;
}

export async function probeHostSupport(): Promise<HostSupportProbes> {
  const isThere = (path: string) =>
    access(path, constants.R_OK | constants.W_OK).then(
      () => true,
      () => false,
    );
  return {
    uid: process.getuid?.() ?? -1,
    status: await readFile('/proc/self/status', 'utf8').catch(() => ''),
    hasTun: await isThere('/dev/net/tun'),
  };
}

/** Null where it can. The sentence says what is missing and how to get it. */
export function lackOfSupport({ uid, status, hasTun }: HostSupportProbes): GatewayError | null {
  const mask = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
  const lacking = needed.filter(({ bit }) => ((mask >> BigInt(bit)) & 1n) === 0n);
  if (lacking.length === 0 && hasTun) return null;
  const missing = [...lacking.map(({ name }) => name), ...(hasTun ? [] : ['/dev/net/tun'])].join(' and ');
  const fix =
    uid === 0
      ? `start its container with: ${lacking.map(({ option }) => `--cap-add ${option} `).join('')}--device /dev/net/tun`
      : 'start it as root: sudo npm start';
  return new GatewayError(
    'host_not_ready',
    `this node can not enforce network rules, because it lacks ${missing}; ${fix}`,
    { component: 'edge', field: 'network' },
  );
}
