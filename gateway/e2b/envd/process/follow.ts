/** The events of one process, from some place of its output to its end. */
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { observe } from '../../../sandboxes/observe.ts';
import { openOutput } from '../../../sandboxes/output.ts';
import { type ProcessEvent, ProcessEventSchema } from '../../proto/gen/process/process_pb.js';
import type { EnvdCall } from '../call.ts';
import { merge } from '../merge.ts';
import { endOf } from './end.ts';
import type { ProcessRecord } from './selection.ts';

type Stream = 'stdout' | 'stderr' | 'pty';
type EventInit = NonNullable<MessageInitShape<typeof ProcessEventSchema>['event']>;

const event = (init: EventInit): ProcessEvent => create(ProcessEventSchema, { event: init });

/** Largest piece of output in one message. */
const pieceBytes = 32 * 1024;

/** Streams of a process, and the first byte that is wanted of each. */
export interface Followed {
  readonly record: ProcessRecord;
  /** False: only what it says from now on. */
  readonly fromStart: boolean;
}

/**
 * `start`, then `data` as it comes, then `end`; `keepalive` in between. Holds the sandbox at no moment, so it outlives a fork. What
 * ends it early leaves the process alone.
 * @throws ConnectError `DeadlineExceeded` when the process's own time was up, and what the sandbox throws
 */
export async function* follow(
  call: EnvdCall,
  { record, fromStart }: Followed,
  signal: AbortSignal,
): AsyncGenerator<ProcessEvent> {
  const { edge, id, clock, keepAliveMs } = call;
  const where = { edge, id, signal, process: record.id };
  yield event({ case: 'start', value: { pid: record.pid } });
  const streams: readonly Stream[] = record.isPty === true ? ['pty'] : ['stdout', 'stderr'];
  // Asked at once: when the output ends, the answer is there.
  const end = observe(where, (channel) => channel.waitProcess(record.id, { signal }), true);
  end.catch(() => {});
  const outputs = streams.map((stream) => pieces({ ...where, stream }, fromStart ? 0 : seen(record, stream)));
  yield* merge(outputs, {
    clock,
    keepAliveMs,
    keepAlive: () => event({ case: 'keepalive', value: {} }),
  });
  const ended = await end;
  if (ended.isTimedOut) {
    throw new ConnectError('the command took longer than its timeout and was killed', Code.DeadlineExceeded);
  }
  yield event({ case: 'end', value: endOf(ended) });
}

/** How much was written to a stream; a terminal's is counted as stdout. */
const seen = (record: ProcessRecord, stream: Stream): number =>
  (stream === 'stderr' ? record.stderrBytes : record.stdoutBytes) ?? 0;

async function* pieces(
  where: Omit<Parameters<typeof openOutput>[0], 'offset' | 'follow'>,
  offset: number,
): AsyncGenerator<ProcessEvent> {
  const output = await openOutput({ ...where, offset, follow: true });
  try {
    for await (const chunk of output.body as AsyncIterable<Buffer>) {
      for (let at = 0; at < chunk.length; at += pieceBytes) {
        const value = chunk.subarray(at, at + pieceBytes);
        yield event({ case: 'data', value: { output: { case: where.stream, value } } });
      }
    }
  } finally {
    output.body.destroy();
  }
}
