/** Where a build happens: a directory of its own, enough free space, and its turn. */
import { rm, statfs } from 'node:fs/promises';
import { type Clock, GatewayError, isGatewayError } from '../../sdk/index.ts';
import type { ArchiveLimits } from './archive/tree.ts';
import { toBuildError } from './build-error.ts';
import type { BuildDeadlines } from './deadlines.ts';
import type { SnapshotHost } from './host-port.ts';
import type { BuildLane } from './lane.ts';
import type { BuildProgress } from './progress.ts';
import { makeBuildDirectory } from './version-directories.ts';

/** Collaborators of a build. */
export interface BuildDeps {
  readonly host: SnapshotHost;
  /** Where versions live, one directory each; made when missing. On one filesystem. */
  readonly versionsDirectory: string;
  readonly clock: Clock;
  /** One per host: it bounds all builds there. */
  readonly lane: BuildLane;
  readonly limits?: ArchiveLimits;
  readonly deadlines?: BuildDeadlines;
  /** Bytes that may still be written below a directory. Default: asks the filesystem. */
  readonly freeBytes?: (directory: string) => Promise<number>;
}

const mebibyte = 1024 * 1024;
/** What a build needs beside the guest's memory: device state, disk layer, archive. */
const reserveBytes = 128 * mebibyte;

async function askFilesystem(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}

/**
 * The guest's memory is a sparse mapped file: on a full disk the VMM would die of SIGBUS instead of getting an error.
 * @throws GatewayError `disk_full` with both figures
 */
export async function requireSpace(deps: BuildDeps, memoryMiB: number): Promise<void> {
  const needed = memoryMiB * mebibyte + reserveBytes;
  const free = await (deps.freeBytes ?? askFilesystem)(deps.versionsDirectory);
  if (free >= needed) return;
  const inMiB = (bytes: number) => Math.floor(bytes / mebibyte);
  throw new GatewayError(
    'disk_full',
    `${inMiB(free)} MiB are free in the data directory, and this build may need ${inMiB(needed)} MiB`,
    { component: 'templates', extra: { freeMiB: inMiB(free), neededMiB: inMiB(needed) } },
  );
}

/** Runs `work` in a fresh build directory that is gone afterwards, unless it was renamed to be a version. */
export async function inBuildDirectory<T>(
  deps: BuildDeps,
  progress: BuildProgress,
  signal: AbortSignal,
  work: (directory: string) => Promise<T>,
): Promise<T> {
  let directory: string | undefined;
  try {
    directory = await makeBuildDirectory(deps.versionsDirectory);
    return await work(directory);
  } catch (error) {
    throw toBuildError(await orDiskFull(deps, error), progress.tail(), signal);
  } finally {
    if (directory !== undefined) {
      await rm(directory, { recursive: true, force: true }).catch((error: Error) =>
        progress.output(
          `a build directory could not be removed and is left to the next start: ${error.message}\n`,
        ),
      );
    }
  }
}

/** A VMM that could not write says so in many ways; no space left afterwards is the better explanation. */
async function orDiskFull(deps: BuildDeps, error: unknown): Promise<unknown> {
  if (!isGatewayError(error, 'build_failed', 'vmm_failed', 'internal')) return error;
  const free = await (deps.freeBytes ?? askFilesystem)(deps.versionsDirectory).catch(
    () => Number.POSITIVE_INFINITY,
  );
  if (free >= mebibyte) return error;
  return new GatewayError('disk_full', 'the disk ran full while the version was built', {
    component: 'templates',
    cause: error,
    ...(error.details.output === undefined ? {} : { output: error.details.output }),
  });
}

/** Waits for a turn, visibly when there is a wait. */
export async function inTurn<T>(
  lane: BuildLane,
  progress: BuildProgress,
  signal: AbortSignal,
  work: () => Promise<T>,
): Promise<T> {
  if (!lane.isBusy) return lane.enter(signal, work);
  const turn = Promise.withResolvers<void>();
  const waiting = progress.task('wait', 'Wait for other builds', () => turn.promise);
  try {
    return await lane.enter(signal, async () => {
      turn.resolve();
      await waiting;
      return work();
    });
  } catch (error) {
    turn.reject(error);
    await waiting.catch(() => undefined);
    throw error;
  }
}
