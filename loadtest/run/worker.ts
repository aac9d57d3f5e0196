/** Entry of a generator thread; see `workers.ts`. */
import type { MessagePort } from 'node:worker_threads';
import { primeGenerator } from '../driver/prime.ts';
import { loadScenario } from '../scenario/registry.ts';
import type { Shard } from '../schedule/source.ts';
import { type GeneratorResult, generate } from './generator.ts';
import type { RunPlan } from './plan.ts';

/** One generator's part of a run. `port` carries progress out and an abort in. */
export interface WorkerTask {
  readonly plan: RunPlan;
  readonly runId: string;
  readonly shard: Shard;
  readonly port: MessagePort;
}

/** Primes this thread's code, then generates. */
export default async function work(task: WorkerTask): Promise<GeneratorResult> {
  const abort = new AbortController();
  task.port.on('message', () => abort.abort());
  try {
    const scenario = await loadScenario(task.plan.scenario);
    await primeGenerator(abort.signal);
    return await generate(
      {
        scenario,
        raw: null,
        onProgress: (progress) => task.port.postMessage(progress),
        signal: abort.signal,
      },
      task,
    );
  } finally {
    task.port.close();
  }
}
