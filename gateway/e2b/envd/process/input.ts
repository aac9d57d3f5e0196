/** Input of processes: clients send pieces without saying where they belong, so pieces of one process go one after another. */
import { Code, ConnectError } from '@connectrpc/connect';
import type { SandboxUse } from '../../../../edge/client/index.ts';
import type { ProcessInput } from '../../proto/gen/process/process_pb.js';
import type { ProcessRecord } from './selection.ts';

export interface InputLines {
  /** Runs `work` when all earlier work for this process is done. */
  inTurn<T>(sandbox: string, process: string, work: () => Promise<T>): Promise<T>;
}

/** Holds an entry for each process that has input under way. */
export function createInputLines(): InputLines {
  const last = new Map<string, Promise<unknown>>();
  return {
    async inTurn(sandbox, process, work) {
      const key = `${sandbox} ${process}`;
      const turn = (last.get(key) ?? Promise.resolve()).then(work, work);
      last.set(key, turn);
      try {
        return await turn;
      } finally {
        if (last.get(key) === turn) last.delete(key);
      }
    },
  };
}

/** The agent takes no more in one request. */
const pieceBytes = 256 * 1024;

/**
 * Writes what a message carries. A terminal's input goes to terminals, the other to the rest.
 * @throws ConnectError `InvalidArgument` when it is of the wrong kind
 */
export async function sendInput(
  channel: SandboxUse['channel'],
  record: ProcessRecord,
  input: ProcessInput | undefined,
  signal: AbortSignal,
): Promise<void> {
  const wanted = input?.input;
  if (wanted?.case === undefined) throw new ConnectError('there is no input', Code.InvalidArgument);
  if ((wanted.case === 'pty') !== (record.isPty === true)) {
    const kind = record.isPty === true ? 'a terminal' : 'no terminal';
    throw new ConnectError(`process ${record.pid} has ${kind}`, Code.InvalidArgument);
  }
  // Asked again in our turn: others may have written since it was looked up.
  let { stdinBytes: offset = 0 } = await channel.processStatus(record.id, { signal });
  for (let at = 0; at < wanted.value.length; at += pieceBytes) {
    const piece = wanted.value.subarray(at, at + pieceBytes);
    ({ offset } = await channel.writeStdin(record.id, piece, { offset, signal }));
  }
}

/** Tells the process that no more comes. */
export async function closeInput(
  channel: SandboxUse['channel'],
  record: ProcessRecord,
  signal: AbortSignal,
): Promise<void> {
  if (record.isPty === true) {
    throw new ConnectError(
      'a terminal takes an end-of-file character (Ctrl-D) instead',
      Code.FailedPrecondition,
    );
  }
  const { stdinBytes: offset = 0 } = await channel.processStatus(record.id, { signal });
  await channel.writeStdin(record.id, new Uint8Array(), { offset, isLast: true, signal });
}
