import { readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { CliContext } from './context.ts';

type Place = Pick<CliContext, 'env' | 'workingDirectory' | 'homeDirectory' | 'userId'>;

/**
 * Where files of a node on this machine are looked for, likeliest first: `SNAPGATE_DATA` alone when it is set;
 * otherwise `.snapgate` of the checkout that the working directory is in, then the place of an installation.
 */
export function dataDirectories(place: Place): readonly [string, ...string[]] {
  const { env, workingDirectory, homeDirectory, userId } = place;
  if (env.SNAPGATE_DATA) return [resolve(workingDirectory, env.SNAPGATE_DATA)];
  const installed =
    userId === 0
      ? '/var/lib/snapgate'
      : join(env.XDG_DATA_HOME || join(homeDirectory, '.local', 'share'), 'snapgate');
  const checkout = checkoutAround(workingDirectory);
  return checkout === null ? [installed] : [join(checkout, '.snapgate'), installed];
}

/** The nearest folder upwards whose `package.json` is Snapgate's own. */
function checkoutAround(start: string): string | null {
  for (let folder = resolve(start); ; folder = dirname(folder)) {
    if (packageName(join(folder, 'package.json')) === 'snapgate') return folder;
    if (folder === dirname(folder)) return null;
  }
}

function packageName(path: string): unknown {
  try {
    return (JSON.parse(readFileSync(path, 'utf8')) as { name?: unknown } | null)?.name;
  } catch {
    return null;
  }
}
