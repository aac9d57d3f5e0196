import { isIP } from 'node:net';
import type { PoolInfo } from '../../sdk/index.ts';
import type { GaugeName, ResourceSample } from './gauges.ts';
import type { LocalHost } from './local-host.ts';
import type { NodeApi, NodeView } from './node-view.ts';

/** Most samples kept; when there are more, every second one goes and the period doubles. */
const maxSamples = 360;

/** Samples the server's resources until it is disposed. */
export interface Sampler extends AsyncDisposable {
  /** In order; bounded whatever the run's length. */
  samples(): readonly ResourceSample[];
}

/**
 * Starts to sample every `everyMs`. The next sample starts after the last one ended, so that a slow server is asked
 * less often, never more. `local` is `null` when the server is on another host.
 */
export function startSampler(
  deps: { readonly api: NodeApi; readonly local: LocalHost | null; readonly now: () => number },
  options: { readonly everyMs: number },
): Sampler {
  let kept: ResourceSample[] = [];
  let periodMs = options.everyMs;
  let isStopped = false;
  let timer: NodeJS.Timeout | undefined;
  const take = async () => {
    const atMs = Math.round(deps.now());
    const view = await deps.api.view();
    const pids = view.machines?.map((machine) => machine.pid) ?? [];
    const values = { ...valuesOf(view), ...(await deps.local?.sample(pids)) };
    kept.push({ atMs, values: perMachine(values) });
    if (kept.length > maxSamples) {
      kept = kept.filter((_, index) => index % 2 === 0);
      periodMs *= 2;
    }
  };
  let wake: () => void = () => undefined;
  const loop = async (): Promise<void> => {
    while (!isStopped) {
      await take();
      if (isStopped) return;
      await new Promise<void>((resolve) => {
        wake = resolve;
        timer = setTimeout(resolve, periodMs);
      });
    }
  };
  const running = loop();
  return {
    samples: () => kept,
    async [Symbol.asyncDispose]() {
      isStopped = true;
      clearTimeout(timer);
      wake();
      await running;
    },
  };
}

/** True for an origin whose server runs on this host. */
export function isLoopback(url: string): boolean {
  const host = new URL(url).hostname.replace(/^\[|\]$/g, '');
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}

function valuesOf(view: NodeView): Partial<Record<GaugeName, number>> {
  const values: Partial<Record<GaugeName, number>> = {};
  if (view.machines !== null) {
    values.machines = view.machines.length;
    const known = view.machines.map((machine) => machine.privateBytes).filter((bytes) => bytes !== null);
    if (known.length > 0) values.memory_private_bytes = known.reduce((sum, bytes) => sum + bytes, 0);
  }
  if (view.pools !== null) {
    const { pools } = view;
    const sum = (pick: (pool: PoolInfo) => number) => pools.reduce((total, pool) => total + pick(pool), 0);
    values.machines_ready = sum((pool) => pool.ready);
    values.machines_blank = sum((pool) => pool.blank);
    values.machines_leased = sum((pool) => pool.serving);
  }
  const disks = view.nodes?.flatMap(({ disk }) => disk ?? []) ?? [];
  if (disks.length > 0) values.disk_bytes = disks.reduce((total, { usedBytes }) => total + usedBytes, 0);
  return values;
}

function perMachine(values: Partial<Record<GaugeName, number>>): Partial<Record<GaugeName, number>> {
  const { machines, memory_pss_bytes: pss } = values;
  return machines === undefined || machines === 0 || pss === undefined
    ? values
    : { ...values, memory_per_machine_bytes: pss / machines };
}
