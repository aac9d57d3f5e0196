/** Commands of a node, for the assembly of the command line. */
export { type DoctorCommandDeps, doctorCommand } from './doctor.ts';
