/** The VMM's stderr: a file in the machine's directory, so that it outlives the edge; kept short while an edge lives. */
import { open, stat, truncate } from 'node:fs/promises';
import { escapeControls } from './text-tail.ts';

const tailBytes = 4 * 1024;
/** A guest can make QEMU complain over and over; past this the file is emptied. The shim's file limit is the backstop. */
const maxFileBytes = 256 * 1024;

/** Last 4 KiB of the file, control characters escaped; empty when there is none. */
export async function stderrTail(path: string): Promise<string> {
  try {
    await using file = await open(path, 'r');
    const { size } = await file.stat();
    const buffer = Buffer.alloc(Math.min(size, tailBytes));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, Math.max(0, size - tailBytes));
    return escapeControls(buffer.toString('utf8', 0, bytesRead)).trim();
  } catch {
    return '';
  }
}

/** Empties the file when it grew too long; the VMM appends, so it goes on at the start. */
export async function boundStderr(path: string): Promise<void> {
  try {
    if ((await stat(path)).size > maxFileBytes) await truncate(path, 0);
  } catch {
    // Gone with its machine.
  }
}
