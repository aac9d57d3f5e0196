/** Every command of `snapgate`, in the order of `--help`. Loading one must not load the others. */
import type { CommandDeps, CommandEntry } from './program.ts';
import type { StartService } from './services.ts';

const serve = 'Serve:';
const functions = 'Functions:';
const look = 'Look:';
const manage = 'Manage:';

/** Deps of a command that talks to a gateway. The client is made when the command first asks for it. */
async function connected({ context, flags, setExitCode }: CommandDeps) {
  const { connect } = await import('./connection.ts');
  return { context, setExitCode, client: () => connect(flags(), context) };
}

async function root(file: string, name: string): Promise<StartService> {
  const module = (await import(new URL(file, import.meta.url).href)) as Record<string, StartService>;
  return module[name] as StartService;
}

/** A command that runs a composition root, which is only loaded when it does. */
async function service(
  { context }: CommandDeps,
  name: string,
  description: string,
  load: () => Promise<StartService>,
) {
  return (await import('./services.ts')).serviceCommand(name, description, { context, load });
}

/** The commands; see {@link CommandEntry}. */
export const commandEntries: readonly CommandEntry[] = [
  {
    name: 'up',
    summary: 'run gateway and edge in one process',
    group: serve,
    isRemote: false,
    load: (deps) =>
      service(deps, 'up', 'run gateway and edge in one process, until Ctrl-C', () => root('../up.ts', 'up')),
  },
  {
    name: 'gateway',
    summary: 'run the front door alone',
    group: serve,
    isRemote: false,
    load: (deps) =>
      service(deps, 'gateway', 'run the front door alone, until Ctrl-C', () => root('../main.ts', 'gateway')),
  },
  {
    name: 'edge',
    summary: 'run a node alone',
    group: serve,
    isRemote: false,
    load: (deps) =>
      service(deps, 'edge', 'run a node alone, until Ctrl-C', () => root('../../edge/main.ts', 'edge')),
  },
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
