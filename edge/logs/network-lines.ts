/** What network rules refused, as lines of a log. */
import type { LogLine, NetworkRefusal, VersionDigest } from '../../sdk/index.ts';
import type { LogRequest } from '../client/port.ts';
import type { MachineNetworks } from '../network/index.ts';
import type { LogCollector } from './collector.ts';

/** The kept ones that a reader asks for. */
export async function refusalLines(
  networks: Pick<MachineNetworks, 'refusals'>,
  { streams, digests, machine, tail }: LogRequest,
): Promise<LogLine[]> {
  if (!streams.includes('network')) return [];
  return (await networks.refusals({ digests, machine }, tail)).map(toLine);
}

/** Tells followers of each new one; the answer ends it. */
export const announceRefusals = (
  networks: Pick<MachineNetworks, 'watch'>,
  logs: LogCollector,
): (() => void) =>
  networks.watch((refusal, digest) => logs.announce(digest as VersionDigest, toLine(refusal)));

function toLine(refusal: NetworkRefusal): LogLine {
  const { at, machine, kind, name, address, protocol, port, reason, count, ruleSet } = refusal;
  const to =
    kind === 'name'
      ? `name ${name ?? '?'}`
      : `${protocol ?? 'ip'} ${name === null ? '' : `${name} `}${address ?? '?'}${port === null ? '' : ` port ${port}`}`;
  const times = count === 1 ? '' : ` (${count} times)`;
  return {
    at,
    machine,
    stream: 'network',
    text: `refused ${to}: ${reason}${times} [${ruleSet}]`,
    network: refusal,
  };
}
