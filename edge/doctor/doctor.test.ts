import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type DoctorDeps, runDoctor } from './doctor.ts';
import { readNeededPackages } from './packages.ts';
import { type HostProbes, hostProbes } from './probes.ts';
import type { DoctorCheck } from './report.ts';

const gib = 2 ** 30;
const packages = [
  { package: 'qemu-system-x86', program: 'qemu-system-x86_64', purpose: 'runs the microVMs' },
  { package: 'libc6-dev', program: null, purpose: 'links the guest agent statically' },
];

interface FakeHost {
  readonly files?: Record<string, string>;
  /** Paths that may not be read, written or seen. */
  readonly denied?: readonly string[];
  readonly programs?: Record<string, { exitCode: number; output: string } | null>;
  readonly freeBytes?: number;
  readonly uid?: number;
  readonly nodeVersion?: string;
}

const meminfo = (availableGib: number, swapGib: number): string =>
  ['MemTotal', 'MemAvailable', 'SwapTotal']
    .map((name, index) => `${name}:  ${[16, availableGib, swapGib][index]! * 1024 * 1024} kB`)
    .join('\n');

/** A host on which all is well, but for what a test changes. */
function fakeProbes(host: FakeHost = {}): HostProbes {
  const files: Record<string, string> = {
    '/proc/meminfo': meminfo(12, 0),
    '/proc/self/status': 'Name:\tnode\nCapEff:\t000001ffffffffff\n',
    '/proc/self/limits':
      'Limit                     Soft Limit           Hard Limit\nMax open files            65536                1048576              files\n',
    '/sys/fs/cgroup/cgroup.controllers': 'cpuset cpu io memory hugetlb pids\n',
    ...host.files,
  };
  const programs: FakeHost['programs'] = {
    'dpkg-query': { exitCode: 0, output: 'qemu-system-x86 ii  1:7.2\nlibc6-dev ii  2.36\n' },
    unshare: { exitCode: 0, output: '' },
    ...host.programs,
  };
  return {
    readText: async (path) => files[path] || null,
    canAccess: async (path) => !host.denied?.includes(path),
    diskSpace: async () => ({ freeBytes: host.freeBytes ?? 100 * gib, totalBytes: 200 * gib }),
    run: async (file) => programs[file] ?? null,
    uid: host.uid ?? 0,
    nodeVersion: host.nodeVersion ?? 'v24.21.0',
  };
}

const options = {
  dataDirectory: '/var/lib/snapgate',
  nativeParts: [{ title: 'guest agent', path: '/srv/agent' }],
  signal: new AbortController().signal,
};
const examine = (host: FakeHost = {}, more: Partial<DoctorDeps> = {}) =>
  runDoctor({ probes: fakeProbes(host), packages, ...more }, options);

async function checkNamed(id: string, host: FakeHost): Promise<DoctorCheck> {
  const found = (await examine(host)).checks.filter((check) => check.id === id);
  assert.equal(found.length, 1, `one check is called ${id}`);
  return found[0]!;
}

test('a host that has everything is well, and no check offers a fix', async () => {
  const report = await examine();
  assert.equal(report.status, 'ok', JSON.stringify(report.checks.filter((check) => check.status !== 'ok')));
  assert.ok(report.checks.every((check) => check.fix === undefined));
  assert.equal(new Set(report.checks.map((check) => check.id)).size, report.checks.length);
  for (const { id } of report.checks) assert.match(id, /^[a-z0-9-]+$/);
});

test('a missing package fails, with the command that installs it', async () => {
  const programs = {
    'dpkg-query': { exitCode: 1, output: 'libc6-dev ii  2.36\ndpkg-query: no packages found\n' },
  };
  const check = await checkNamed('package-qemu-system-x86', { programs });
  assert.equal(check.status, 'fail');
  assert.equal(check.fix, 'apt-get install --yes --no-install-recommends qemu-system-x86');
  const asUser = await checkNamed('package-qemu-system-x86', { programs, uid: 1000 });
  assert.match(asUser.fix ?? '', /^sudo apt-get install /);
});

test('a package that was removed but left its settings counts as missing', async () => {
  const programs = {
    'dpkg-query': { exitCode: 0, output: 'qemu-system-x86 rc  1:7.2\nlibc6-dev ii  2.36\n' },
  };
  assert.equal((await checkNamed('package-qemu-system-x86', { programs })).status, 'fail');
});

test('a host without dpkg is judged by the programs on its path', async () => {
  const programs = {
    'dpkg-query': null,
    'qemu-system-x86_64': { exitCode: 0, output: 'QEMU emulator version 9.0\nCopyright\n' },
  };
  const found = await checkNamed('package-qemu-system-x86', { programs });
  assert.deepEqual([found.status, found.detail], ['ok', 'QEMU emulator version 9.0; runs the microVMs']);
  assert.equal((await checkNamed('package-libc6-dev', { programs })).status, 'warn');
  assert.equal(
    (await checkNamed('package-qemu-system-x86', { programs: { 'dpkg-query': null } })).status,
    'fail',
  );
});

test('an old Node fails', async () => {
  assert.equal((await checkNamed('node', { nodeVersion: 'v20.20.2' })).status, 'fail');
  assert.equal((await checkNamed('node', { nodeVersion: 'v25.0.0' })).status, 'ok');
});

test('parts that are not compiled are named', async () => {
  const check = await checkNamed('native-parts', { denied: ['/srv/agent'] });
  assert.equal(check.status, 'fail');
  assert.match(check.detail, /guest agent/);
});

