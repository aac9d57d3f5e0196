/** A whole node on real guests that E2B's SDKs reach by name, for end-to-end tests. */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type AdminClient, createAdminClient, type PublishEvent } from '../../../sdk/index.ts';
import { packTemplate, parseDefinition } from '../../../templates/index.ts';
import { leaksOf, makeDataDirectory } from '../../testing/drill-node.ts';
import { up } from '../../up.ts';
import { becomeClientHost } from './client-host.ts';

const examples = join(import.meta.dirname, '../../../templates/examples');

export interface GuestNode extends AsyncDisposable {
  readonly client: AdminClient;
  /** What an SDK is given. */
  readonly options: { readonly apiKey: string; readonly domain: string };
  readonly url: string;
  /** Publishes an example, changed as wanted, and answers its version. */
  publish(example: string, changes?: Record<string, unknown>): Promise<string>;
}

/** Disposing fails when machines, mounts or files are left behind. */
export async function startGuestNode(): Promise<GuestNode> {
  await using stack = new AsyncDisposableStack();
  const dataDirectory = await makeDataDirectory();
  stack.defer(() => rm(dataDirectory, { recursive: true, force: true }));
  stack.defer(async () => {
    const left = await leaksOf(dataDirectory);
    if (left.length > 0) throw new Error(`left behind: ${left.join(', ')}`);
  });
  const service = await up({ dataDirectory, listen: '127.0.0.1:0', logLevel: 'fatal', onStep: () => {} });
  stack.defer(() => service.close());
  if (service.e2b === null) throw new Error('E2B is not served');
  const { domain, caPath } = service.e2b;
  stack.use(await becomeClientHost(caPath ?? '', domain));
  const client = createAdminClient({ url: service.url, apiKey: service.apiKey });
  const held = stack.move();
  return {
    client,
    url: service.url,
    options: { apiKey: service.apiKey, domain },
    async publish(example, changes = {}) {
      const folder = join(examples, example);
      const text = await readFile(join(folder, 'template.json'), 'utf8');
      const definition = parseDefinition({ ...JSON.parse(text), ...changes });
      let last: PublishEvent | undefined;
      for await (const event of client.publish(definition.name, await packTemplate(folder, definition)))
        last = event;
      if (last?.type === 'result') return last.version;
      throw new Error(`publishing ended with ${JSON.stringify(last)}`);
    },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
