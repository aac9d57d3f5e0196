/** The unprivileged users that VMMs run as when the edge is root: one each, so that no VMM can touch another. */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import type { MachineId } from '../../../sdk/index.ts';

export interface VmmUser {
  readonly uid: number;
  readonly gid: number;
}

/**
 * Above every range that systemd documents for users, services and containers (its `UIDS-GIDS.md`), below 2^31. The
 * machine's id decides which: there is nothing to allocate, to record or to free.
 */
const firstUid = 0x7000_0000;
const uidBits = 0x0fff_ffff;

/** Whom this machine's VMM runs as. Pure. */
export function userOfMachine(id: MachineId): VmmUser {
  const uid = firstUid + (createHash('sha256').update(id).digest().readUInt32BE(0) & uidBits);
  return { uid, gid: uid };
}

/** Whether we can start the binary as such a user: not when we are not root, and not in every container. */
export async function canSwitchUser(binary: string, user: VmmUser): Promise<boolean> {
  if (process.getuid?.() !== 0) return false;
  return await new Promise((resolve) => {
    const child = spawn(binary, ['--version'], { ...user, cwd: '/', env: {}, stdio: 'ignore' });
    child.once('error', () => resolve(false));
    child.once('exit', (code) => resolve(code === 0));
  });
}
