/** Calls into a guest as they cross between gateway and edge, field by field. */
import { z } from 'zod';
import { terminationSchema } from '../../sdk/index.ts';
import type { FileRow, GuestMetrics, ProcessStatus, WatchEvent } from '../guest/index.ts';
import { machineIdSchema } from './http-wire.ts';

const count = z.int().min(0);
const optionalCount = count.optional();
const user = z.string().max(64).optional();
const path = z.string().max(16_384);
const id = z.string().max(64);
const attributes = z.record(z.string(), z.string()).optional();
const nothing = z.null();

const statusSchema: z.ZodType<ProcessStatus> = z.strictObject({
  id,
  pid: count,
  note: z.string().optional(),
  state: z.enum(['running', 'exited']),
  exitCode: z.int().nullable(),
  signal: z.int().nullable(),
  isTimedOut: z.boolean(),
  isOutOfMemory: z.boolean(),
  isPty: z.boolean().optional(),
  stdoutBytes: optionalCount,
  stderrBytes: optionalCount,
  stdinBytes: optionalCount,
  termination: terminationSchema.optional(),
}) as z.ZodType<ProcessStatus>;

/** A row of a listing. */
export const fileRowSchema = z.strictObject({
  path,
  name: z.string(),
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket', 'device']),
  size: count,
  mode: count,
  uid: count,
  gid: count,
  user: z.string(),
  group: z.string(),
  mtimeMs: z.int(),
  target: z.string().optional(),
  attributes,
}) as z.ZodType<FileRow>;

/** What a watch tells. */
export const watchedSchema: z.ZodType<WatchEvent> = z.strictObject({
  type: z.enum(['create', 'write', 'remove', 'rename', 'chmod', 'overflow']),
  path,
});

const metricsSchema: z.ZodType<GuestMetrics> = z.strictObject({
  memoryTotalBytes: count,
  memoryUsedBytes: count,
  memoryCacheBytes: count,
  diskTotalBytes: count,
  diskUsedBytes: count,
  cpuCount: count,
  cpuUsedPercent: z.number(),
  processCount: count,
});

const specSchema = z.strictObject({
  id,
  argv: z.array(z.string()),
  env: z.record(z.string(), z.string()).optional(),
  cwd: z.string().optional(),
  user,
  stdin: z.boolean().optional(),
  pty: z.strictObject({ cols: z.int(), rows: z.int() }).optional(),
  timeoutMs: z.int().optional(),
  note: z.string().optional(),
});

const call = <A extends z.ZodType, R extends z.ZodType>(args: A, result: R) => ({ args, result });

/** Arguments and result of each call; bytes and rows follow behind. */
export const channelCalls = {
  ping: call(z.strictObject({}), z.strictObject({ version: z.string(), protocol: z.int() })),
  startProcess: call(z.strictObject({ spec: specSchema }), statusSchema),
  listProcesses: call(z.strictObject({}), z.array(statusSchema)),
  processStatus: call(z.strictObject({ id }), statusSchema),
  waitProcess: call(z.strictObject({ id }), statusSchema),
  processOutput: call(
    z.strictObject({
      id,
      stream: z.enum(['stdout', 'stderr', 'pty']),
      offset: z.int().optional(),
      follow: z.boolean().optional(),
    }),
    z.strictObject({ offset: count }),
  ),
  signalProcess: call(z.strictObject({ id, signalNumber: z.int() }), nothing),
  resizeTerminal: call(z.strictObject({ id, cols: z.int(), rows: z.int() }), nothing),
  deleteProcess: call(z.strictObject({ id }), nothing),
  writeStdin: call(
    z.strictObject({ id, offset: count, isLast: z.boolean().optional() }),
    z.strictObject({ offset: count }),
  ),
  writeFile: call(z.strictObject({ path, mode: z.int().optional(), user, attributes }), nothing),
  readFile: call(z.strictObject({ path, user, offset: optionalCount, length: optionalCount }), nothing),
  statFile: call(z.strictObject({ path, user, withAttributes: z.boolean().optional() }), fileRowSchema),
  listFiles: call(
    z.strictObject({ path, user, depth: optionalCount, withAttributes: z.boolean().optional() }),
    nothing,
  ),
  makeDirectory: call(z.strictObject({ path, user, mode: z.int().optional() }), nothing),
  moveFile: call(z.strictObject({ from: path, to: path, user }), nothing),
  deleteFile: call(z.strictObject({ path, user, isRecursive: z.boolean().optional() }), nothing),
  watchFiles: call(z.strictObject({ path, user, isRecursive: z.boolean().optional() }), nothing),
  metrics: call(z.strictObject({}), metricsSchema),
  sync: call(z.strictObject({}), nothing),
} as const;

export type ChannelMethod = keyof typeof channelCalls;
export type ChannelArgs<M extends ChannelMethod> = z.output<(typeof channelCalls)[M]['args']>;
export type ChannelResult<M extends ChannelMethod> = z.output<(typeof channelCalls)[M]['result']>;

const methods = Object.keys(channelCalls) as [ChannelMethod, ...ChannelMethod[]];

/** First frame of a call. */
export const channelHeadSchema = z.strictObject({
  machine: machineIdSchema,
  method: z.enum(methods),
  args: z.unknown(),
  hasBody: z.boolean(),
});

/** First frame of a tunnel. */
export const channelTunnelSchema = z.strictObject({
  machine: machineIdSchema,
  port: z.int().min(0).max(65_535),
});
