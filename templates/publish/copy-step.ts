/** Puts a template's files into the guest as a tar stream, with fixed times and the service's user as owner. */
import { posix } from 'node:path';
import { Readable } from 'node:stream';
import type { TemplateDefinition } from '../definition/index.ts';
import { copySourcePath, readCopySource } from './archive/sources.ts';
import { type ArchiveLimits, defaultArchiveLimits, type TreeEntry } from './archive/tree.ts';
import { membersOf, type TarMember, type TarOwner, writeTar } from './archive/write-tar.ts';
import { buildFailed } from './build-error.ts';
import type { GuestSession } from './guest-session.ts';
import type { Progress } from './progress.ts';

/** Ids of the account which owns copied files: the service's user where the guest has it, else root. */
async function ownerIn(session: GuestSession, user: string, timeoutMs: number): Promise<TarOwner> {
  let text = '';
  const exit = await session.step('looking up the user', timeoutMs, (signal) =>
    session.machine.run(['/bin/sh', '-c', 'id -u "$1" && id -g "$1"', 'sh', user], {
      onOutput: (chunk) => {
        text = (text + chunk).slice(0, 256);
      },
      timeoutMs,
      signal,
    }),
  );
  const ids = /^(\d{1,10})\n(\d{1,10})\n$/.exec(text);
  return exit.exitCode === 0 && ids !== null
    ? { uid: Number(ids[1]), gid: Number(ids[2]) }
    : { uid: 0, gid: 0 };
}

/** Where the members of a rule go: a directory of the guest and their names in it. */
function layOut(
  folder: string,
  rule: TemplateDefinition['copy'][number],
  entries: readonly TreeEntry[],
): { readonly directory: string; readonly members: TarMember[] } {
  const from = copySourcePath(rule.from);
  const [first] = entries;
  if (first?.kind === 'file' && first.path === from) {
    const isFolder = rule.to.endsWith('/');
    const name = posix.basename(isFolder ? from : rule.to);
    return {
      directory: isFolder ? rule.to : posix.dirname(rule.to),
      members: membersOf(folder, entries, () => name),
    };
  }
  const prefix = from === '.' ? '' : `${from}/`;
  const below = entries.filter(
    (entry) => entry.path !== from && !(from === '.' && entry.path === 'template.json'),
  );
  return { directory: rule.to, members: membersOf(folder, below, (path) => path.slice(prefix.length)) };
}

// A folder that is new gets the owner; one that was there (such as /etc) keeps its own, and so do links like /bin.
const extractScript = [
  'if [ ! -d "$1" ]; then mkdir -p -- "$1"; chown -- "$2" "$1"; fi',
  'exec tar -x --numeric-owner --no-overwrite-dir --keep-directory-symlink -C "$1" -f -',
].join('\n');

/**
 * Copies what each rule of `copy` names, in order.
 * @param folder the unpacked template
 * @throws GatewayError `build_failed` with tar's output, `invalid_definition` for a source that is not in the folder
 */
export async function copyFiles(
  session: GuestSession,
  folder: string,
  definition: TemplateDefinition,
  progress: Progress,
  timeoutMs: number,
  limits: ArchiveLimits = defaultArchiveLimits,
): Promise<void> {
  const owner = await ownerIn(session, definition.start?.user ?? 'user', timeoutMs);
  for (const [index, rule] of definition.copy.entries()) {
    const field = `copy.${index}`;
    const entries = await readCopySource(folder, rule.from, `${field}.from`, limits);
    const { directory, members } = layOut(folder, rule, entries);
    const stdin = Readable.from(writeTar(members, owner), { objectMode: false });
    try {
      const exit = await session.step(`${field} to ${rule.to}`, timeoutMs, (signal) =>
        session.machine.run(['/bin/sh', '-ec', extractScript, 'sh', directory, `${owner.uid}:${owner.gid}`], {
          stdin,
          timeoutMs,
          signal,
          onOutput: (text) => progress.output(text),
        }),
      );
      if (exit.exitCode !== 0)
        throw buildFailed(`${field}: copying to ${rule.to} failed in the guest`, progress.tail());
    } finally {
      stdin.destroy();
    }
  }
}
