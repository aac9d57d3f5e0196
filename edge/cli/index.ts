/** Commands of a node, for the assembly of the command line. */
export { doctorCommand } from './doctor.ts';
