/**
 * Empty, formatted scratch disks for booting templates: one compact qcow2 of each size, made once, copied for each boot.
 * A copy (1.3 MB for 1 GiB) rather than an overlay, so that a template's frozen layer stands on its own.
 */
import { execFile } from 'node:child_process';
import { chmod, constants, copyFile, mkdir, mkdtemp, open, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { GatewayError } from '../../sdk/index.ts';

const run = promisify(execFile);
/** Changes with the options below: disks made with others are left alone and not used. */
const recipe = 'ext4-1';
/**
 * No journal: the disk is captured at the same instant as the memory and never outlives it, so there is nothing to
 * replay, and a journal would cost every clone private blocks. Inode tables are zeroed now (they stay holes) rather than
 * by a kernel thread in each guest. No reserve for root, no periodic check.
 */
const formatOptions = ['-q', '-F', '-m', '0', '-O', '^has_journal', '-E', 'lazy_itable_init=0'];
const toolTimeoutMs = 60_000;

export interface ScratchDisks {
  /**
   * Creates an empty, formatted disk at `path` (must not exist). Throws `disk_full`, `host_not_ready` (a tool is missing),
   * `internal`.
   */
  create(path: string, diskMiB: number, options: { readonly signal: AbortSignal }): Promise<void>;
}

/** @param cacheDirectory created when missing; holds one file a size */
export function createScratchDisks(cacheDirectory: string): ScratchDisks {
  const pending = new Map<number, Promise<string>>();

  async function make(diskMiB: number, path: string): Promise<string> {
    await mkdir(cacheDirectory, { recursive: true, mode: 0o700 });
    const work = await mkdtemp(join(cacheDirectory, '.making-'));
    try {
      const raw = join(work, 'disk.raw');
      const image = join(work, 'disk.qcow2');
      await using file = await open(raw, 'wx', 0o600);
      await file.truncate(diskMiB * 2 ** 20);
      await tool('mkfs.ext4', [...formatOptions, raw]);
      await tool('qemu-img', ['convert', '-f', 'raw', '-O', 'qcow2', raw, image]);
      await chmod(image, 0o600);
      await rename(image, path);
      return path;
    } finally {
      await rm(work, { recursive: true, force: true });
    }
  }

  async function formatted(diskMiB: number): Promise<string> {
    const path = join(cacheDirectory, `${recipe}-${diskMiB}.qcow2`);
    const exists = await stat(path).then(
      (found) => found.isFile(),
      () => false,
    );
    return exists ? path : make(diskMiB, path);
  }

  return {
    async create(path, diskMiB, { signal }) {
      signal.throwIfAborted();
      if (!Number.isInteger(diskMiB) || diskMiB < 8 || diskMiB > 4 * 2 ** 20)
        throw new GatewayError('invalid_request', 'a scratch disk has between 8 MiB and 4 TiB', {
          component: 'edge',
          field: 'diskMiB',
        });
      const making = pending.get(diskMiB) ?? formatted(diskMiB).finally(() => pending.delete(diskMiB));
      pending.set(diskMiB, making);
      try {
        await copyFile(await making, path, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
      } catch (cause) {
        if ((cause as NodeJS.ErrnoException).code !== 'EEXIST') await rm(path, { force: true });
        throw toDiskError(cause);
      }
    },
  };
}

async function tool(command: string, args: string[]): Promise<void> {
  await run(command, args, {
    timeout: toolTimeoutMs,
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' },
  });
}

function toDiskError(cause: unknown): unknown {
  if (cause instanceof GatewayError) return cause;
  const { code, stderr, path } = cause as { code?: unknown; stderr?: unknown; path?: unknown };
  const details = { component: 'edge', cause, output: String(stderr ?? '').slice(-2048) } as const;
  if (code === 'ENOSPC' || /no space left/i.test(details.output))
    return new GatewayError(
      'disk_full',
      'could not make a scratch disk: no space left on the device',
      details,
    );
  if (code === 'ENOENT' && (path === 'mkfs.ext4' || path === 'qemu-img'))
    return new GatewayError('host_not_ready', `${path} is not installed`, details);
  return new GatewayError('internal', 'could not make a scratch disk', details);
}
