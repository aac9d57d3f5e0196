/** A node with one published template for the guest tests of sandboxes: its own data directory, the checkout's guest images. */
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import pino from 'pino';
import {
  type CreateSandboxRequest,
  createSandboxRequestSchema,
  type SandboxId,
  type SandboxInfo,
  type TemplateName,
  type VersionDigest,
} from '../../../sdk/index.ts';
import { packTemplate, parseDefinition } from '../../../templates/index.ts';
import type { SandboxOrigin } from '../../client/sandbox-port.ts';
import type { EdgeConfig } from '../../config.ts';
import type { Edge } from '../../edge.ts';
import type { SandboxChannel } from '../../guest/index.ts';
import { GuestHttp } from '../../machine/guest-http.ts';
import { openEdge } from '../../main.ts';
import { keepVersions, leaksOf, makeDataDirectory, takeVersions, vmmsOf } from './data-directory.ts';

export { leaksOf, makeDataDirectory, vmmsOf };

/** A template that tells what its memory and disk hold. */
const continuity = join(import.meta.dirname, 'template');

/** What the template's server says about itself. */
export interface Said {
  readonly counter: number;
  readonly journal: readonly string[];
  readonly lines: number;
  readonly blob: string;
  readonly random: number;
  /** Of the Node example. */
  readonly bytes?: string;
  readonly uuid: string;
  readonly urandom: string;
  readonly kernelUuid: string;
  readonly hostname: string;
  readonly machineId: string;
  readonly now: number;
}

export interface SandboxNode {
  readonly edge: Edge;
  readonly origin: SandboxOrigin & { kind: 'version' };
  create(request?: Partial<CreateSandboxRequest>, origin?: SandboxOrigin): Promise<SandboxInfo>;
  ask(id: string, path?: string): Promise<Said>;
  /** Runs a shell line as root and answers its output; rejects when it fails. */
  run(id: string, line: string): Promise<string>;
}

export const anyTime = () => AbortSignal.timeout(120_000);

/** Opens the edge of a directory; publishes the template on the first start, unless another test file has done that. */
export async function openNode(
  dataDirectory: string,
  options: {
    readonly step?: (name: string) => void | Promise<void>;
    readonly config?: Partial<EdgeConfig>;
    readonly digest?: VersionDigest;
    /** Folder of the template; default: one that tells what its memory and disk hold. */
    readonly template?: string;
    /** Shares no version with others: its directory is on another filesystem. */
    readonly isAlone?: boolean;
  } = {},
): Promise<SandboxNode> {
  const folder = options.template ?? continuity;
  const definition = parseDefinition(JSON.parse(await readFile(join(folder, 'template.json'), 'utf8')));
  const isShared = options.digest === undefined && options.isAlone !== true;
  if (isShared) await takeVersions(dataDirectory, definition.name);
  const log = pino({ level: process.env.SANDBOX_TEST_LOG ?? 'fatal' });
  const edge = await openEdge(
    {
      log,
      onStep: () => {},
      signal: new AbortController().signal,
      ...(options.step === undefined ? {} : { step: options.step }),
    },
    { dataDirectory, accelerator: 'tcg', ...options.config },
  );
  try {
    const digest = options.digest ?? (await publish(edge, await packTemplate(folder, definition)));
    if (isShared) await keepVersions(dataDirectory, definition.name);
    const served = { digest, template: definition.name as TemplateName, version: 'v1' };
    const [set] = await edge.setServing([served]);
    if (set?.error != null) throw new Error(set.error);
    return toNode(edge, { kind: 'version', ...served });
  } catch (error) {
    await edge.dispose();
    throw error;
  }
}

async function publish(edge: Edge, archive: Readable): Promise<VersionDigest> {
  for await (const event of edge.build(archive, { signal: AbortSignal.timeout(300_000) }))
    if (event.type === 'built') return event.facts.digest as VersionDigest;
  throw new Error('the build ended without a result');
}

function toNode(edge: Edge, origin: SandboxNode['origin']): SandboxNode {
  async function using<T>(id: string, work: (channel: SandboxChannel) => Promise<T>): Promise<T> {
    using use = await edge.sandboxes.use(id as SandboxId, { signal: anyTime() });
    return await work(use.channel);
  }
  return {
    edge,
    origin,
    create: async (request = {}, from = origin) =>
      edge.sandboxes.create(from, createSandboxRequestSchema.parse(request), { signal: anyTime() }),
    ask: (id, path = '/') =>
      using(id, async (channel) => {
        const http = new GuestHttp(channel, { port: 8000, connections: 1 });
        try {
          const { body } = await http.probe({ method: 'GET', path }, { signal: anyTime() });
          return JSON.parse(body) as Said;
        } finally {
          await http.destroy();
        }
      }),
    run: (id, line) =>
      using(id, async (channel) => {
        const process = `run-${Math.random().toString(36).slice(2)}`;
        const options = { signal: anyTime() };
        await channel.startProcess({ id: process, argv: ['sh', '-c', line], user: 'root' }, options);
        const output = await text(
          await channel.processOutput(process, 'stdout', { ...options, follow: true }),
        );
        const { exitCode } = await channel.waitProcess(process, options);
        if (exitCode !== 0) throw new Error(`${line}: exit code ${exitCode}: ${output}`);
        return output.trim();
      }),
  };
}

/** Ends the edge and removes its directory; what is left of machines ends with it and is answered. */
export async function endNode(node: SandboxNode, dataDirectory: string): Promise<string[]> {
  await node.edge.dispose();
  const leaks = await leaksOf(dataDirectory);
  for (const pid of await vmmsOf(dataDirectory)) process.kill(pid, 'SIGKILL');
  await rm(dataDirectory, { recursive: true, force: true });
  return leaks;
}
