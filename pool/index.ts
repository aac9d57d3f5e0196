export type { BlankMachine, MachineSource, PoolMachine } from './port.ts';
