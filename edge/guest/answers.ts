/** What the agent answers, checked strictly: it comes from inside the guest. */
import { z } from 'zod';
import { GatewayError } from '../../sdk/index.ts';
import type { FileRow, GuestMetrics, ProcessStatus, WatchEvent } from './port.ts';

const count = z.int().min(0);
const text = (length: number) => z.string().max(length);

const pingSchema = z.strictObject({
  version: text(64),
  protocol: z.int(),
  uptimeMs: count,
  wallClockMs: z.int(),
});

const resumeSchema = z.strictObject({ wallClockMs: z.int() });

const statusSchema = z.strictObject({
  id: text(64),
  pid: count,
  state: z.enum(['running', 'exited']),
  exitCode: z.int().nullable(),
  signal: z.int().nullable(),
  timedOut: z.boolean(),
  outOfMemory: z.boolean(),
  isPty: z.boolean(),
  stdoutBytes: count,
  stderrBytes: count,
  stdinBytes: count,
  note: text(4096).optional(),
});

const metricsSchema = z.strictObject({
  memoryTotalBytes: count,
  memoryUsedBytes: count,
  memoryCacheBytes: count,
  diskTotalBytes: count,
  diskUsedBytes: count,
  cpuCount: z.int().min(1).max(4096),
  cpuUsedPercent: z.number().min(0),
  processCount: count,
});

const stdinSchema = z.strictObject({ offset: count });

/** Special files and odd clocks have values beyond what a number holds exactly: they are told as the nearest that it does. */
const bounded = z
  .number()
  .transform((value) => Math.min(Number.MAX_SAFE_INTEGER, Math.max(Number.MIN_SAFE_INTEGER, value)))
  .pipe(z.int());

const rowSchema = z.strictObject({
  path: text(16_384),
  name: text(4_096),
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket', 'device']),
  size: bounded.pipe(count),
  mode: z.int().min(0).max(0o7777),
  uid: count,
  gid: count,
  user: text(64),
  group: text(64),
  mtimeMs: bounded,
  target: text(16_384).optional(),
  attributes: z.record(text(1024), text(16_384)).optional(),
});

const eventSchema = z.strictObject({
  type: z.enum(['create', 'write', 'remove', 'rename', 'chmod', 'overflow']),
  path: text(16_384),
});

function check<T>(schema: z.ZodType<T>, value: unknown): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new GatewayError('guest_unreachable', 'the guest answered something that is not our protocol', {
    component: 'guest',
    cause: result.error,
  });
}

/** Digits only: `Number` takes much else. */
const offsetSchema = z
  .string()
  .regex(/^\d{1,15}$/)
  .transform(Number);

/** Each function throws `guest_unreachable` when the value is not exactly what PROTOCOL.md promises. */
export const answers = {
  /** @param wanted first byte that was asked for: an earlier one would be counted twice */
  outputOffset: (value: unknown, wanted: number) => check(offsetSchema.pipe(count.min(wanted)), value),
  ping: (value: unknown) => check(pingSchema, value),
  resume: (value: unknown) => check(resumeSchema, value),
  metrics: (value: unknown): GuestMetrics => check(metricsSchema, value),
  stdin: (value: unknown) => check(stdinSchema, value),
  row: (value: unknown): FileRow => check(rowSchema, value) as FileRow,
  event: (value: unknown): WatchEvent => check(eventSchema, value),
  status: (value: unknown): ProcessStatus => toStatus(check(statusSchema, value)),
  statuses: (value: unknown): ProcessStatus[] => check(z.array(statusSchema).max(256), value).map(toStatus),
};

function toStatus(value: z.infer<typeof statusSchema>): ProcessStatus {
  const { timedOut, outOfMemory, ...rest } = value;
  return { ...rest, isTimedOut: timedOut, isOutOfMemory: outOfMemory };
}
