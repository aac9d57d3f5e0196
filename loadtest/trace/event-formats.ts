import { GatewayError } from '../../sdk/index.ts';
import { FunctionIndex, type TraceInvocation, type TraceWindow } from './invocation.ts';
import { numberIn, readRows } from './rows.ts';

/** Most invocations of one window; they are sorted in memory, 24 bytes each. */
const maxInvocations = 20_000_000;

interface EventFormat {
  readonly columns: readonly string[];
  readonly functionKey: (row: Readonly<Record<string, string>>) => string;
  /** Start and duration in seconds. */
  readonly read: (
    row: Readonly<Record<string, string>>,
    file: string,
  ) => { readonly startS: number; readonly durationS: number };
}

/** Azure Functions 2021: `app,func,end_timestamp,duration`, seconds; it started `duration` before its end. */
const azure2021: EventFormat = {
  columns: ['app', 'func', 'end_timestamp', 'duration'],
  functionKey: (row) => `${row.app}/${row.func}`,
  read(row, file) {
    const durationS = numberIn(row, 'duration', file);
    return { startS: numberIn(row, 'end_timestamp', file) - durationS, durationS };
  },
};

/**
 * Huawei 2025 request tables, one row per request. A function is `funcName` of a `userID`. The description of the data
 * doesn't say whether `time_worker` is the start or the end; it is taken as the arrival.
 */
const huaweiRequest: EventFormat = {
  columns: ['time_worker', 'funcName', 'userID', 'totalCost_worker'],
  functionKey: (row) => `${row.funcName}---${row.userID}`,
  read: (row, file) => ({
    startS: numberIn(row, 'time_worker', file),
    durationS: numberIn(row, 'totalCost_worker', file),
  }),
};

export const eventFormats = { 'azure-2021': azure2021, 'huawei-request': huaweiRequest } as const;

/** Invocations of the window in order of start. Time is counted from the earliest start of the file. */
export async function* readEvents(
  file: string,
  format: EventFormat,
  window: TraceWindow,
): AsyncGenerator<TraceInvocation> {
  const starts: number[] = [];
  const durations: number[] = [];
  const owners: number[] = [];
  const functions = new FunctionIndex();
  let originS = Number.POSITIVE_INFINITY;
  for await (const row of readRows(file, format.columns)) {
    const { startS, durationS } = format.read(row, file);
    if (durationS < 0) throw new GatewayError('invalid_request', `trace ${file}: a negative duration`);
    originS = Math.min(originS, startS);
    starts.push(startS);
    durations.push(durationS);
    owners.push(functions.of(format.functionKey(row)));
    if (starts.length > maxInvocations) {
      throw new GatewayError(
        'invalid_request',
        `trace ${file}: more than ${maxInvocations} invocations; split the file`,
      );
    }
  }
  const order = Uint32Array.from(starts.keys()).sort((left, right) => starts[left]! - starts[right]!);
  for (const index of order) {
    const atMs = (starts[index]! - originS) * 1000;
    if (atMs < window.fromMs) continue;
    if (atMs >= window.toMs) return;
    yield { atMs, functionIndex: owners[index]!, durationMs: durations[index]! * 1000 };
  }
}
