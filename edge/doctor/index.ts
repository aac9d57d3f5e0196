/** Host checks. */
export { type DoctorDeps, type DoctorOptions, type ExtraCheck, runDoctor } from './doctor.ts';
export { type HostProbes, hostProbes } from './probes.ts';
export type { DoctorCheck, DoctorReport, DoctorStatus } from './report.ts';
