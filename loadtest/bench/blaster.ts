/** Worker of `bench:invoke`: as many requests as a number of keep-alive connections can carry, for a few seconds. */
import { parentPort, workerData } from 'node:worker_threads';
import { Pool } from 'undici';

const { url, path, seconds, connections } = workerData as {
  url: string;
  path: string;
  seconds: number;
  connections: number;
};
const pool = new Pool(url, { connections, pipelining: 1 });

async function drive(until: number): Promise<number> {
  let done = 0;
  while (performance.now() < until) {
    const answer = await pool.request({ method: 'GET', path });
    await answer.body.dump();
    if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
    done++;
  }
  return done;
}

const run = async (forSeconds: number) => {
  const from = performance.now();
  const counts = await Promise.all(
    Array.from({ length: connections }, () => drive(from + forSeconds * 1000)),
  );
  return counts.reduce((sum, count) => sum + count, 0) / ((performance.now() - from) / 1000);
};
await run(1);
parentPort?.postMessage(await run(seconds));
await pool.close();
