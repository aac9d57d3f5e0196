/** What differs between two snapshots: files by what their disks list, processes by what their kernels list. */
import type { SandboxEdge } from '../client/sandbox-port.ts';
import type { FileRow, SandboxChannel } from '../guest/index.ts';
import type { SandboxContext } from './context.ts';
import { lend } from './lending.ts';
import { findSnapshot } from './snapshots.ts';

type Difference = Awaited<ReturnType<SandboxEdge['diff']>>;

/** File systems that the kernel makes up, and what each start of a machine writes anew. */
const skipped = /^\/(proc|sys|dev|run)(\/|$)|^\/etc\/(machine-id|hostname)$/;
const listDepth = 64;
const maxCommandBytes = 4_096;

interface Listing {
  readonly files: ReadonlyMap<string, string>;
  readonly processes: ReadonlyMap<number, string>;
}

/**
 * Starts a short-lived child of each snapshot and lists both. A file counts as changed when its type, size, mode, owner, target or
 * modification time differs; contents are not read. Paths and commands come from the guests.
 */
export async function diffSnapshots(
  context: SandboxContext,
  from: string,
  to: string,
  signal: AbortSignal,
): Promise<Difference> {
  const [before, after] = await Promise.all([
    listing(context, findSnapshot(context, from).id, signal),
    listing(context, findSnapshot(context, to).id, signal),
  ]);
  return { files: compareFiles(before.files, after.files), processes: compareProcesses(before, after) };
}

/** Sorted by path. Pure. */
export function compareFiles(
  before: ReadonlyMap<string, string>,
  after: ReadonlyMap<string, string>,
): Difference['files'] {
  const paths = [...new Set([...before.keys(), ...after.keys()])].sort();
  return paths.flatMap((path) => {
    if (before.get(path) === after.get(path)) return [];
    const change = !before.has(path) ? 'added' : !after.has(path) ? 'removed' : 'changed';
    return [{ path, change } as const];
  });
}

/** A process is the same when its number, start and command are. */
function compareProcesses(before: Listing, after: Listing): Difference['processes'] {
  const only = (one: Listing, other: Listing) =>
    [...one.processes].filter(([pid, key]) => other.processes.get(pid) !== key);
  const row = ([pid, key]: [number, string], change: 'started' | 'ended') => ({
    pid,
    command: key.slice(key.indexOf(' ') + 1),
    change,
  });
  return [
    ...only(after, before).map((one) => row(one, 'started')),
    ...only(before, after).map((one) => row(one, 'ended')),
  ];
}

async function listing(context: SandboxContext, snapshot: string, signal: AbortSignal): Promise<Listing> {
  await using lent = await lend(context, snapshot, signal);
  const machine = await context.restorer.restore(lent.files, { signal });
  try {
    return {
      files: await listFiles(machine.channel, signal),
      processes: await listProcesses(machine.channel, signal),
    };
  } finally {
    await machine.end('diff done');
  }
}

async function listFiles(channel: SandboxChannel, signal: AbortSignal): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  const top = await channel.listFiles('/', { signal });
  for await (const row of top) {
    if (skipped.test(row.path)) continue;
    if (row.type !== 'directory') files.set(row.path, keyOf(row));
    // A directory's time changes with what is in it, which is listed itself.
    else
      for await (const inner of await channel.listFiles(row.path, { signal, depth: listDepth }))
        if (!skipped.test(inner.path)) files.set(inner.path, keyOf(inner));
  }
  return files;
}

const keyOf = ({ type, size, mode, uid, gid, mtimeMs, target }: FileRow) =>
  type === 'directory'
    ? `${type} ${mode} ${uid} ${gid}`
    : `${type} ${size} ${mode} ${uid} ${gid} ${mtimeMs} ${target ?? ''}`;

/** One line a process: its `stat`, a tab, its command. Kernel threads have no command, and the lister leaves itself out. */
const lister = `for d in /proc/[1-9]*; do
  [ "$d" = "/proc/$$" ] && continue
  stat=$(tr '\\n' ' ' < "$d/stat") && command=$(tr '\\0\\n\\t' '   ' < "$d/cmdline") || continue
  [ -n "$command" ] && printf '%s\\t%s\\n' "$stat" "$command"
done 2> /dev/null; true`;
const listerId = 'snapgate-diff';
const maxListBytes = 4 * 2 ** 20;

/** By a shell in the child, since an image need not have `ps`. Processes of the agent's own start are listed too. */
async function listProcesses(channel: SandboxChannel, signal: AbortSignal): Promise<Map<number, string>> {
  await channel.startProcess({ id: listerId, argv: ['/bin/sh', '-c', lister] }, { signal });
  let text = '';
  const output = await channel.processOutput(listerId, 'stdout', { follow: true, signal });
  for await (const chunk of output.setEncoding('utf8')) {
    text += chunk as string;
    if (text.length > maxListBytes) break;
  }
  return parseProcesses(text);
}

/** Keyed by number; the value starts with field 22, when it started, which tells a number that was used again. Pure. */
export function parseProcesses(text: string): Map<number, string> {
  const found = new Map<number, string>();
  for (const line of text.split('\n')) {
    const tab = line.indexOf('\t');
    const stat = line.slice(0, tab);
    const pid = Number.parseInt(stat, 10);
    // The second field is a name in parentheses and may hold anything.
    const startTime = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    if (tab === -1 || !Number.isSafeInteger(pid) || startTime === undefined) continue;
    found.set(pid, `${startTime} ${line.slice(tab + 1, tab + 1 + maxCommandBytes).trim()}`);
  }
  return found;
}
