import type { HostProbes } from './probes.ts';
import type { DoctorCheck } from './report.ts';

const gib = 2 ** 30;
/** A base system, three roots and a few snapshots take about 2 GiB; more templates take more. */
const disk = { failBelow: 2 * gib, warnBelow: 10 * gib };
/** The examples' pools hold half a dozen machines of 256 MiB, of which each changes only a part. */
const memory = { failBelow: 0.75 * gib, warnBelow: 2 * gib };
/** `<data>/machines/<id>/vmm/…` must fit into the 107 bytes of a unix socket's path. */
const dataPathBytes = 60;
/** Each machine holds about a dozen files and sockets open in the edge. */
const openFiles = 4096;

const inGib = (bytes: number): string => `${(bytes / gib).toFixed(1)} GiB`;

/** Room for images and snapshots. */
export async function checkDisk(probes: HostProbes, dataDirectory: string): Promise<DoctorCheck> {
  const base = { id: 'disk-space', title: 'Disk space' };
  const space = await probes.diskSpace(dataDirectory);
  if (space === null)
    return { ...base, status: 'warn', detail: `How much is free at ${dataDirectory} is not known.` };
  const { freeBytes, totalBytes } = space;
  const status = freeBytes < disk.failBelow ? 'fail' : freeBytes < disk.warnBelow ? 'warn' : 'ok';
  const wanted = status === 'ok' ? '' : `; ${inGib(disk.warnBelow)} leave room for some templates`;
  return {
    ...base,
    status,
    detail: `${inGib(freeBytes)} of ${inGib(totalBytes)} free at ${dataDirectory}${wanted}`,
  };
}

/** Where everything is kept: it must be ours to write, and its path short. */
export async function checkDataDirectory(probes: HostProbes, dataDirectory: string): Promise<DoctorCheck> {
  const base = { id: 'data-directory', title: 'Data directory' };
  const bytes = Buffer.byteLength(dataDirectory);
  if (bytes > dataPathBytes) {
    return {
      ...base,
      status: 'fail',
      detail: `${dataDirectory} is ${bytes} bytes long; unix sockets below it allow ${dataPathBytes}.`,
      fix: 'export SNAPGATE_DATA=/var/lib/snapgate',
    };
  }
  if (await probes.canAccess(dataDirectory, 'write')) {
    return { ...base, status: 'ok', detail: `${dataDirectory} is writable, or can be made.` };
  }
  return {
    ...base,
    status: 'fail',
    detail: `${dataDirectory} is not writable for this user.`,
    fix: `sudo install --directory --owner="$USER" ${quoted(dataDirectory)}`,
  };
}

/** Memory for machines; swap is told of because it may put guests' memory on a disk. */
export async function checkMemory(probes: HostProbes): Promise<DoctorCheck[]> {
  const text = (await probes.readText('/proc/meminfo')) ?? '';
  const bytes = (name: string): number | null => {
    const match = new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(text);
    return match === null ? null : Number(match[1]) * 1024;
  };
  const available = bytes('MemAvailable');
  const total = bytes('MemTotal');
  const swap = bytes('SwapTotal');
  const base = { id: 'memory', title: 'Memory' };
  const room: DoctorCheck =
    available === null || total === null
      ? { ...base, status: 'warn', detail: 'How much memory is available is not known.' }
      : {
          ...base,
          status: available < memory.failBelow ? 'fail' : available < memory.warnBelow ? 'warn' : 'ok',
          detail: `${inGib(available)} of ${inGib(total)} available`,
        };
  const swapCheck: DoctorCheck = {
    id: 'swap',
    title: 'Swap',
    ...(swap !== null && swap > 0
      ? {
          status: 'warn',
          detail: `${inGib(swap)}: guests' memory may end up on its disk.`,
          fix: 'sudo swapoff --all',
        }
      : { status: 'ok', detail: "Off, so that guests' memory stays in memory." }),
  };
  return [room, swapCheck];
}

/** How many files and sockets this process may have open. */
export async function checkOpenFiles(probes: HostProbes): Promise<DoctorCheck> {
  const base = { id: 'open-files', title: 'Open files' };
  const limits = (await probes.readText('/proc/self/limits')) ?? '';
  const match = /^Max open files\s+(\d+|unlimited)\s+(\d+|unlimited)/m.exec(limits);
  if (match === null) return { ...base, status: 'warn', detail: 'The limit is not known.' };
  const [, soft, hard] = match;
  const isEnough = soft === 'unlimited' || Number(soft) >= openFiles;
  return {
    ...base,
    status: isEnough ? 'ok' : 'warn',
    detail: `at most ${soft} (may be raised to ${hard})${isEnough ? '' : `; ${openFiles} are enough for some hundred machines`}`,
    ...(isEnough
      ? {}
      : { fix: `ulimit -n ${hard === 'unlimited' ? 65_536 : Math.min(Number(hard), 65_536)}` }),
  };
}

const quoted = (path: string): string =>
  /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
