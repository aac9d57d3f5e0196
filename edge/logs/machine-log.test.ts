import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type LogLine, type MachineId, systemClock } from '../../sdk/index.ts';
import { MachineLog, pruneLogs, readLogs } from './machine-log.ts';

const machine = 'm1' as MachineId;
const everything = { streams: ['stdout', 'stderr'], tail: 100 } as const;

/** A clock whose timers fire when told to. */
function handClock() {
  const due = new Set<() => void>();
  return {
    ...systemClock,
    schedule(_delayMs: number, callback: () => void) {
      due.add(callback);
      return () => void due.delete(callback);
    },
    fire() {
      for (const callback of due) {
        due.delete(callback);
        callback();
      }
    },
    get waiting() {
      return due.size;
    },
  };
}

async function openLog(maxBytes = 1_000_000) {
  const root = await mkdtemp(join(tmpdir(), 'snapgate-logs-'));
  const directory = join(root, 'version');
  const clock = handClock();
  const seen: LogLine[] = [];
  const log = new MachineLog(clock, { directory, machine, maxBytes }, (line) => seen.push(line));
  const texts = async () => (await readLogs(directory, everything)).map((line) => line.text);
  return {
    ...{ log, clock, directory, seen, texts },
    [Symbol.asyncDispose]: () => rm(root, { recursive: true }),
  };
}

test('followers hear a line at once, the disk hears lines together', async () => {
  await using opened = await openLog();
  const { log, clock, seen, texts } = opened;
  log.write('stdout', 'one\ntw');
  log.write('stdout', 'o\n');
  assert.deepEqual(
    seen.map((line) => line.text),
    ['one', 'two'],
  );
  assert.deepEqual([await texts(), clock.waiting], [[], 1]);
  clock.fire();
  await log.flush();
  assert.deepEqual(await texts(), ['one', 'two']);
});

test('a flush and a close write what was gathered, also a line without an end', async () => {
  await using opened = await openLog();
  const { log, clock, texts } = opened;
  log.write('stderr', 'first\n');
  await log.flush();
  assert.deepEqual([await texts(), clock.waiting], [['first'], 0]);
  log.write('stderr', 'last words');
  await log.close();
  assert.deepEqual([await texts(), clock.waiting], [['first', 'last words'], 0]);
});

test('only the newest bytes are kept', async () => {
  await using opened = await openLog(4_000);
  const { log, directory, texts } = opened;
  for (let count = 0; count < 100; count++) {
    log.write('stdout', `line ${count} ${'x'.repeat(100)}\n`);
    await log.flush();
  }
  const kept = await texts();
  assert.ok(kept.length >= 8 && kept.length < 30, `${kept.length} lines are kept`);
  assert.match(kept.at(-1)!, /^line 99 /);
  assert.deepEqual((await readdir(directory)).sort(), ['m1.ndjson', 'm1.ndjson.1']);
});

test('more lines than can wait are dropped and counted, and a lost directory loses only what was gathered', async () => {
  await using opened = await openLog();
  const { log, directory, texts } = opened;
  log.write('stdout', 'x\n'.repeat(1_500));
  assert.equal(log.droppedLines, 500);
  await log.flush();
  await rm(directory, { recursive: true });
  log.write('stdout', 'lost\n');
  await log.flush();
  assert.equal(log.droppedLines, 501);
  log.write('stdout', 'kept\n');
  await log.flush();
  assert.deepEqual(await texts(), ['kept']);
});

test('logs of the dead are pruned to a fixed number, those of the living never', async () => {
  await using opened = await openLog();
  const { directory, clock } = opened;
  for (let count = 0; count < 40; count++) {
    const log = new MachineLog(
      clock,
      { directory, machine: `d${count}` as MachineId, maxBytes: 1000 },
      () => {},
    );
    log.write('stdout', 'said\n');
    await log.close();
  }
  await pruneLogs(directory, (id) => id === 'd0');
  const left = await readdir(directory);
  assert.equal(left.length, 33);
  assert.ok(left.includes('d0.ndjson'));
});
