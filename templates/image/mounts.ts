import { readFile } from 'node:fs/promises';
import { runCommand } from './command.ts';
import { buildEnvironment } from './debian.ts';

const unmountTimeoutMs = 10_000;

/** Mount points of this process, deepest and latest last. Empty where /proc is not to be had. */
export async function readMountPoints(): Promise<string[]> {
  const text = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '');
  return parseMountPoints(text);
}

/** Field 5 of each line; blanks in a path are octal escapes (proc(5)). */
export function parseMountPoints(mountinfo: string): string[] {
  return mountinfo
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((path) => path !== '')
    .map((path) =>
      path.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8))),
    );
}

/**
 * Unmounts what is mounted below a directory, so that removing it removes nothing else. Only a build that was killed in
 * a chroot, where mounts cannot be kept apart, leaves any.
 */
export async function unmountBelow(directory: string): Promise<void> {
  const below = (await readMountPoints()).filter((path) => path.startsWith(`${directory}/`));
  const options = { signal: AbortSignal.timeout(unmountTimeoutMs), env: buildEnvironment };
  for (const path of below.reverse()) await runCommand('umount', ['--lazy', path], options);
}
