import { GatewayError } from '../../sdk/index.ts';
import { type CountBucket, FunctionIndex, type TraceCount, type TraceWindow } from './invocation.ts';
import { numberIn, readRows } from './rows.ts';

const minuteMs = 60_000;
const minutesOfDay = 1440;
/** Most cells of a day that are held at once; a whole day of the public file has some millions. */
const maxCells = 20_000_000;

/**
 * Azure Functions 2019 (`invocations_per_function_md.anon.dNN.csv`): a row per function, a column per minute of one day.
 * Functions come row by row but are replayed minute by minute, so the window's non-empty cells are held in memory.
 */
export async function* readAzure2019(file: string, window: TraceWindow): AsyncGenerator<CountBucket> {
  const first = Math.max(0, Math.floor(window.fromMs / minuteMs));
  const last = Math.min(minutesOfDay, Math.ceil(window.toMs / minuteMs));
  const minutes: TraceCount[][] = Array.from({ length: Math.max(0, last - first) }, () => []);
  const functions = new FunctionIndex();
  let cells = 0;
  for await (const row of readRows(file, ['HashOwner', 'HashApp', 'HashFunction', 'Trigger', '1'])) {
    const functionIndex = functions.of(`${row.HashOwner}/${row.HashApp}/${row.HashFunction}`);
    for (const [offset, minute] of minutes.entries()) {
      const count = countIn(row, String(first + offset + 1), file);
      if (count === 0) continue;
      minute.push({ functionIndex, count });
      cells += 1;
    }
    if (cells > maxCells) {
      throw new GatewayError(
        'invalid_request',
        `trace ${file}: more than ${maxCells} cells; take a shorter window`,
      );
    }
  }
  for (const [offset, counts] of minutes.entries()) {
    yield { startMs: (first + offset) * minuteMs, lengthMs: minuteMs, counts };
  }
}

/**
 * Huawei 2023 (`requests_minute/day_NNN.csv` and `requests_second/day_NNN.csv`): a row per interval with `day`, `time`
 * in seconds from the start of the data set, and a column per function; a cell is empty when the function had no
 * data. Time is counted from the first row of the file. Streams.
 */
export async function* readHuaweiCounts(
  file: string,
  lengthMs: number,
  window: TraceWindow,
): AsyncGenerator<CountBucket> {
  const functions = new FunctionIndex();
  let columns: string[] | null = null;
  let originMs = 0;
  for await (const row of readRows(file, ['day', 'time'])) {
    const timeMs = numberIn(row, 'time', file) * 1000;
    if (columns === null) {
      columns = Object.keys(row).filter((name) => name !== 'day' && name !== 'time');
      originMs = timeMs;
    }
    const startMs = timeMs - originMs;
    if (startMs < window.fromMs) continue;
    if (startMs >= window.toMs) return;
    const counts = columns
      .map((column) => ({ functionIndex: functions.of(column), count: countIn(row, column, file) }))
      .filter(({ count }) => count > 0);
    yield { startMs, lengthMs, counts };
  }
}

function countIn(row: Readonly<Record<string, string>>, column: string, file: string): number {
  const value = numberIn(row, column, file);
  if (value < 0)
    throw new GatewayError('invalid_request', `trace ${file}: column ${column} holds a negative count`);
  return Math.round(value);
}
