import { z } from 'zod';

/** Trace formats that can be read. */
export const traceFormats = [
  'azure-2019',
  'azure-2021',
  'huawei-minute',
  'huawei-second',
  'huawei-request',
] as const;
export type TraceFormat = (typeof traceFormats)[number];

/** Which part of a trace file is replayed, how fast, and onto which templates. */
export const traceOptionsSchema = z.strictObject({
  file: z.string().min(1),
  format: z.enum(traceFormats),
  /** Trace time that passes in one second of the run: 60 replays an hour in a minute. Counts are kept. */
  speed: z.number().positive().max(100_000).default(1),
  /** Keeps each invocation with this chance (seeded), to fit a large trace onto a small machine. */
  sample: z.number().positive().max(1).default(1),
  /** Leaves out what comes before, in trace time. */
  skipMs: z.number().min(0).default(0),
  /** Stops after this much trace time. */
  takeMs: z.number().positive().default(3_600_000),
  /** How invocations are placed within a minute or second of counts. */
  spacing: z.enum(['uniform', 'poisson', 'equidistant']).default('poisson'),
});
export type TraceOptions = z.output<typeof traceOptionsSchema>;
