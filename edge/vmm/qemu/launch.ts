/** Starts a VMM process detached from the edge, with nothing inherited but its stderr and the files meant for it. */
import { spawn } from 'node:child_process';
import { open } from 'node:fs/promises';
import { GatewayError } from '../../../sdk/index.ts';
import type { TapPlace } from '../port.ts';
import { errnoOf } from './failure.ts';
import type { MachineFiles } from './machine-files.ts';
import { childHandle, type ProcessHandle } from './process-handle.ts';
import { type ProcessIdentity, processStartTime } from './process-table.ts';
import type { VmmUser } from './vmm-user.ts';

export interface LaunchSpec {
  /** Absolute path of the QEMU binary. */
  readonly binary: string;
  readonly argv: readonly string[];
  /** The whole environment; nothing of the edge's own is passed on. */
  readonly env: Readonly<Record<string, string>>;
  readonly files: MachineFiles;
  /** Descriptors of ours that the process gets as 3, 4, …; the caller closes its own. */
  readonly inherited: readonly number[];
  /** Whom the process runs as; null: as we do. */
  readonly user: VmmUser | null;
  /** Null: the machine has no network card. Otherwise the process starts by way of `program`, see `native/tap-launch.c`. */
  readonly tap: (TapPlace & { readonly program: string; readonly descriptor: number }) | null;
}

export interface Launched {
  readonly handle: ProcessHandle;
  /** Null when the process ended before it could be looked at. */
  readonly identity: ProcessIdentity | null;
}

/** Starts a process for a machine. The seam at which a jail wraps the command. */
export type Launch = (spec: LaunchSpec) => Promise<Launched>;

/**
 * The plain launcher: own session, working directory `vmm/`, stdin and stdout closed. Throws `host_not_ready` when the
 * binary is missing.
 */
export const launchDetached: Launch = async (spec) => {
  await using stderr = await open(spec.files.stderr, 'a', 0o600);
  const { binary, argv, user } = startLine(spec);
  const child = spawn(binary, argv, {
    cwd: spec.files.vmmDirectory,
    env: spec.env,
    detached: true,
    stdio: ['ignore', 'ignore', stderr.fd, ...spec.inherited],
    ...(user ?? {}),
  });
  const started = Promise.withResolvers<void>();
  child.once('spawn', () => started.resolve());
  child.once('error', (error) => started.reject(error));
  const { pid } = child;
  if (pid === undefined) {
    const cause: unknown = await started.promise.catch((error: unknown) => error);
    const code = errnoOf(cause) === 'ENOENT' ? 'host_not_ready' : 'vmm_failed';
    throw new GatewayError(code, `could not start ${binary}`, { component: 'edge', cause });
  }
  const handle = childHandle(child, pid);
  child.unref();
  await started.promise;
  const startTime = await processStartTime(pid);
  return { handle, identity: startTime === null ? null : { pid, startTime } };
};

/** Opening a tap and leaving for an empty namespace takes root, which is given up by the program in between. */
function startLine({ binary, argv, user, tap }: LaunchSpec): Pick<LaunchSpec, 'binary' | 'argv' | 'user'> {
  if (tap === null) return { binary, argv, user };
  const { uid, gid } = user ?? { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
  const start = [tap.netns, tap.device, tap.descriptor, uid, gid, binary].map(String);
  return { binary: tap.program, argv: [...start, ...argv], user: null };
}
