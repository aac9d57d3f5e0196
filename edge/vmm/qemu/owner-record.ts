/**
 * The owner record of a machine: `owner.json` in its directory. It is written before the VMM is started (intent, no
 * process yet) and again with the process, so that whatever instant an edge dies at, the next one finds all there is.
 */
import { readFile, rename, writeFile } from 'node:fs/promises';
import { z } from 'zod';
import { GatewayError, isMachineId } from '../../../sdk/index.ts';

const ownerRecordSchema = z.strictObject({
  format: z.literal(1),
  id: z.string().refine(isMachineId),
  generation: z.string().regex(/^[a-z0-9]{12}$/),
  /** Epoch milliseconds. */
  createdAt: z.number().nonnegative(),
  /** Boot of the host in which the process was started; after a reboot pids mean nothing. */
  bootId: z.string().max(64),
  process: z.strictObject({ pid: z.int().positive(), startTime: z.int().nonnegative() }).nullable(),
  memoryPath: z.string().max(4096),
  note: z.unknown(),
});
export type OwnerRecord = Readonly<z.infer<typeof ownerRecordSchema>>;

/** Most bytes of JSON in a note. */
const maxNoteBytes = 16 * 1024;
const maxRecordBytes = 64 * 1024;

/** Writes or replaces the record in one step. Throws `invalid_request` for a note that is too long. */
export async function writeOwnerRecord(path: string, record: OwnerRecord): Promise<void> {
  const note = JSON.stringify(record.note ?? null);
  if (Buffer.byteLength(note) > maxNoteBytes)
    throw new GatewayError('invalid_request', `the note of a machine is longer than ${maxNoteBytes} bytes`, {
      component: 'edge',
      field: 'note',
    });
  const draft = `${path}.new`;
  await writeFile(draft, JSON.stringify({ ...record, note: record.note ?? null }), { mode: 0o600 });
  await rename(draft, path);
}

/** The record; null when it is missing, half-written, or not one of ours. */
export async function readOwnerRecord(path: string): Promise<OwnerRecord | null> {
  try {
    const text = await readFile(path, 'utf8');
    if (text.length > maxRecordBytes) return null;
    const parsed = ownerRecordSchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : null;
  } catch {
    return null;
  }
}

/** Identity of this boot of the host. */
export async function hostBootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8')).trim();
}
