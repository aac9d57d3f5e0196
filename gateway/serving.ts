/** Keeps the edges' idea of what to serve equal to the registry: all aliased versions, and those held for a while. */
import type { Logger } from 'pino';
import type { ServedVersion } from '../edge/client/index.ts';
import { type Clock, GatewayError, type VersionDigest } from '../sdk/index.ts';
import type { RegisteredVersion, TemplateRegistry } from '../templates/index.ts';
import { toGatewayError } from './errors.ts';
import * as fields from './fields.ts';
import type { Placement } from './placement.ts';

/** Why versions could not be made ready; empty when all are. */
export type ServingFailures = ReadonlyMap<VersionDigest, string>;

/** Disposing stops timers and retries; a declaration under way is the edge's and ends by itself. */
export interface Serving extends Disposable {
  /** Declares the set again and again, with back-off, until an edge took it. */
  start(): void;
  /** The edges have taken the set at least once. */
  readonly isReconciled: boolean;
  /** Why the last attempt failed; null when it did not. */
  readonly lastError: GatewayError | null;
  /**
   * Declares the present set. Calls that come while another waits its turn share one declaration.
   * @throws GatewayError when no edge took it
   */
  sync(): Promise<ServingFailures>;
  /** Keeps a version served, whatever the registry says, until the answer is disposed. Does not declare by itself. */
  hold(version: ServedVersion): Disposable;
  /**
   * Sees to it that a version which is about to be called is served: at once for aliased ones; others are held for some time.
   * @throws GatewayError `version_unavailable`, `cancelled`
   */
  ensure(version: RegisteredVersion, options: { readonly signal: AbortSignal }): Promise<void>;
  /** Declares after `delayMs`, in the background. */
  syncLater(delayMs: number): void;
}

export interface ServingOptions {
  /** Most versions held by {@link Serving.ensure}; the one not called for longest makes room. */
  readonly pinned: number;
  /** How long such a version stays after its last call, milliseconds. */
  readonly pinnedMs: number;
}

export interface ServingDeps {
  readonly registry: Pick<TemplateRegistry, 'aliasedVersions'>;
  readonly placement: Placement;
  readonly clock: Clock;
  readonly log: Logger;
  /** Uniform in [0, 1); jitter of the back-off. */
  readonly random: () => number;
}

const firstRetryMs = 100;
const maxRetryMs = 10_000;

