/**
 * Makes a version: unpack → image → boot → copy → run → start → ready → warm up → capture → verify by a real restore.
 * Everything happens in a hidden directory which becomes the version's by one rename at the very end.
 */
import type { Readable } from 'node:stream';
import { shortDigest, type TemplateName, type VersionDigest } from '../../sdk/index.ts';
import { versionDigest } from '../definition/index.ts';
import { type ArchiveLimits, defaultArchiveLimits } from './archive/tree.ts';
import { archivedTemplate } from './archived-source.ts';
import { type BuildDeps, inBuildDirectory, inTurn, requireSpace } from './build-room.ts';
import { defaultDeadlines } from './deadlines.ts';
import type { BuildEvent, BuiltEvent } from './events.ts';
import type { GuestImage } from './host-port.ts';
import { makeSnapshot } from './make-snapshot.ts';
import { type BuildProgress, reported } from './progress.ts';
import { receiveArchive, type UnpackedTemplate, unpackSource } from './unpack-step.ts';
import { putInPlace } from './version-directories.ts';
import { inspectVersion } from './versions.ts';

async function findImage(
  deps: BuildDeps,
  progress: BuildProgress,
  template: UnpackedTemplate,
  signal: AbortSignal,
): Promise<GuestImage> {
  const deadline = AbortSignal.timeout((deps.deadlines ?? defaultDeadlines).imageMs);
  return progress.task('image', 'Prepare the image', () =>
    deps.host.image(template.definition, {
      onOutput: (text) => progress.output(text),
      signal: AbortSignal.any([signal, deadline]),
    }),
  );
}

interface Target {
  readonly digest: VersionDigest;
  readonly template: UnpackedTemplate;
  readonly image: GuestImage;
  readonly buildDirectory: string;
}

async function makeVersion(
  deps: BuildDeps,
  progress: BuildProgress,
  target: Target,
  signal: AbortSignal,
): Promise<BuiltEvent> {
  const { digest, template, buildDirectory } = target;
  await requireSpace(deps, template.definition.resources.memoryMiB);
  const facts = await makeSnapshot(
    {
      host: deps.host,
      clock: deps.clock,
      deadlines: deps.deadlines ?? defaultDeadlines,
      limits: limitsOf(deps),
    },
    { ...target, progress, signal },
  );
  await putInPlace(deps.versionsDirectory, buildDirectory, digest);
  return built(template, false, facts);
}

const limitsOf = (deps: BuildDeps): ArchiveLimits => deps.limits ?? defaultArchiveLimits;

const built = (template: UnpackedTemplate, unchanged: boolean, facts: BuiltEvent['facts']): BuiltEvent => ({
  type: 'built',
  template: template.definition.name as TemplateName,
  definition: template.definition,
  unchanged,
  facts,
});

/**
 * Builds, captures and verifies a version from a packed template (a gzipped tar with `template.json` at its root). The
 * same input whose version is there and intact is not built again. Nothing half-made stays behind: on failure the
 * versions directory is as it was. Leaving the iteration early cancels the build. The archive is read, never destroyed:
 * that is up to the caller.
 * @throws GatewayError `invalid_request`, `invalid_definition`, `not_supported_yet`, `build_failed` (with the guest's
 *   output), `disk_full`, `node_at_capacity` (too many builds wait), `cancelled`, and what the host throws
 */
export function buildVersion(
  deps: BuildDeps,
  archive: Readable,
  options: { readonly signal: AbortSignal },
): AsyncIterable<BuildEvent> {
  return reported(deps.clock, options.signal, (progress, signal) =>
    deps.lane.admit(() =>
      inBuildDirectory(deps, progress, signal, async (buildDirectory) => {
        const template = await progress.task('unpack', 'Unpack and check the template', async () => {
          await receiveArchive(archive, buildDirectory, limitsOf(deps), signal);
          return unpackSource(buildDirectory, limitsOf(deps), signal);
        });
        const event = await inTurn(deps.lane, progress, signal, async () => {
          const image = await findImage(deps, progress, template, signal);
          const digest = versionDigest({ ...template, ...image });
          return deps.lane.alone(digest, signal, () =>
            publishOne(deps, progress, { digest, template, image, buildDirectory }, signal),
          );
        });
        progress.push(event);
      }),
    ),
  );
}

async function publishOne(
  deps: BuildDeps,
  progress: BuildProgress,
  target: Target,
  signal: AbortSignal,
): Promise<BuiltEvent> {
  const title = `Look for version ${shortDigest(target.digest)}`;
  const existing = await progress.task('compare', title, () =>
    inspectVersion(deps, target.digest, { signal }),
  );
  if (existing.state === 'usable') return built(target.template, true, existing.version.facts);
  if (existing.state === 'unusable') {
    progress.output(`the version is there but can't be used, so it is built again: ${existing.reason}\n`);
  }
  return makeVersion(deps, progress, target, signal);
}

/**
 * Makes the files of a known version anew from its archived source, because they are damaged or the host changed. The old
 * files are replaced only when the new ones were verified; the digest, which aliases point to, stays.
 * No machine may be spawned from the old files while this runs: its memory and device state would not match.
 * @param reason a sentence for people; shown in the progress
 * @throws GatewayError as {@link buildVersion}, `version_not_found` when this host has no source of it,
 *   `snapshot_corrupt` when the archived source is damaged as well
 */
export function rebuildVersion(
  deps: BuildDeps,
  digest: VersionDigest,
  reason: string,
  options: { readonly signal: AbortSignal },
): AsyncIterable<BuildEvent> {
  return reported(deps.clock, options.signal, (progress, signal) =>
    inBuildDirectory(deps, progress, signal, async (buildDirectory) => {
      const template = await progress.task(
        'unpack',
        `Unpack version ${shortDigest(digest)} again`,
        async () => {
          progress.output(`rebuilding: ${reason}\n`);
          return archivedTemplate(deps.versionsDirectory, digest, buildDirectory, limitsOf(deps), signal);
        },
      );
      const event = await inTurn(deps.lane, progress, signal, async () => {
        const image = await findImage(deps, progress, template, signal);
        return deps.lane.alone(digest, signal, () =>
          makeVersion(deps, progress, { digest, template, image, buildDirectory }, signal),
        );
      });
      progress.push(event);
    }),
  );
}
