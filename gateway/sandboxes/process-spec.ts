import type { SandboxUse } from '../../edge/client/index.ts';
import { type ProcessStatusInfo, randomName, type StartProcessRequest } from '../../sdk/index.ts';

type ProcessSpec = Parameters<SandboxUse['channel']['startProcess']>[0];
type GuestStatus = Awaited<ReturnType<SandboxUse['channel']['processStatus']>>;

/** Prefers bash with the user's profile. The script is an argument, so nothing of it is read by the outer shell. */
const shellScript = 'if command -v bash >/dev/null 2>&1; then exec bash -lc "$1"; else exec sh -lc "$1"; fi';

/** What the agent is asked to start. `env` of the sandbox comes first, so that the command's own wins. */
export function processSpec(
  request: StartProcessRequest,
  env: Readonly<Record<string, string>>,
): ProcessSpec {
  const { id, argv, shell, cwd, user, stdin, pty, timeoutMs } = request;
  return {
    id: id ?? randomName(20),
    argv: argv ?? ['/bin/sh', '-c', shellScript, 'sh', shell ?? ''],
    env: { ...(pty === undefined ? {} : { TERM: 'xterm-256color' }), ...env, ...request.env },
    user,
    stdin,
    ...(cwd === undefined ? {} : { cwd }),
    ...(pty === undefined ? {} : { pty }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
  };
}

/** What callers see of the agent's record. */
export const processInfo = (status: GuestStatus): ProcessStatusInfo => ({
  id: status.id,
  pid: status.pid,
  state: status.state,
  exitCode: status.exitCode,
  signal: status.signal,
  isTimedOut: status.isTimedOut,
  isOutOfMemory: status.isOutOfMemory,
  stdoutBytes: status.stdoutBytes ?? 0,
  stderrBytes: status.stderrBytes ?? 0,
  stdinBytes: status.stdinBytes ?? 0,
  termination: status.termination ?? null,
});
