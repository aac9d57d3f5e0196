/** Which process a pid or a tag means. */
import { Code, ConnectError } from '@connectrpc/connect';
import type { SandboxUse } from '../../../../edge/client/index.ts';
import type { ProcessSelector } from '../../proto/gen/process/process_pb.js';
import { readNote } from './note.ts';

/** The agent's record of a process. */
export type ProcessRecord = Awaited<ReturnType<SandboxUse['channel']['processStatus']>>;

/** Most bytes of a tag: it must fit into a note. */
const tagBytes = 512;

/** A tag that is one. */
export function checkedTag(tag: string): string {
  if (tag !== '' && Buffer.byteLength(tag) <= tagBytes) return tag;
  throw new ConnectError(`a tag has 1 to ${tagBytes} bytes`, Code.InvalidArgument);
}

/**
 * Pids come again, so one that runs is meant before one that has exited, and of those the newest.
 * @throws ConnectError `NotFound`, `InvalidArgument` when neither pid nor tag is given
 */
export async function selectProcess(
  channel: SandboxUse['channel'],
  selector: ProcessSelector | undefined,
  signal: AbortSignal,
): Promise<ProcessRecord> {
  const wanted = selector?.selector;
  if (wanted?.case === undefined) throw new ConnectError('say which process is meant', Code.InvalidArgument);
  const all = await channel.listProcesses({ signal });
  const found = all.filter((record) =>
    wanted.case === 'pid' ? record.pid === wanted.value : readNote(record.note)?.tag === wanted.value,
  );
  const chosen = found.findLast(({ state }) => state === 'running') ?? found.at(-1);
  if (chosen !== undefined) return chosen;
  throw new ConnectError(`there is no process with ${wanted.case} ${wanted.value}`, Code.NotFound);
}

/** The same, for what only a process that runs can be asked. */
export async function selectRunning(
  channel: SandboxUse['channel'],
  selector: ProcessSelector | undefined,
  signal: AbortSignal,
): Promise<ProcessRecord> {
  const record = await selectProcess(channel, selector, signal);
  if (record.state === 'running') return record;
  throw new ConnectError(`process ${record.pid} has ended`, Code.NotFound);
}