/** Owns its timers and nothing else. */
export function createServing(deps: ServingDeps, options: ServingOptions): Serving {
  const { clock, log } = deps;
  const held = new Map<VersionDigest, { readonly version: ServedVersion; count: number }>();
  const pinned = new Map<VersionDigest, { readonly version: ServedVersion; calledAt: number }>();
  const timers = new Set<() => void>();
  let declared: ReadonlySet<VersionDigest> = new Set();
  let running: Promise<unknown> = Promise.resolve();
  let queued: Promise<ServingFailures> | undefined;
  let isReconciled = false;
  let isClosed = false;
  let lastError: GatewayError | null = null;

  const later = (delayMs: number, work: () => void) => {
    if (isClosed) return;
    const cancel = clock.schedule(delayMs, () => {
      timers.delete(cancel);
      work();
    });
    timers.add(cancel);
  };

  const wanted = (): Map<VersionDigest, ServedVersion> => {
    const versions = new Map<VersionDigest, ServedVersion>();
    for (const version of deps.registry.aliasedVersions()) {
      const served = servedVersion(version);
      versions.set(served.digest, served);
    }
    for (const { version } of held.values()) versions.set(version.digest, version);
    for (const [digest, pin] of pinned) {
      if (clock.monotonic() - pin.calledAt >= options.pinnedMs) pinned.delete(digest);
      else versions.set(digest, pin.version);
    }
    return versions;
  };

  const declare = async (): Promise<ServingFailures> => {
    if (isClosed) throw new GatewayError('draining', 'the gateway is stopping');
    const versions = wanted();
    const failures = new Map<VersionDigest, string>();
    const before = declared;
    // An edge queues calls of a version from the moment it knows it, so nobody has to wait for the answer.
    declared = new Set(versions.keys());
    try {
      const answers = await Promise.all(
        deps.placement.edges().map((edge) => edge.setServing([...versions.values()])),
      );
      for (const { digest, error } of answers.flat()) if (error !== null) failures.set(digest, error);
    } catch (thrown) {
      declared = before;
      lastError = toGatewayError(thrown);
      throw lastError;
    }
    lastError = null;
    isReconciled = true;
    for (const [digest, reason] of failures) {
      const version = versions.get(digest);
      if (version !== undefined) log.error({ ...versionFields(version), reason }, 'version not ready');
    }
    return failures;
  };

  const sync = (): Promise<ServingFailures> => {
    if (queued !== undefined) return queued;
    const turn = running.then(() => {
      queued = undefined;
      return declare();
    });
    queued = turn;
    running = turn.catch(() => {});
    return turn;
  };

  const retry = (attempt: number) => {
    if (isClosed) return;
    sync().then(
      () => log.info({ versions: declared.size }, 'serving set declared'),
      (thrown) => {
        const delayMs = Math.min(maxRetryMs, firstRetryMs * 2 ** attempt) * (0.5 + deps.random() / 2);
        log.warn(
          { ...fields.failure(toGatewayError(thrown)), ...fields.attempt(attempt) },
          'serving set not taken',
        );
        later(delayMs, () => retry(Math.min(attempt + 1, 16)));
      },
    );
  };

  const watchPin = (digest: VersionDigest, delayMs: number) => {
    later(delayMs, () => {
      const pin = pinned.get(digest);
      if (pin === undefined) return;
      const leftMs = pin.calledAt + options.pinnedMs - clock.monotonic();
      if (leftMs > 0) watchPin(digest, leftMs);
      else sync().catch(() => {});
    });
  };

  const pin = (version: ServedVersion) => {
    pinned.delete(version.digest);
    pinned.set(version.digest, { version, calledAt: clock.monotonic() });
    watchPin(version.digest, options.pinnedMs);
    const oldest = pinned.size > options.pinned ? pinned.keys().next().value : undefined;
    if (oldest !== undefined) pinned.delete(oldest);
  };

  return {
    start: () => retry(0),
    get isReconciled() {
      return isReconciled;
    },
    get lastError() {
      return lastError;
    },
    sync,
    hold(version) {
      const entry = held.get(version.digest) ?? { version, count: 0 };
      entry.count += 1;
      held.set(version.digest, entry);
      let isHeld = true;
      return {
        [Symbol.dispose]() {
          if (!isHeld) return;
          isHeld = false;
          entry.count -= 1;
          if (entry.count === 0) held.delete(version.digest);
        },
      };
    },
    async ensure(version, { signal }) {
      const served = servedVersion(version);
      const { digest } = served;
      const pinnedBefore = pinned.get(digest);
      if (pinnedBefore !== undefined) pinnedBefore.calledAt = clock.monotonic();
      if (declared.has(digest)) return;
      pin(served);
      const failures = await abortable(sync(), signal);
      const reason = failures.get(digest);
      if (reason !== undefined) {
        pinned.delete(digest);
        throw new GatewayError(
          'version_unavailable',
          `version ${served.version} can't be made ready: ${reason}`,
        );
      }
    },
    syncLater: (delayMs) => later(delayMs, () => retry(0)),
    [Symbol.dispose]() {
      isClosed = true;
      for (const cancel of timers) cancel();
      timers.clear();
    },
  };
}

/** What an edge needs to know of a version. */
export const servedVersion = ({ digest, template, version }: RegisteredVersion): ServedVersion => ({
  digest: digest as VersionDigest,
  template,
  version,
});

function abortable<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  if (signal.aborted) onAbort();
  return Promise.race([work, promise]).finally(() => signal.removeEventListener('abort', onAbort));
}

const versionFields = (version: ServedVersion) => ({
  ...fields.templateName(version.template),
  ...fields.templateVersion(version.version),
});
