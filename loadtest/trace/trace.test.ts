import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { isGatewayError } from '../../sdk/index.ts';
import type { TraceInvocation } from './invocation.ts';
import { type TraceOptions, traceFormats, traceOptionsSchema } from './options.ts';
import { createTraceSource, readTrace } from './source.ts';
import { writeSyntheticTrace } from './synthetic.ts';

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'snapgate-trace-'));
});
after(() => rm(directory, { recursive: true }));

const write = async (name: string, content: string | Buffer) => {
  const file = join(directory, name);
  await writeFile(file, content);
  return file;
};
const options = (over: Partial<TraceOptions> & Pick<TraceOptions, 'file' | 'format'>) =>
  traceOptionsSchema.parse(over);
const readAll = async (trace: TraceOptions): Promise<TraceInvocation[]> => {
  const all: TraceInvocation[] = [];
  for await (const invocation of readTrace(trace, 1)) all.push(invocation);
  return all;
};

describe('readers', () => {
  test('Azure 2019 counts become that many invocations in their minute', async () => {
    const minutes = Array.from({ length: 1440 }, (_, index) => index + 1);
    const counts = (given: Record<number, number>) => minutes.map((minute) => given[minute] ?? 0).join(',');
    const file = await write(
      'azure-2019.csv',
      [
        `HashOwner,HashApp,HashFunction,Trigger,${minutes.join(',')}`,
        `o,a,f,http,${counts({ 1: 2, 3: 1, 1440: 5 })}`,
        `o,a,g,timer,${counts({ 3: 2 })}`,
      ].join('\n'),
    );
    const all = await readAll(options({ file, format: 'azure-2019', takeMs: 86_400_000 }));
    const inMinute = (minute: number) => all.filter((one) => Math.floor(one.atMs / 60_000) === minute - 1);
    assert.equal(all.length, 10);
    assert.equal(inMinute(1).length, 2);
    assert.deepEqual(
      inMinute(3)
        .map((one) => one.functionIndex)
        .sort(),
      [0, 1, 1],
    );
    assert.equal(inMinute(1440).length, 5);
    const part = await readAll(options({ file, format: 'azure-2019', skipMs: 120_000, takeMs: 60_000 }));
    assert.equal(part.length, 3);
    assert.ok(part.every((one) => one.atMs >= 0 && one.atMs < 60_000));
  });

  test('Azure 2021 invocations start their duration before their end, and come in order of start', async () => {
    const rows = ['app,func,end_timestamp,duration', 'a,f,5160.2,0.2', 'b,g,5200.0,100.0', 'a,f,5161.5,0.5'];
    const file = await write('azure-2021.csv.gz', gzipSync(rows.join('\r\n')));
    const all = await readAll(options({ file, format: 'azure-2021' }));
    assert.deepEqual(
      all.map((one) => [Math.round(one.atMs), one.functionIndex, Math.round(one.durationMs)]),
      [
        [0, 1, 100_000],
        [60_000, 0, 200],
        [61_000, 0, 500],
      ],
    );
  });

  test('Huawei 2023 seconds count from the first row, and empty cells are no calls', async () => {
    const file = await write('huawei.csv', 'day,time,28,33\n3,259200,2.0,\n3,259201,,1.0\n3,259202,,\n');
    const all = await readAll(options({ file, format: 'huawei-second', spacing: 'equidistant' }));
    assert.deepEqual(
      all.map((one) => [Math.floor(one.atMs / 1000), one.functionIndex]),
      [
        [0, 0],
        [0, 0],
        [1, 1],
      ],
    );
  });

  test('a file that is missing, lacks a column or holds no numbers is refused by name', async () => {
    const wrong = await write('wrong.csv', 'app,func,end_timestamp\na,b,1\n');
    const text = await write('text.csv', 'app,func,end_timestamp,duration\na,b,soon,1\n');
    for (const [file, message] of [
      [join(directory, 'none.csv'), /ENOENT/],
      [wrong, /lacks columns duration/],
      [text, /end_timestamp holds `soon`/],
    ] as const) {
      await assert.rejects(
        readAll(options({ file, format: 'azure-2021' })),
        (error) => isGatewayError(error, 'invalid_request') && message.test(error.message),
      );
    }
  });
});

describe('replay', () => {
  test('speed divides time, counts stay, and functions are laid over the templates', async () => {
    const file = await write('huawei-fast.csv', 'day,time,0,1,2\n0,0,10,10,10\n0,60,10,10,10\n');
    const source = createTraceSource({
      trace: options({ file, format: 'huawei-minute', speed: 60 }),
      seed: 1,
      targets: 2,
    });
    const block = (await source.next())!;
    assert.equal(block.count, 60);
    assert.equal(await source.next(), null);
    const instants = [...block.atMs.subarray(0, block.count)];
    assert.ok(instants.every((at) => at >= 0 && at < 2_000));
    assert.deepEqual(
      instants,
      instants.toSorted((a, b) => a - b),
    );
    assert.equal(block.target.subarray(0, block.count).filter((target) => target === 1).length, 20);
  });
});

describe('synthetic traces', () => {
  for (const format of traceFormats) {
    test(`${format} has about the rate asked for and repeats for the same seed`, async () => {
      const trace = { format, functions: 20, minutes: 30, invocationsPerMinute: 100, seed: 4 };
      const file = join(directory, `synthetic-${format}.csv`);
      await writeSyntheticTrace(trace, file);
      const all = await readAll(options({ file, format }));
      assert.ok(all.length > 1_000 && all.length < 6_000, `${all.length} invocations`);
      assert.ok(new Set(all.map((one) => one.functionIndex)).size > 5);
      const again = join(directory, `again-${format}.csv`);
      await writeSyntheticTrace(trace, again);
      assert.deepEqual(await readAll(options({ file: again, format })), all);
    });
  }
});
