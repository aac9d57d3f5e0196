import { MessageChannel } from 'node:worker_threads';
import { Tinypool } from 'tinypool';
import type { GeneratorResult } from './generator.ts';
import type { RunPlan } from './plan.ts';
import type { Progress } from './progress.ts';
import type { WorkerTask } from './worker.ts';

/** Runs a plan's generators in a thread each. Their progress is added up; the first failure ends all of them. */
export async function generateInWorkers(
  deps: { readonly onProgress: (progress: Progress) => void; readonly signal: AbortSignal },
  options: { readonly plan: RunPlan; readonly runId: string },
): Promise<GeneratorResult[]> {
  const count = options.plan.workers;
  const pool = new Tinypool({
    filename: new URL('./worker.ts', import.meta.url).href,
    runtime: 'worker_threads',
    minThreads: count,
    maxThreads: count,
    concurrentTasksPerWorker: 1,
  });
  const latest = new Map<number, Progress>();
  const channels = Array.from({ length: count }, () => new MessageChannel());
  const abort = () => {
    for (const { port1 } of channels) port1.postMessage('abort');
  };
  deps.signal.addEventListener('abort', abort);
  try {
    return await Promise.all(
      channels.map(({ port1, port2 }, index) => {
        port1.on('message', (progress: Progress) => {
          latest.set(index, progress);
          deps.onProgress(addUp([...latest.values()]));
        });
        const task: WorkerTask = { ...options, shard: { index, count }, port: port2 };
        return pool.run(task, { transferList: [port2] }) as Promise<GeneratorResult>;
      }),
    );
  } finally {
    deps.signal.removeEventListener('abort', abort);
    for (const { port1 } of channels) port1.close();
    await pool.destroy();
  }
}

/** Counts are summed. Percentiles can't be, so the worst generator's are shown; the result merges histograms. */
function addUp(parts: readonly Progress[]): Progress {
  const sum = (pick: (progress: Progress) => number) => parts.reduce((total, part) => total + pick(part), 0);
  const worst = (pick: (progress: Progress) => number | null) =>
    parts.reduce<number | null>((top, part) => {
      const value = pick(part);
      return value === null ? top : Math.max(top ?? 0, value);
    }, null);
  return {
    atMs: Math.max(...parts.map((part) => part.atMs)),
    sent: sum((part) => part.sent),
    ok: sum((part) => part.ok),
    refused: sum((part) => part.refused),
    failed: sum((part) => part.failed),
    timeouts: sum((part) => part.timeouts),
    dropped: sum((part) => part.dropped),
    inFlight: sum((part) => part.inFlight),
    p50Ms: worst((part) => part.p50Ms),
    p99Ms: worst((part) => part.p99Ms),
  };
}
