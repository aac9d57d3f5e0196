import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createRandom, type Random } from '../schedule/random.ts';
import type { TraceFormat } from './options.ts';

/** What a synthetic trace is like. It has the columns of the public files, and none of their data. */
export interface SyntheticTrace {
  readonly format: TraceFormat;
  readonly functions: number;
  readonly minutes: number;
  /** Of all functions together, on average. */
  readonly invocationsPerMinute: number;
  readonly seed: number;
}

interface SyntheticFunction {
  readonly owner: string;
  readonly app: string;
  readonly name: string;
  readonly trigger: 'http' | 'timer' | 'queue';
  /** Mean invocations a minute. */
  readonly rate: number;
  /** Median duration, seconds; single durations are log-normal around it. */
  readonly medianS: number;
  readonly counts: Uint32Array;
}

/**
 * Writes a trace with what the papers on the public ones describe: popularity after Zipf (few hot functions, a long
 * tail), a third of the functions on timers, HTTP with a daily swing, queues in bursts, log-normal durations.
 */
export async function writeSyntheticTrace(trace: SyntheticTrace, path: string): Promise<void> {
  await pipeline(Readable.from(linesOf(trace)), createWriteStream(path));
}

function linesOf(trace: SyntheticTrace): Generator<string> {
  const functions = drawFunctions(trace);
  switch (trace.format) {
    case 'azure-2019':
      return azure2019Lines(trace, functions);
    case 'azure-2021':
      return eventLines(trace, functions, 'app,func,end_timestamp,duration', (fn, startS, durationS) =>
        [fn.app, fn.name, startS + durationS, durationS.toFixed(3)].join(','),
      );
    case 'huawei-request':
      return eventLines(
        trace,
        functions,
        'time_worker,requestID,funcName,userID,totalCost_worker',
        (fn, startS, durationS, index) =>
          [startS, `r${index}`, fn.name, fn.owner, durationS.toFixed(6)].join(','),
      );
    case 'huawei-minute':
      return huaweiLines(trace, functions, 1);
    case 'huawei-second':
      return huaweiLines(trace, functions, 60);
  }
}

function drawFunctions(trace: SyntheticTrace): SyntheticFunction[] {
  const random = createRandom(trace.seed, 'synthetic-functions');
  const weights = Array.from({ length: trace.functions }, (_, rank) => 1 / (rank + 1) ** 1.1);
  const whole = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight, rank) => {
    const trigger = (['http', 'timer', 'queue'] as const)[rank % 3]!;
    const rate = (trace.invocationsPerMinute * weight) / whole;
    return {
      owner: `o${random.below(1 + trace.functions / 4)}`,
      app: `a${random.below(1 + trace.functions / 2)}`,
      name: `f${rank}`,
      trigger,
      rate,
      medianS: 0.05 * Math.exp(gaussian(random)),
      counts: drawCounts(trigger, rate, trace.minutes, createRandom(trace.seed, `synthetic-${rank}`)),
    };
  });
}

function drawCounts(
  trigger: SyntheticFunction['trigger'],
  rate: number,
  minutes: number,
  random: Random,
): Uint32Array {
  const counts = new Uint32Array(minutes);
  const periodMinutes = Math.max(1, Math.round(1 / Math.max(rate, 1 / 1440)));
  const phase = random.below(periodMinutes);
  let isBurst = false;
  for (let minute = 0; minute < minutes; minute++) {
    if (trigger === 'timer') {
      if (minute % periodMinutes === phase) counts[minute] = Math.max(1, Math.round(rate));
      continue;
    }
    // Queues are idle three quarters of the time, in spells of some minutes.
    if (trigger === 'queue' && random.uniform() < 0.2) isBurst = random.uniform() < 0.25;
    const swing =
      trigger === 'http'
        ? 1 - 0.6 * Math.cos((2 * Math.PI * minute) / Math.max(60, Math.min(1440, minutes)))
        : isBurst
          ? 4
          : 0;
    counts[minute] = poisson(rate * swing, random);
  }
  return counts;
}

function* azure2019Lines(trace: SyntheticTrace, functions: readonly SyntheticFunction[]): Generator<string> {
  const minutes = Array.from({ length: 1440 }, (_, minute) => minute);
  yield `HashOwner,HashApp,HashFunction,Trigger,${minutes.map((minute) => minute + 1).join(',')}\n`;
  for (const fn of functions) {
    const counts = minutes.map((minute) => (minute < trace.minutes ? fn.counts[minute] : 0));
    yield `${fn.owner},${fn.app},${fn.name},${fn.trigger},${counts.join(',')}\n`;
  }
}

function* huaweiLines(
  trace: SyntheticTrace,
  functions: readonly SyntheticFunction[],
  perMinute: 1 | 60,
): Generator<string> {
  const random = createRandom(trace.seed, 'synthetic-seconds');
  yield `day,time,${functions.map((_, index) => index).join(',')}\n`;
  for (let minute = 0; minute < trace.minutes; minute++) {
    const rows = functions.map((fn) => spreadCount(fn.counts[minute]!, perMinute, random));
    for (let part = 0; part < perMinute; part++) {
      const time = minute * 60 + (perMinute === 60 ? part : 0);
      yield `${Math.floor(minute / 1440)},${time},${rows.map((row) => (row[part] === 0 ? '' : `${row[part]}.0`)).join(',')}\n`;
    }
  }
}

function* eventLines(
  trace: SyntheticTrace,
  functions: readonly SyntheticFunction[],
  header: string,
  format: (fn: SyntheticFunction, startS: number, durationS: number, index: number) => string,
): Generator<string> {
  const random = createRandom(trace.seed, 'synthetic-events');
  yield `${header}\n`;
  let index = 0;
  for (let minute = 0; minute < trace.minutes; minute++) {
    for (const fn of functions) {
      for (let call = 0; call < fn.counts[minute]!; call++) {
        const startS = minute * 60 + random.uniform() * 60;
        yield `${format(fn, startS, fn.medianS * Math.exp(gaussian(random) * 0.5), index++)}\n`;
      }
    }
  }
}

function spreadCount(count: number, parts: number, random: Random): number[] {
  const row = new Array<number>(parts).fill(0);
  for (let call = 0; call < count; call++) row[random.below(parts)]! += 1;
  return row;
}

/** Box and Muller's transform of two uniform numbers. */
const gaussian = (random: Random): number =>
  Math.sqrt(-2 * Math.log(1 - random.uniform())) * Math.cos(2 * Math.PI * random.uniform());

/** By counting exponential gaps for small means, by the normal approximation for large ones. */
function poisson(mean: number, random: Random): number {
  if (mean > 200) return Math.max(0, Math.round(mean + Math.sqrt(mean) * gaussian(random)));
  let count = 0;
  for (let sum = random.exponential(); sum < mean; sum += random.exponential()) count += 1;
  return count;
}
