/** Figures of a sandbox as envd's `/metrics` shows them. */
import type { SandboxUse } from '../../../edge/client/index.ts';
import { withUse } from '../../sandboxes/held.ts';
import type { EnvdCall } from './call.ts';

/** The agent's own. */
export type GuestMetrics = Awaited<ReturnType<SandboxUse['channel']['metrics']>>;

const mib = 1024 * 1024;

/** Bytes, unless a name says otherwise; `ts` in unix seconds. */
export async function envdMetrics(call: EnvdCall, signal: AbortSignal): Promise<Record<string, number>> {
  const { edge, id, clock } = call;
  const found = await withUse({ edge, id, signal }, ({ channel }, until) =>
    channel.metrics({ signal: until }),
  );
  return {
    ts: Math.floor(clock.now() / 1000),
    cpu_count: found.cpuCount,
    cpu_used_pct: cpuShare(found),
    mem_total: found.memoryTotalBytes,
    mem_used: found.memoryUsedBytes,
    mem_cache: found.memoryCacheBytes,
    mem_total_mib: Math.round(found.memoryTotalBytes / mib),
    mem_used_mib: Math.round(found.memoryUsedBytes / mib),
    disk_used: found.diskUsedBytes,
    disk_total: found.diskTotalBytes,
  };
}

/** Percent of all processors together, two decimals. */
export const cpuShare = ({
  cpuUsedPercent,
  cpuCount,
}: Pick<GuestMetrics, 'cpuUsedPercent' | 'cpuCount'>): number =>
  Math.round(Math.min(100, cpuUsedPercent / cpuCount) * 100) / 100;
