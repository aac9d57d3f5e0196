/** The part of a build that deals with machines: boots one, makes it ready, captures it, and proves the capture. */
import { rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import {
  type Clock,
  GatewayError,
  isGatewayError,
  type VersionDigest,
  type VersionFacts,
} from '../../sdk/index.ts';
import type { ArchiveLimits } from './archive/tree.ts';
import { buildFailed } from './build-error.ts';
import { copyFiles } from './copy-step.ts';
import type { BuildDeadlines } from './deadlines.ts';
import { GuestSession } from './guest-session.ts';
import { type BootedTemplate, type GuestImage, type SnapshotHost, snapshotFileNames } from './host-port.ts';
import { type Manifest, writeManifest } from './manifest.ts';
import type { Progress } from './progress.ts';
import {
  awaitReady,
  callHook,
  describeExit,
  proveAlive,
  requireAlive,
  startService,
  warmUp,
} from './service-steps.ts';
import type { UnpackedTemplate } from './unpack-step.ts';
import { snapshotFiles } from './versions.ts';

interface Deps {
  readonly host: SnapshotHost;
  readonly clock: Clock;
  readonly deadlines: BuildDeadlines;
  readonly limits: ArchiveLimits;
}

interface Job {
  readonly digest: VersionDigest;
  readonly template: UnpackedTemplate;
  readonly image: GuestImage;
  /** The snapshot's files and the manifest are made here; the unpacked folder in it is removed. */
  readonly buildDirectory: string;
  readonly progress: Progress;
  readonly signal: AbortSignal;
}

/** Makes the guest what the template says it is; the machine runs and is warm afterwards. */
async function prepare(deps: Deps, job: Job, session: GuestSession): Promise<void> {
  const { definition, folder } = job.template;
  const { progress } = job;
  const { deadlines } = deps;
  if (definition.copy.length > 0) {
    await progress.task('copy', 'Copy files', () =>
      copyFiles(session, folder, definition, progress, deadlines.copyMs, deps.limits),
    );
  }
  for (const [index, line] of definition.run.entries()) {
    const title = `Run ${line.length > 60 ? `${line.slice(0, 60)}…` : line}`;
    await progress.task(`run.${index}`, title, () => runLine(deps, job, session, index, line));
  }
  const { start } = definition;
  if (start === undefined) return;
  await progress.task('start', 'Start the service', () =>
    startService(session, definition, start, deadlines.bootMs),
  );
  await progress.task('ready', 'Wait until it is ready', () => awaitReady(session, start, deps.clock));
  if (definition.warmup.length > 0) {
    await progress.task('warmup', 'Warm up', () => warmUp(session, definition, start.port));
  }
  const hook = definition.hooks.beforeSnapshot;
  if (hook !== null) {
    await progress.task('hook', 'Tell it of the snapshot', () =>
      callHook(session, start.port, 'beforeSnapshot', hook),
    );
  }
  await session.step('looking at the service', deadlines.bootMs, (signal) =>
    requireAlive(session, signal, 'before the snapshot was taken'),
  );
}

async function runLine(
  deps: Deps,
  job: Job,
  session: GuestSession,
  index: number,
  line: string,
): Promise<void> {
  const timeoutMs = deps.deadlines.runMs;
  const exit = await session.step(`run.${index}`, timeoutMs, (signal) =>
    session.machine.run(['/bin/sh', '-ec', line], {
      env: job.template.definition.env,
      cwd: '/',
      onOutput: (text) => job.progress.output(text),
      timeoutMs,
      signal,
    }),
  );
  if (exit.exitCode !== 0)
    throw buildFailed(`run.${index} ${describeExit(exit)}: ${line}`, job.progress.tail());
}

/** Restores the snapshot once, as for a live invocation, and has it answer. */
async function verify(
  deps: Deps,
  job: Job,
): Promise<Pick<VersionFacts, 'verifyRestoreMs' | 'verifyFirstResponseMs'>> {
  const { definition } = job.template;
  const { deadlines, host } = deps;
  const deadline = AbortSignal.timeout(deadlines.restoreMs);
  const signal = AbortSignal.any([job.signal, deadline]);
  const { machine, restoreMs } = await host.restore(definition, job.image, job.buildDirectory, { signal });
  await using _machine = machine;
  const session = new GuestSession(machine, job.signal);
  const { start } = definition;
  if (start === undefined) {
    const { restoreMs: timeoutMs } = deadlines;
    const exit = await session.step('verify', timeoutMs, (stepSignal) =>
      machine.run(['/bin/true'], { timeoutMs, signal: stepSignal }),
    );
    if (exit.exitCode !== 0)
      throw buildFailed(`verify: /bin/true ${describeExit(exit)}`, await session.lastWords());
    return { verifyRestoreMs: restoreMs, verifyFirstResponseMs: null };
  }
  session.serviceStarted();
  const startedAt = deps.clock.monotonic();
  try {
    await proveAlive(session, definition, start);
  } catch (error) {
    throw await withLastWords(error, session);
  }
  return { verifyRestoreMs: restoreMs, verifyFirstResponseMs: deps.clock.monotonic() - startedAt };
}

/** A failure that no step explained (`build_failed` is explained) gets the guest's last words, while it can be asked. */
async function withLastWords(error: unknown, session: GuestSession): Promise<unknown> {
  if (!isGatewayError(error) || error.code === 'build_failed' || error.details.output !== undefined)
    return error;
  const output = await session.lastWords();
  return output === '' ? error : new GatewayError(error.code, error.message, { ...error.details, output });
}

async function bootAndCapture(deps: Deps, job: Job): Promise<void> {
  const { host, deadlines } = deps;
  const { progress, buildDirectory, template } = job;
  const booted: BootedTemplate = await progress.task('boot', 'Boot a machine', () =>
    host.boot(template.definition, job.image, buildDirectory, {
      signal: AbortSignal.any([job.signal, AbortSignal.timeout(deadlines.bootMs)]),
    }),
  );
  await using machine = booted;
  const session = new GuestSession(machine, job.signal);
  try {
    await prepare(deps, job, session);
  } catch (error) {
    throw await withLastWords(error, session);
  }
  await progress.task('capture', 'Capture memory, state and disk', () =>
    // Not a step of the session: capturing ends the machine, and that is no failure.
    machine.capture({ signal: AbortSignal.any([job.signal, AbortSignal.timeout(deadlines.captureMs)]) }),
  );
}

/** Sizes and checksums of what the capture left, as the manifest lists them. */
async function listFiles(deps: Deps, job: Job): Promise<Manifest['files']> {
  const sums = await deps.host.checksums(job.buildDirectory, {
    signal: AbortSignal.any([job.signal, AbortSignal.timeout(deps.deadlines.checksumMs)]),
  });
  const files: Manifest['files'] = {};
  for (const name of snapshotFiles) {
    const sha256 = sums[name];
    if (sha256 === undefined) throw buildFailed(`the capture left no ${name}`);
    files[name] = { bytes: (await stat(join(job.buildDirectory, name))).size, sha256 };
  }
  return files;
}

/** Bytes that a sparse file really takes. */
const storedBytes = async (path: string): Promise<number> => (await stat(path)).blocks * 512;

/**
 * Fills the build directory with a verified snapshot and its manifest; afterwards the directory holds nothing else.
 * Checksums are taken before the verifying restore, so whatever that changes is found when the version is next loaded.
 */
export async function makeSnapshot(deps: Deps, job: Job): Promise<VersionFacts> {
  const { progress, buildDirectory, template, digest, image } = job;
  const startedAt = deps.clock.monotonic();
  await bootAndCapture(deps, job);
  const files = await progress.task('checksum', 'Take checksums', () => listFiles(deps, job));
  const verified = await progress.task('verify', 'Verify by restoring it', () => verify(deps, job));
  const facts: VersionFacts = {
    digest,
    builtAt: deps.clock.now(),
    buildMs: Math.round(deps.clock.monotonic() - startedAt),
    memoryBytes: await storedBytes(join(buildDirectory, snapshotFileNames.memory)),
    stateBytes: (await stat(join(buildDirectory, snapshotFileNames.state))).size,
    diskBytes: await storedBytes(join(buildDirectory, snapshotFileNames.disk)),
    accelerator: deps.host.accelerator,
    ...verified,
  };
  await rm(template.folder, { recursive: true, force: true });
  await writeManifest(buildDirectory, {
    schema: 1,
    digest,
    definition: template.definition,
    contentDigest: template.contentDigest,
    image: { ...image },
    fingerprint: { ...deps.host.fingerprint },
    files,
    facts,
  });
  return facts;
}
