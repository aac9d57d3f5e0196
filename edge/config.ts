import { isAbsolute } from 'node:path';
import { z } from 'zod';
import { networkConfigSchema } from './network/index.ts';

/** Settings of one edge. Unknown keys are errors; the command line and `up` fill it. */
export const edgeConfigSchema = z.strictObject({
  dataDirectory: z
    .string()
    .refine(isAbsolute, 'must be an absolute path')
    // A unix socket path holds 107 bytes, and ours end in /machines/<20>/agent.sock.
    .refine(
      (path) => Buffer.byteLength(path) <= 60,
      'must be at most 60 bytes long, because unix socket paths are short',
    )
    .describe('where images, snapshots and machines are kept'),
  maxMachines: z
    .number()
    .int()
    .min(1)
    .max(10_000)
    .default(64)
    .describe('VMMs this node may hold, blanks included'),
  memoryReserveMiB: z
    .number()
    .int()
    .min(0)
    .max(2 ** 22)
    .default(512)
    .describe('memory of the host kept for the growth of machines that serve; below it none is made'),
  concurrentRestores: z
    .number()
    .int()
    .min(1)
    .max(64)
    .default(2)
    .describe('restores under way at once on this node'),
  accelerator: z.enum(['auto', 'kvm', 'tcg']).default('auto').describe('auto decides by a probe boot'),
  logBytes: z
    .number()
    .int()
    .min(4096)
    .default(1024 * 1024)
    .describe('bytes kept of the output of each machine'),
  forkBlanks: z
    .number()
    .int()
    .min(0)
    .max(256)
    .default(1)
    .describe('VMMs that wait for the next child of what was forked or resumed lately'),
  snapshotsPerSandbox: z
    .number()
    .int()
    .min(1)
    .max(10_000)
    .default(32)
    .describe('snapshots kept of each sandbox beside its pinned ones; the oldest go first'),
  snapshotBytes: z
    .number()
    .int()
    .min(2 ** 20)
    .default(32 * 2 ** 30)
    .describe('bytes kept of all snapshots of sandboxes; the oldest that are not pinned go first'),
  network: networkConfigSchema
    .optional()
    .describe('network rules; default: network.json in the data directory'),
});
export type EdgeConfig = z.output<typeof edgeConfigSchema>;

/** Fixed places below the data directory. */
export const dataLayout = (dataDirectory: string) => ({
  images: `${dataDirectory}/images`,
  cache: `${dataDirectory}/cache`,
  versions: `${dataDirectory}/versions`,
  machines: `${dataDirectory}/machines`,
  logs: `${dataDirectory}/logs`,
  snapshots: `${dataDirectory}/snapshots`,
  bases: `${dataDirectory}/bases`,
  sandboxes: `${dataDirectory}/sandboxes.db`,
  sandboxSecret: `${dataDirectory}/sandbox-secret`,
  node: `${dataDirectory}/node.json`,
  network: `${dataDirectory}/network.json`,
  edgeSocket: `${dataDirectory}/edge.sock`,
  state: `${dataDirectory}/state.db`,
  credentials: `${dataDirectory}/credentials.json`,
});
