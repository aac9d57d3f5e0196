import type { RunCommand } from './command.ts';

/** Where packages come from and how the programs which fetch and unpack them are run. */
export interface DebianOptions {
  /** Base address of the archive; null leaves mmdebstrap's default for the suite (with its security and update parts). */
  readonly mirror: string | null;
  /** `Acquire::http::Proxy` and the like, taken over from the host's apt by {@link readAptProxies}. */
  readonly aptProxies: readonly AptSetting[];
  /** Whether `/` is a plain directory instead of a mount, so that the kernel refuses to make mounts private. */
  readonly isChroot: boolean;
}

/** One apt setting; neither part holds quotes or blanks. */
export interface AptSetting {
  readonly name: string;
  readonly value: string;
}

const asOptions = (settings: readonly AptSetting[]): string[] =>
  settings.map(({ name, value }) => `--option=${name}=${value}`);

/** The whole environment of every program that builds images. */
export const buildEnvironment: Readonly<Record<string, string>> = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  HOME: '/root',
  LANG: 'C.UTF-8',
  LC_ALL: 'C.UTF-8',
  DEBIAN_FRONTEND: 'noninteractive',
  DEBCONF_NONINTERACTIVE_SEEN: 'true',
};

/** Both inside roots and for the seed: nothing is flushed, since a half-made root is thrown away anyway. */
const hastyDpkg = 'force-unsafe-io';

/**
 * `unshare` arguments that run a program in mount, process and IPC namespaces of its own, which the kernel takes down
 * with it: a killed build leaves neither a mount nor a daemon behind.
 */
const contained = (propagation: 'private' | 'unchanged'): string[] => [
  ...['--mount', '--pid', '--ipc', '--uts', '--fork', '--kill-child', '--propagation', propagation],
  '--mount-proc',
];

/** `unshare` arguments that bootstrap `suite` into the empty directory `target`. Package lists stay in it. */
export function seedCommand(suite: string, target: string, options: DebianOptions): string[] {
  return [
    // In a chroot a /proc of our own could show up outside; mmdebstrap takes its own mounts down by itself.
    ...(options.isChroot ? ['--ipc', '--uts'] : contained('private')),
    'mmdebstrap',
    '--mode=root',
    '--format=directory',
    // The essential packages and apt, installed in one go; everything else is the recipe's choice.
    '--variant=apt',
    '--verbose',
    '--skip=cleanup/apt',
    `--dpkgopt=${hastyDpkg}`,
    // Makes /bin, /lib and /sbin links before unpacking. Without it, converting them brings in 50 MB of Perl.
    '--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr',
    ...options.aptProxies.map(({ name, value }) => `--aptopt=${name} "${value}"`),
    suite,
    target,
    ...(options.mirror === null ? [] : [options.mirror]),
  ];
}

/** `unshare` arguments that install packages with the apt of the tree itself. */
export function installCommand(tree: string, packages: readonly string[], options: DebianOptions): string[] {
  return [
    // In a chroot what is mounted in the tree may show up outside; it is unmounted with the staging directory.
    ...contained(options.isChroot ? 'unchanged' : 'private'),
    `--root=${tree}`,
    '--wd=/',
    'apt-get',
    '--yes',
    '--no-install-recommends',
    '--option=Dpkg::Use-Pty=0',
    `--option=Dpkg::Options::=--${hastyDpkg}`,
    '--option=APT::Sandbox::User=root',
    ...asOptions(options.aptProxies),
    'install',
    '--',
    ...packages,
  ];
}

/** Options that make the host's apt read the package lists of a seed without writing into it. */
export function hostAptOptions(seed: string, cachePath: string, options: DebianOptions): string[] {
  return [
    `--option=Dir=${seed}`,
    `--option=Dir::State::status=${seed}/var/lib/dpkg/status`,
    '--option=Dir::Bin::methods=/usr/lib/apt/methods',
    `--option=Dir::Cache=${cachePath}`,
    '--option=APT::Architecture=amd64',
    '--option=APT::Sandbox::User=root',
    ...asOptions(options.aptProxies),
  ];
}

/** The proxies the host's own apt is told to use. Empty when there are none. */
export async function readAptProxies(run: RunCommand, signal: AbortSignal): Promise<AptSetting[]> {
  const { stdout } = await run('apt-config', ['dump', 'Acquire::http::Proxy', 'Acquire::https::Proxy'], {
    signal,
    env: buildEnvironment,
  });
  const proxies: AptSetting[] = [];
  for (const line of stdout.split('\n')) {
    const match = /^(Acquire::https?::Proxy[A-Za-z0-9:._-]*) "([^"\s]+)";$/i.exec(line);
    if (match !== null) proxies.push({ name: match[1]!, value: match[2]! });
  }
  return proxies;
}
