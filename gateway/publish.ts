/** Publishing, seen from the gateway: make before break, and nothing left of what fails. */
import type { Readable } from 'node:stream';
import type { BuildEvent, EdgeClient } from '../edge/client/index.ts';
import { type Clock, GatewayError, type PublishEvent, type VersionDigest } from '../sdk/index.ts';
import { latestAlias, type RegisteredVersion, type TemplateRegistry } from '../templates/index.ts';
import type { GatewayMetrics } from './metrics.ts';
import type { Placement } from './placement.ts';
import { type Serving, servedVersion } from './serving.ts';

export interface PublisherDeps {
  readonly registry: TemplateRegistry;
  readonly placement: Placement;
  readonly serving: Serving;
  readonly metrics: GatewayMetrics;
  readonly clock: Clock;
}

export interface PublisherOptions {
  /** Publishes at the same time. */
  readonly publishes: number;
  /** From the move of the alias until what it named before drains: other gateways may still send there, milliseconds. */
  readonly retireMs: number;
}

export interface Publisher {
  /**
   * Build → record → prewarm → move `latest` → (later) drain the old version. Ending the iteration or `signal` before the alias
   * has moved undoes everything.
   * @throws GatewayError `conflict` while the same template is being published, `queue_full`, `invalid_request` when the archive
   * is of another template, `version_unavailable` when no machine of it becomes ready, and what the build throws
   */
  publish(
    name: string,
    archive: Readable,
    options: { readonly signal: AbortSignal },
  ): AsyncIterable<PublishEvent>;
}

type Built = Extract<BuildEvent, { type: 'built' }>;

/** Keeps in mind which templates are being published, nothing else. */
export function createPublisher(deps: PublisherDeps, options: PublisherOptions): Publisher {
  const running = new Set<string>();
  return {
    async *publish(name, archive, { signal }) {
      if (running.has(name)) throw new GatewayError('conflict', `${name} is being published already`);
      if (running.size >= options.publishes) {
        const message = `${options.publishes} publishes are running, the limit`;
        throw new GatewayError('queue_full', message, {
          retryAfterSeconds: 10,
          extra: { limit: options.publishes },
        });
      }
      running.add(name);
      let outcome: 'published' | 'unchanged' | 'failed' = 'failed';
      try {
        const built = yield* build(deps, name, archive, signal);
        yield* release(deps, built, options.retireMs, signal);
        outcome = built.unchanged ? 'unchanged' : 'published';
      } finally {
        running.delete(name);
        deps.metrics.published(outcome);
      }
    },
  };
}

async function* build(
  deps: PublisherDeps,
  name: string,
  archive: Readable,
  signal: AbortSignal,
): AsyncGenerator<PublishEvent, Built> {
  const edge = builder(deps.placement);
  let built: Built | undefined;
  for await (const event of edge.build(archive, { signal })) {
    if (event.type === 'built') built = event;
    else yield event;
  }
  if (built === undefined)
    throw new GatewayError('internal', 'the build ended without a version', { component: 'edge' });
  if (built.template === name) return built;
  const digest = built.facts.digest as VersionDigest;
  if (!isKnown(deps.registry, built.template, digest)) await edge.removeVersion(digest);
  const message = `the archive is of template "${built.template}", not of "${name}"`;
  throw new GatewayError('invalid_request', message, { field: 'name' });
}

async function* release(
  deps: PublisherDeps,
  built: Built,
  retireMs: number,
  signal: AbortSignal,
): AsyncGenerator<PublishEvent, void> {
  const { registry, serving } = deps;
  const { template, facts } = built;
  const isNew = !isKnown(registry, template, facts.digest);
  const version = registry.addVersion(template, { definition: built.definition, facts });
  const hold = serving.hold(servedVersion(version));
  let isReleased = false;
  try {
    yield* prewarm(deps, version);
    signal.throwIfAborted();
    registry.setAlias(template, latestAlias, [{ version: version.version }]);
    isReleased = true;
  } finally {
    hold[Symbol.dispose]();
    if (!isReleased && isNew) await undo(deps, version);
  }
  serving.syncLater(retireMs);
  yield {
    type: 'result',
    template,
    version: version.version,
    digest: version.digest,
    unchanged: built.unchanged,
    facts: version.facts,
  };
}

async function* prewarm(deps: PublisherDeps, version: RegisteredVersion): AsyncGenerator<PublishEvent, void> {
  const task = { type: 'task', id: 'prewarm', title: 'Warm up machines' } as const;
  const startedAt = deps.clock.monotonic();
  yield { ...task, state: 'started' };
  const reason = (await deps.serving.sync()).get(version.digest as VersionDigest);
  const ms = deps.clock.monotonic() - startedAt;
  yield { ...task, state: reason === undefined ? 'done' : 'failed', ms };
  if (reason !== undefined) {
    const message = `no machine of ${version.template}@${version.version} became ready: ${reason}`;
    throw new GatewayError('version_unavailable', message, { component: 'edge' });
  }
}

/** A version that never served leaves no trace. Its own failures must not hide why it is undone. */
async function undo(deps: PublisherDeps, version: RegisteredVersion): Promise<void> {
  try {
    deps.registry.removeVersion(version.template, version.version);
    await deps.serving.sync();
    await builder(deps.placement).removeVersion(version.digest as VersionDigest);
  } catch {
    // The edge keeps a snapshot that nobody names; its next start finds it.
  }
}

const isKnown = (registry: TemplateRegistry, template: string, digest: string): boolean =>
  registry.template(template)?.history.some((version) => version.digest === digest) ?? false;

/** The edge that builds. */
function builder(placement: Placement): EdgeClient {
  const [edge] = placement.edges();
  if (edge === undefined) throw new GatewayError('edge_unreachable', 'no node is known');
  return edge;
}
