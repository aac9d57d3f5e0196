import { isAbsolute } from 'node:path';
import { z } from 'zod';

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
});
export type EdgeConfig = z.output<typeof edgeConfigSchema>;

/** Fixed places below the data directory. */
export const dataLayout = (dataDirectory: string) => ({
  images: `${dataDirectory}/images`,
  cache: `${dataDirectory}/cache`,
  versions: `${dataDirectory}/versions`,
  machines: `${dataDirectory}/machines`,
  logs: `${dataDirectory}/logs`,
  node: `${dataDirectory}/node.json`,
  edgeSocket: `${dataDirectory}/edge.sock`,
  state: `${dataDirectory}/state.db`,
  credentials: `${dataDirectory}/credentials.json`,
});