test('a root without the right to trace processes fails, one without network rights is warned', async () => {
  const without = (bit: number) => {
    const mask = ((1n << 41n) - 1n) & ~(1n << BigInt(bit));
    return { files: { '/proc/self/status': `CapEff:\t${mask.toString(16)}\n` } };
  };
  const tracing = await checkNamed('privileges', without(19));
  assert.equal(tracing.status, 'fail');
  assert.match(tracing.detail, /CAP_SYS_PTRACE/);
  assert.equal((await checkNamed('privileges', without(12))).status, 'warn');
  assert.equal((await checkNamed('privileges', { uid: 1000 })).status, 'warn');
});

test('a host without KVM is told that emulation is no tenant boundary', async () => {
  const check = await checkNamed('kvm', { denied: ['/dev/kvm'] });
  assert.equal(check.status, 'warn');
  assert.match(check.detail, /no tenant boundary/);
});

test('disk and memory are judged by what is free', async () => {
  assert.equal((await checkNamed('disk-space', { freeBytes: gib })).status, 'fail');
  assert.equal((await checkNamed('disk-space', { freeBytes: 5 * gib })).status, 'warn');
  const withMemory = (available: number, swap = 0) => ({
    files: { '/proc/meminfo': meminfo(available, swap) },
  });
  assert.equal((await checkNamed('memory', withMemory(0.5))).status, 'fail');
  assert.equal((await checkNamed('memory', withMemory(1))).status, 'warn');
  assert.equal((await checkNamed('memory', { files: { '/proc/meminfo': '' } })).status, 'warn');
  assert.equal((await checkNamed('swap', withMemory(12, 4))).status, 'warn');
});

test('a data directory too long for unix sockets, or not writable, fails', async () => {
  const denied = await checkNamed('data-directory', { denied: ['/var/lib/snapgate'] });
  assert.equal(denied.status, 'fail');
  const dataDirectory = `/srv/${'x'.repeat(56)}`;
  const report = await runDoctor({ probes: fakeProbes(), packages }, { ...options, dataDirectory });
  assert.equal(report.checks.find((check) => check.id === 'data-directory')?.status, 'fail');
});

test('a low limit of open files is told with the command that raises it as far as it goes', async () => {
  const limits = 'Max open files            1024                 4096                 files\n';
  const check = await checkNamed('open-files', { files: { '/proc/self/limits': limits } });
  assert.deepEqual([check.status, check.fix], ['warn', 'ulimit -n 4096']);
});

test('old control groups, or ones without a controller, are warned of', async () => {
  const file = '/sys/fs/cgroup/cgroup.controllers';
  assert.match(
    (await checkNamed('cgroups', { files: { [file]: 'cpu io pids\n' } })).detail,
    /without memory/,
  );
  const version1 = await checkNamed('cgroups', { files: { [file]: '' } });
  assert.equal(version1.status, 'warn');
  assert.match(version1.detail, /version 1/);
});

test('network rules that cannot be made are warned of with the reason', async () => {
  const programs = { unshare: { exitCode: 1, output: 'nft: Operation not supported\nmore' } };
  const check = await checkNamed('network-rules', { programs });
  assert.equal(check.status, 'warn');
  assert.match(check.detail, /nft: Operation not supported$/);
});

test('checks brought by others come last, and one that throws does not take the report with it', async () => {
  const report = await examine(
    {},
    {
      extraChecks: [
        {
          id: 'accelerator',
          title: 'Accelerator',
          run: async () => ({ id: 'accelerator', title: 'Accelerator', status: 'warn', detail: 'tcg' }),
        },
        {
          id: 'broken',
          title: 'Broken',
          run: async () => {
            throw new Error('no answer');
          },
        },
      ],
    },
  );
  const [verdict, broken] = report.checks.slice(-2);
  assert.equal(verdict?.detail, 'tcg');
  assert.deepEqual([broken?.id, broken?.status], ['broken', 'fail']);
  assert.match(broken?.detail ?? '', /no answer/);
  assert.equal(report.status, 'fail');
});

test('a host that answers nothing still gets a whole report', async () => {
  const mute: HostProbes = {
    readText: async () => null,
    canAccess: async () => false,
    diskSpace: async () => null,
    run: async () => null,
    uid: 0,
    nodeVersion: '',
  };
  const report = await runDoctor({ probes: mute, packages }, options);
  assert.equal(report.status, 'fail');
  assert.equal(report.checks.length, (await examine()).checks.length);
});

test('the real probes tell what is there from what is not', async () => {
  const probes = hostProbes();
  const directory = await mkdtemp(join(tmpdir(), 'doctor-'));
  try {
    assert.match((await probes.readText('/proc/self/status')) ?? '', /^Name:/);
    assert.equal(await probes.readText(join(directory, 'absent')), null);
    assert.equal(await probes.canAccess(join(directory, 'not/yet/there'), 'write'), true);
    assert.equal(await probes.canAccess(join(directory, 'absent'), 'read'), false);
    assert.ok(((await probes.diskSpace(join(directory, 'absent')))?.totalBytes ?? 0) > 0);
    assert.equal(await probes.run('snapgate-no-such-program', []), null);
    assert.deepEqual(await probes.run('sh', ['-c', 'echo out; exit 3']), { exitCode: 3, output: 'out\n' });
  } finally {
    await rm(directory, { recursive: true });
  }
});

test('the list of packages is well-formed and names none twice', async () => {
  const needed = await readNeededPackages();
  assert.ok(needed.length > 10);
  assert.equal(new Set(needed.map((entry) => entry.package)).size, needed.length);
});
