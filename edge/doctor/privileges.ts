import type { HostProbes } from './probes.ts';
import type { DoctorCheck } from './report.ts';

/** Bits of capabilities(7) that a root in a container may lack, and what does not work without each. */
const capabilities = [
  { bit: 21, name: 'CAP_SYS_ADMIN', isVital: true, purpose: 'building images and confining VMMs' },
  { bit: 19, name: 'CAP_SYS_PTRACE', isVital: true, purpose: 'reading the changed memory of a machine' },
  { bit: 27, name: 'CAP_MKNOD', isVital: true, purpose: 'building images' },
  { bit: 12, name: 'CAP_NET_ADMIN', isVital: false, purpose: 'network rules' },
] as const;

/** Whether this process may do what the edge has to. */
export async function checkPrivileges(probes: HostProbes): Promise<DoctorCheck> {
  const base = { id: 'privileges', title: 'Privileges' };
  if (probes.uid !== 0) {
    return {
      ...base,
      status: 'warn',
      detail: 'Not root: images cannot be built, and machines run without confinement and network rules.',
      fix: 'sudo npm start',
    };
  }
  const effective = /^CapEff:\s*([0-9a-f]+)$/m.exec((await probes.readText('/proc/self/status')) ?? '')?.[1];
  if (effective === undefined) {
    return { ...base, status: 'warn', detail: 'Root, but which capabilities it has could not be read.' };
  }
  const mask = BigInt(`0x${effective}`);
  const lacking = capabilities.filter(({ bit }) => ((mask >> BigInt(bit)) & 1n) === 0n);
  if (lacking.length === 0) return { ...base, status: 'ok', detail: 'Root with all capabilities it needs.' };
  return {
    ...base,
    status: lacking.some(({ isVital }) => isVital) ? 'fail' : 'warn',
    detail: `Root, but without ${lacking.map(({ name, purpose }) => `${name} (${purpose})`).join(', ')}; start the container with more privileges.`,
  };
}

/** `/dev/kvm` can be there without being of use; the verdict comes from a probe boot, which is not made here. */
export async function checkKvm(probes: HostProbes): Promise<DoctorCheck> {
  const base = { id: 'kvm', title: '/dev/kvm' };
  if (!(await probes.canAccess('/dev/kvm', 'exist'))) {
    return {
      ...base,
      status: 'warn',
      detail: 'Not there: machines run under software emulation, which is slow and no tenant boundary.',
    };
  }
  if (await probes.canAccess('/dev/kvm', 'write')) {
    return {
      ...base,
      status: 'ok',
      detail: 'There and accessible; a probe boot decides whether guests run under it.',
    };
  }
  return {
    ...base,
    status: 'warn',
    detail: 'There, but this user may not open it, so machines run under software emulation.',
    fix: 'sudo usermod --append --groups kvm "$USER"',
  };
}

/** The pages a machine has changed are found through this file. */
export async function checkPagemap(probes: HostProbes): Promise<DoctorCheck> {
  const isReadable = await probes.canAccess('/proc/self/pagemap', 'read');
  return {
    id: 'pagemap',
    title: 'Page maps',
    status: isReadable ? 'ok' : 'fail',
    detail: isReadable
      ? '/proc/PID/pagemap is readable, so snapshots of running machines hold only what changed.'
      : '/proc/PID/pagemap is not readable: this kernel lacks CONFIG_PROC_PAGE_MONITOR or hides it.',
  };
}
