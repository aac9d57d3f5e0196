/** Commands of a node, for the assembly of the command line. */
export { doctorCommand } from './doctor.ts';
export { networkCommand } from './network.ts';
