/** A whole node on real guests for end-to-end tests: its own data directory, the checkout's guest images, one published template. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { leaksOf, makeDataDirectory, vmmsOf } from '../../edge/sandbox/testing/data-directory.ts';
import { type AdminClient, createAdminClient, type PublishEvent } from '../../sdk/index.ts';
import { packTemplate, parseDefinition } from '../../templates/index.ts';
import { up } from '../up.ts';

export { leaksOf, makeDataDirectory, vmmsOf };

const root = join(import.meta.dirname, '../..');
export const drillFolder = join(import.meta.dirname, 'drill');

export interface DrillNode extends AsyncDisposable {
  readonly url: string;
  readonly apiKey: string;
  readonly client: AdminClient;
  readonly dataDirectory: string;
  readonly ready: Promise<void>;
  /** Stops it, keeping the data directory. */
  stop(): Promise<void>;
}

/** Starts gateway and edge in this process. Disposing stops them and, unless it was given, removes the data directory. */
export async function startNode(given?: string): Promise<DrillNode> {
  const dataDirectory = given ?? (await makeDataDirectory());
  const service = await up({ dataDirectory, listen: '127.0.0.1:0', logLevel: 'fatal', onStep: () => {} });
  return {
    url: service.url,
    apiKey: service.apiKey,
    client: createAdminClient({ url: service.url, apiKey: service.apiKey }),
    dataDirectory,
    ready: service.ready,
    stop: () => service.close(),
    async [Symbol.asyncDispose]() {
      await service.close();
      if (given === undefined) await rm(dataDirectory, { recursive: true, force: true });
    },
  };
}

/** Publishes the drill template, changed as wanted, and answers the last event. */
export async function publishDrill(
  client: AdminClient,
  changes: Record<string, unknown> = {},
  folder = drillFolder,
): Promise<PublishEvent & { type: 'result' }> {
  const definition = parseDefinition({
    ...JSON.parse(await readFile(join(drillFolder, 'template.json'), 'utf8')),
    ...changes,
  });
  let last: PublishEvent | undefined;
  for await (const event of client.publish(definition.name, await packTemplate(folder, definition)))
    last = event;
  if (last?.type !== 'result') throw new Error(`publishing ended with ${JSON.stringify(last)}`);
  return last;
}

/** `snapgate up` in a process of its own, to be killed. Resolves when it serves. */
export async function spawnUp(
  dataDirectory: string,
): Promise<{ readonly process: ChildProcess; readonly url: string; readonly apiKey: string }> {
  const child = spawn(
    process.execPath,
    [join(root, 'gateway/cli/main.ts'), 'up', '--data', dataDirectory, '--listen', '127.0.0.1:0'],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, NODE_OPTIONS: '' },
    },
  );
  let said = '';
  const served = Promise.withResolvers<void>();
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-20_000);
    if (/serves on http/.test(said)) served.resolve();
  });
  child.once('exit', (code, signal) =>
    served.reject(new Error(`snapgate up ended early (${code ?? signal}): ${said}`)),
  );
  await served.promise;
  const credentials = JSON.parse(await readFile(join(dataDirectory, 'credentials.json'), 'utf8')) as {
    url: string;
    apiKey: string;
  };
  return { process: child, ...credentials };
}

/** Waits until the drill's pool is at its floor; fails with what it is at. */
export async function floorRestored(client: AdminClient): Promise<void> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const [pool] = await client.pools();
    if (pool !== undefined && pool.ready >= pool.target.ready && pool.blank >= pool.target.blank) return;
    if (Date.now() > deadline) throw new Error(`the pool is at ${JSON.stringify(pool)}`);
    await sleep(100);
  }
}
