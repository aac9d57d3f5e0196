/** What the agent is asked to start for a `StartRequest`. */
import { Code, ConnectError } from '@connectrpc/connect';
import type { SandboxUse } from '../../../../edge/client/index.ts';
import { randomName, type SandboxInfo } from '../../../../sdk/index.ts';
import type { StartRequest } from '../../proto/gen/process/process_pb.js';
import { writeNote } from './note.ts';
import { checkedTag } from './selection.ts';

type ProcessSpec = Parameters<SandboxUse['channel']['startProcess']>[0];

export interface StartFacts {
  readonly user: string;
  /** Absolute; absent: the user's home directory. */
  readonly cwd: string | undefined;
  /** Env that every command of the sandbox sees. */
  readonly env: Readonly<Record<string, string>>;
  readonly sandbox: Pick<SandboxInfo, 'id' | 'template'>;
  /** Time that is left to the call; the process gets no longer. */
  readonly timeoutMs: number | undefined;
}

/** A terminal of no size is one that was not told yet. */
const sizeOf = (wanted: number, usual: number): number => (wanted === 0 ? usual : Math.min(wanted, 10_000));

/** @throws ConnectError `InvalidArgument` */
export function startSpec(request: StartRequest, facts: StartFacts): ProcessSpec {
  const { process, pty, tag, stdin } = request;
  if (process === undefined || process.cmd === '') {
    throw new ConnectError('"process.cmd" says what to start', Code.InvalidArgument);
  }
  const { cmd, args, envs, cwd } = process;
  const size = pty?.size;
  const note = { cmd, args, envs, ...(cwd === undefined ? {} : { cwd }) };
  return {
    id: randomName(20),
    argv: [cmd, ...args],
    env: {
      E2B_SANDBOX: 'true',
      E2B_SANDBOX_ID: facts.sandbox.id,
      E2B_TEMPLATE_ID: facts.sandbox.template,
      ...facts.env,
      ...envs,
    },
    user: facts.user,
    ...(facts.cwd === undefined ? {} : { cwd: facts.cwd }),
    // Clients that know nothing of the field expect input to be open.
    stdin: pty === undefined && stdin !== false,
    ...(pty === undefined
      ? {}
      : { pty: { cols: sizeOf(size?.cols ?? 0, 80), rows: sizeOf(size?.rows ?? 0, 24) } }),
    ...(facts.timeoutMs === undefined ? {} : { timeoutMs: Math.max(1, Math.floor(facts.timeoutMs)) }),
    note: writeNote({ ...note, ...(tag === undefined ? {} : { tag: checkedTag(tag) }) }),
  };
}
