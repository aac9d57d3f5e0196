/** Every command of `snapgate`, in the order of `--help`. Loading one must not load the others. */
import type { CommandDeps, CommandEntry } from './program.ts';

const serve = 'Serve:';
const functions = 'Functions:';
const look = 'Look:';
const manage = 'Manage:';

/** Deps of a command that talks to a gateway. The client is made when the command first asks for it. */
async function connected({ context, flags, setExitCode }: CommandDeps) {
  const { connect } = await import('./connection.ts');
  return { context, setExitCode, client: () => connect(flags(), context) };
}

/** The commands; see {@link CommandEntry}. */
export const commandEntries: readonly CommandEntry[] = [
  {
    name: 'invoke',
    summary: 'call a function and print its answer',
    group: functions,
    isRemote: true,
    load: async (deps) => (await import('./invoke.ts')).invokeCommand(await connected(deps)),
  },
  {
    name: 'ps',
    summary: 'list machines, pools or nodes',
    group: look,
    isRemote: true,
    load: async (deps) => (await import('./ps.ts')).psCommand(await connected(deps)),
  },
  {
    name: 'logs',
    summary: 'show what a function printed',
    group: look,
    isRemote: true,
    load: async (deps) => (await import('./logs.ts')).logsCommand(await connected(deps)),
  },
  {
    name: 'keys',
    summary: 'make, list and withdraw API keys',
    group: manage,
    isRemote: true,
    load: async (deps) => (await import('./keys.ts')).keysCommand(await connected(deps)),
  },
];
