/** An edge with sandboxes to measure, and what is done to them. */
import pino from 'pino';
import { openEdge } from '../../edge/main.ts';
import {
  type CreateSandboxRequest,
  createSandboxRequestSchema,
  type SandboxEvent,
  type SandboxId,
  type TemplateName,
  type VersionDigest,
} from '../../sdk/index.ts';

/** A published version and the name that it is served under. */
export interface Served {
  readonly digest: VersionDigest;
  readonly template: string;
}

const settleMs = 300;
const waitMs = 60_000;

/** Lets what was begun come to rest. */
export const settle = (ms = settleMs) => new Promise((resolve) => setTimeout(resolve, ms));

/** Opens the edge of a data directory. The caller disposes of it, which ends its sandboxes. */
export async function openForkNode(
  dataDirectory: string,
  versions: readonly Served[],
  options: { readonly blanks: number; readonly signal: AbortSignal },
) {
  const { signal, blanks } = options;
  const edge = await openEdge(
    { log: pino({ level: 'error' }), onStep: () => {}, signal },
    { dataDirectory, forkBlanks: blanks },
  );
  const { sandboxes } = edge;
  await edge.setServing(
    versions.map(({ digest, template }) => ({
      digest,
      template: template as TemplateName,
      version: 'v1',
    })),
  );

  async function create(
    { digest, template }: Served,
    request: Partial<CreateSandboxRequest> = {},
  ): Promise<SandboxId> {
    const made = await sandboxes.create(
      { kind: 'version', digest, template, version: 'v1' },
      createSandboxRequestSchema.parse({ deadlineMs: 3_600_000, ...request }),
      { signal },
    );
    return made.id as SandboxId;
  }

  /** The shortest command there is, to its end. */
  async function command(id: SandboxId): Promise<void> {
    using use = await sandboxes.use(id, { signal });
    await use.channel.startProcess(
      { id: `c${Math.random().toString(36).slice(2)}`, argv: ['/bin/true'] },
      { signal },
    );
  }

  async function requests(id: SandboxId, count: number): Promise<void> {
    using use = await sandboxes.use(id, { signal });
    for (let index = 0; index < count; index++) {
      const tunnel = await use.tunnel(8000);
      tunnel.end('GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n');
      for await (const _ of tunnel);
    }
  }

  /** A process in the guest that holds so much memory that nobody else has. */
  async function ballast(id: SandboxId, sizeMiB: number): Promise<void> {
    if (sizeMiB === 0) return;
    using use = await sandboxes.use(id, { signal });
    const program = `import os, time\nb = os.urandom(${sizeMiB} << 20)\nprint('ok', flush=True)\ntime.sleep(9999)`;
    await use.channel.startProcess({ id: 'ballast', argv: ['python3', '-c', program] }, { signal });
    const output = await use.channel.processOutput('ballast', 'stdout', { follow: true, signal });
    for await (const _ of output) break;
  }

  /** Waits until so many machines are in this state, a minute at most. */
  async function waitFor(state: 'blank' | 'ready', count: number, template?: string): Promise<void> {
    const found = async () =>
      (await edge.machines()).filter(
        (row) => row.state === state && (template ?? row.template) === row.template,
      );
    for (const deadline = Date.now() + waitMs; (await found()).length < count && Date.now() < deadline; )
      await settle(100);
  }

  let seen = 0;
  /** What the last events of this kind say of their sandboxes. */
  async function news(type: SandboxEvent['type']): Promise<Record<string, number>[]> {
    const found: Record<string, number>[] = [];
    for await (const event of sandboxes.events({ since: seen, follow: false, signal })) {
      seen = event.sequence;
      if (event.type === type) found.push(event.data as Record<string, number>);
    }
    return found;
  }

  /** Forks, and waits until every child has answered a command. */
  async function fork(id: SandboxId, count: number) {
    await waitFor('blank', blanks);
    await settle();
    await news('forked');
    const from = performance.now();
    const result = await sandboxes.fork(id, { count }, { signal });
    const children = result.children.map((child) => {
      if ('error' in child) throw new Error(JSON.stringify(child.error));
      return child.sandbox.id as SandboxId;
    });
    const forkedMs = performance.now() - from;
    await Promise.all(children.map(command));
    const answeredMs = performance.now() - from;
    return { timing: result.timing, parts: await news('forked'), forkedMs, answeredMs, children };
  }

  const killAll = (ids: readonly SandboxId[]) => Promise.all(ids.map((id) => sandboxes.kill(id)));

  return {
    ...{ edge, sandboxes, create, command, requests, ballast, waitFor, news, fork, killAll },
    async [Symbol.asyncDispose]() {
      await killAll((await sandboxes.list({})).map(({ id }) => id as SandboxId));
      await edge.dispose();
    },
  };
}
export type ForkNode = Awaited<ReturnType<typeof openForkNode>>;
