import { checkCgroups, checkNetworkRules, checkNode } from './kernel-features.ts';
import { checkPackages, type NeededPackage, readNeededPackages } from './packages.ts';
import { checkKvm, checkPagemap, checkPrivileges } from './privileges.ts';
import type { HostProbes } from './probes.ts';
import { type DoctorCheck, type DoctorReport, toReport } from './report.ts';
import { checkDataDirectory, checkDisk, checkMemory, checkOpenFiles } from './resources.ts';

/** A check that somebody else brings, such as the accelerator's verdict. */
export interface ExtraCheck {
  /** Names it in the report when it throws. */
  readonly id: string;
  readonly title: string;
  run(options: { readonly signal: AbortSignal }): Promise<DoctorCheck>;
}

export interface DoctorDeps {
  readonly probes: HostProbes;
  /** Default: the list that the bootstrap installs from. */
  readonly packages?: readonly NeededPackage[];
  /** Reported after the doctor's own checks, in this order. */
  readonly extraChecks?: readonly ExtraCheck[];
}

export interface DoctorOptions {
  /** Absolute; need not exist yet. */
  readonly dataDirectory: string;
  /** Programs of ours that have to be compiled: what each is, and where. */
  readonly nativeParts: readonly { readonly title: string; readonly path: string }[];
  /** Cuts extra checks short; the doctor's own are bounded by themselves. */
  readonly signal: AbortSignal;
}

/**
 * Checks everything a host needs and changes nothing. Never rejects: a check that breaks is reported as failed, since a
 * reader with a broken host needs the rest of the report most.
 */
export async function runDoctor(deps: DoctorDeps, options: DoctorOptions): Promise<DoctorReport> {
  const { probes } = deps;
  const groups: [id: string, title: string, check: () => Promise<DoctorCheck | DoctorCheck[]>][] = [
    [
      'packages',
      'Packages',
      async () => checkPackages(probes, deps.packages ?? (await readNeededPackages())),
    ],
    ['node', 'Node', async () => checkNode(probes)],
    ['native-parts', 'Compiled parts', () => checkNativeParts(probes, options)],
    ['privileges', 'Privileges', () => checkPrivileges(probes)],
    ['kvm', '/dev/kvm', () => checkKvm(probes)],
    ['data-directory', 'Data directory', () => checkDataDirectory(probes, options.dataDirectory)],
    ['disk-space', 'Disk space', () => checkDisk(probes, options.dataDirectory)],
    ['memory', 'Memory', () => checkMemory(probes)],
    ['open-files', 'Open files', () => checkOpenFiles(probes)],
    ['pagemap', 'Page maps', () => checkPagemap(probes)],
    ['cgroups', 'Control groups', () => checkCgroups(probes)],
    ['network-rules', 'Network rules', () => checkNetworkRules(probes)],
    ...(deps.extraChecks ?? []).map((extra): [string, string, () => Promise<DoctorCheck>] => [
      extra.id,
      extra.title,
      () => extra.run({ signal: options.signal }),
    ]),
  ];
  const results = await Promise.all(
    groups.map(async ([id, title, check]) => {
      try {
        return await check();
      } catch (error) {
        const detail = `the check itself failed: ${error instanceof Error ? error.message : String(error)}`;
        return { id, title, status: 'fail', detail } satisfies DoctorCheck;
      }
    }),
  );
  return toReport(results.flat());
}

async function checkNativeParts(probes: HostProbes, options: DoctorOptions): Promise<DoctorCheck> {
  const missing: string[] = [];
  for (const { title, path } of options.nativeParts) {
    if (!(await probes.canAccess(path, 'read'))) missing.push(title);
  }
  const base = { id: 'native-parts', title: 'Compiled parts' };
  if (missing.length === 0) {
    return { ...base, status: 'ok', detail: options.nativeParts.map(({ title }) => title).join(', ') };
  }
  return {
    ...base,
    status: 'fail',
    detail: `not compiled yet: ${missing.join(', ')}`,
    fix: 'node scripts/bootstrap.mjs',
  };
}
