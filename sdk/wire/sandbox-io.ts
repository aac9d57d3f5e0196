/** What goes in and out of a sandbox beside its life: pages of listings, processes, files, and how two snapshots differ. */
import { z } from 'zod';
import { processStatusSchema, sandboxSchema, snapshotSchema } from './sandbox.ts';

/** Headers of the sandbox routes that no function call has. */
export const sandboxHeaderNames = {
  /** Answer of an output stream: position of its first byte in everything the process wrote to that stream. */
  offset: 'x-snapgate-offset',
  /** Answer of an output stream: `true` when bytes between the wanted and the first offset are no longer retained. */
  truncated: 'x-snapgate-truncated',
} as const;

/** One page; `nextToken` names the next, null on the last. Ended sandboxes are listed when their state is asked for. */
export const sandboxPageSchema = z.strictObject({
  items: z.array(sandboxSchema),
  nextToken: z.string().nullable(),
});
export const snapshotListSchema = z.strictObject({ items: z.array(snapshotSchema) });

export type ProcessStatusInfo = z.infer<typeof processStatusSchema>;
export const processListSchema = z.strictObject({ items: z.array(processStatusSchema) });

/** Signal numbers of Linux; 9 also takes descendants that left the process group. */
export const signalProcessRequestSchema = z.strictObject({ signal: z.number().int().min(1).max(64) });
export const terminalSizeSchema = z.strictObject({
  cols: z.number().int().min(1).max(1000),
  rows: z.number().int().min(1).max(1000),
});
export type TerminalSize = z.infer<typeof terminalSizeSchema>;
/** How much of the input the process has taken: where to go on. */
export const stdinAcceptedSchema = z.strictObject({ offset: z.number().int().nonnegative() });

/** An absolute path inside the guest. */
export const guestPathSchema = z
  .string()
  .startsWith('/')
  .max(4096)
  .refine((path) => !path.includes('\0'), 'must hold no NUL');
export const guestUserSchema = z.string().regex(/^[a-z_][a-z0-9_-]{0,31}$/);

/** One directory entry. Its text comes from the guest: never join it to a path of the host unchecked. */
export const fileInfoSchema = z.strictObject({
  path: z.string(),
  name: z.string(),
  type: z.enum(['file', 'directory', 'symlink', 'fifo', 'socket', 'device']),
  size: z.number().describe('bytes'),
  mode: z.number().int().describe('permission bits'),
  uid: z.number().int(),
  gid: z.number().int(),
  user: z.string(),
  group: z.string(),
  mtimeMs: z.number(),
  target: z.string().optional().describe('where a symbolic link points to'),
});
export type FileInfo = z.infer<typeof fileInfoSchema>;
export const makeDirectoryRequestSchema = z.strictObject({
  path: guestPathSchema,
  mode: z.number().int().min(0).max(0o7777).optional(),
  user: guestUserSchema.optional(),
});
export const moveFileRequestSchema = z.strictObject({
  from: guestPathSchema,
  to: guestPathSchema,
  user: guestUserSchema.optional(),
});
/** `started` comes first: what happens after it is seen. After `overflow` events were lost: look again. */
export const watchEventSchema = z.strictObject({
  type: z.enum(['started', 'create', 'write', 'remove', 'rename', 'chmod', 'overflow']),
  path: z.string(),
});
export type FileWatchEvent = z.infer<typeof watchEventSchema>;

export const pinRequestSchema = z.strictObject({ isPinned: z.boolean() });
export const snapshotDiffSchema = z.strictObject({
  files: z.array(z.strictObject({ path: z.string(), change: z.enum(['added', 'changed', 'removed']) })),
  processes: z.array(
    z.strictObject({
      pid: z.number().int(),
      command: z.string(),
      change: z.enum(['started', 'ended']),
    }),
  ),
});
export type SnapshotDiff = z.infer<typeof snapshotDiffSchema>;
