import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { HostProbes } from './probes.ts';
import type { DoctorCheck } from './report.ts';

const listSchema = z.array(
  z.strictObject({ package: z.string(), program: z.string().nullable(), purpose: z.string() }),
);

/** A Debian package that Snapgate needs, the program for which it is needed (if it is one), and what for. */
export type NeededPackage = z.infer<typeof listSchema>[number];

/** The list which `scripts/bootstrap.mjs` installs from too. */
export async function readNeededPackages(): Promise<readonly NeededPackage[]> {
  return listSchema.parse(JSON.parse(await readFile(join(import.meta.dirname, 'packages.json'), 'utf8')));
}

/** Puts `sudo` before a command for readers who are not root. */
export const asRoot = (probes: Pick<HostProbes, 'uid'>, command: string): string =>
  probes.uid === 0 ? command : `sudo ${command}`;

/** One check for each package: by dpkg where there is one, else by the program on the path. */
export async function checkPackages(
  probes: HostProbes,
  needed: readonly NeededPackage[],
): Promise<DoctorCheck[]> {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: dpkg's own placeholders
  const format = '--showformat=${Package} ${db:Status-Abbrev} ${Version}\\n';
  const query = await probes.run('dpkg-query', ['--show', format, ...needed.map((entry) => entry.package)]);
  if (query === null) return Promise.all(needed.map((entry) => checkProgram(probes, entry)));
  const versions = new Map<string, string>();
  for (const line of query.output.split('\n')) {
    const [name, status, version] = line.split(/ +/);
    if (name !== undefined && version !== undefined && status?.startsWith('ii')) versions.set(name, version);
  }
  return needed.map((entry) => {
    const version = versions.get(entry.package);
    if (version !== undefined) return found(entry, version);
    const install = `apt-get install --yes --no-install-recommends ${entry.package}`;
    return missing(entry, 'is not installed', asRoot(probes, install));
  });
}

async function checkProgram(probes: HostProbes, entry: NeededPackage): Promise<DoctorCheck> {
  if (entry.program === null) {
    return {
      id: `package-${entry.package}`,
      title: entry.package,
      status: 'warn',
      detail: `This host has no dpkg, so see yourself that it has what Debian calls ${entry.package}: it ${entry.purpose}.`,
    };
  }
  const answer = await probes.run(entry.program, ['--version']);
  if (answer === null) return missing(entry, `provides ${entry.program}, which is not on the path`);
  return found(entry, answer.output.split('\n', 1)[0] ?? '');
}

const found = (entry: NeededPackage, version: string): DoctorCheck => ({
  id: `package-${entry.package}`,
  title: entry.package,
  status: 'ok',
  detail: `${version}; ${entry.purpose}`,
});

const missing = (entry: NeededPackage, what: string, fix?: string): DoctorCheck => ({
  id: `package-${entry.package}`,
  title: entry.package,
  status: 'fail',
  detail: `${entry.package} ${what}; it ${entry.purpose}`,
  ...(fix === undefined ? {} : { fix }),
});
