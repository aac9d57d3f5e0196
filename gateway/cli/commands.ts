/** Every command of `snapgate`, in the order of `--help`. Loading one must not load the others. */
import type { CommandDeps, CommandEntry } from './program.ts';
import type { StartService } from './services.ts';

const serve = 'Serve:';
const functions = 'Functions:';
const sandboxes = 'Sandboxes:';
const look = 'Look:';
const manage = 'Manage:';

/** Deps of a command that talks to a gateway. The client is made when the command first asks for it. */
async function connected({ context, flags, setExitCode }: CommandDeps) {
  const { connect } = await import('./connection.ts');
  return { context, setExitCode, client: () => connect(flags(), context) };
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
    remote: 'none',
    load: (deps) =>
      service(
        deps,
        'up',
        'run gateway and edge in one process, until Ctrl-C',
        async () => (await import('../up.ts')).up,
      ),
  },
  {
    name: 'gateway',
    summary: 'run the front door alone',
    group: serve,
    remote: 'none',
    load: (deps) =>
      service(
        deps,
        'gateway',
        'run the front door alone, until Ctrl-C',
        async () => (await import('../main.ts')).gateway,
      ),
  },
  {
    name: 'edge',
    summary: 'run a node alone',
    group: serve,
    remote: 'none',
    load: (deps) =>
      service(deps, 'edge', 'run a node alone, until Ctrl-C', async () => (await import('../main.ts')).edge),
  },
  {
    name: 'doctor',
    summary: 'check what this host has and lacks',
    group: serve,
    remote: 'none',
    async load({ context, setExitCode }) {
      const { doctorCommand } = await import('../../edge/cli/index.ts');
      const { dataDirectories } = await import('./data-directory.ts');
      return doctorCommand({ context, setExitCode, dataDirectory: dataDirectories(context)[0] });
    },
  },
  {
    name: 'init',
    summary: 'write a working template to start from',
    group: functions,
    remote: 'none',
    load: async (deps) => (await import('../../templates/index.ts')).initCommand(deps),
  },
  {
    name: 'publish',
    summary: 'build, verify and serve a template folder',
    group: functions,
    remote: 'all',
    load: async (deps) => (await import('../../templates/index.ts')).publishCommand(await connected(deps)),
  },
  {
    name: 'templates',
    summary: 'list, show, point to and remove what is published',
    group: functions,
    remote: ['list', 'show', 'set', 'rm'],
    load: async (deps) => (await import('../../templates/index.ts')).templatesCommand(await connected(deps)),
  },
  {
    name: 'invoke',
    summary: 'call a function and print its answer',
    group: functions,
    remote: 'all',
    load: async (deps) => (await import('./invoke.ts')).invokeCommand(await connected(deps)),
  },
  {
    name: 'sandbox',
    summary: 'make, use, fork, pause and rewind sandboxes',
    group: sandboxes,
    remote: 'all',
    async load({ context, flags, setExitCode }) {
      const [{ sandboxCommand }, { findConnection }, { Snapgate }] = await Promise.all([
        import('./sandbox/command.ts'),
        import('./connection.ts'),
        import('../../sdk/index.ts'),
      ]);
      const snapgate = () => new Snapgate(findConnection(flags(), context));
      return sandboxCommand({ context, setExitCode, snapgate });
    },
  },
  {
    name: 'ps',
    summary: 'list machines, pools or nodes',
    group: look,
    remote: 'all',
    load: async (deps) => (await import('./ps.ts')).psCommand(await connected(deps)),
  },
  {
    name: 'top',
    summary: 'watch pools, machines and rates',
    group: look,
    remote: 'all',
    load: async (deps) => (await import('./top.ts')).topCommand(await connected(deps)),
  },
  {
    name: 'logs',
    summary: 'show what a function printed',
    group: look,
    remote: 'all',
    load: async (deps) => (await import('./logs.ts')).logsCommand(await connected(deps)),
  },
  {
    name: 'events',
    summary: 'tell what happened to sandboxes',
    group: look,
    remote: 'all',
    async load({ context, flags }) {
      const [{ eventsCommand }, { findConnection }, { Snapgate }] = await Promise.all([
        import('./sandbox/events.ts'),
        import('./connection.ts'),
        import('../../sdk/index.ts'),
      ]);
      return eventsCommand({ context, snapgate: () => new Snapgate(findConnection(flags(), context)) });
    },
  },
  {
    name: 'network',
    summary: 'explain, show and change network rules',
    group: look,
    remote: 'all',
    async load({ context, flags, setExitCode }) {
      const [{ networkCommand }, { connect, findConnection }, { Snapgate }] = await Promise.all([
        import('../../edge/cli/index.ts'),
        import('./connection.ts'),
        import('../../sdk/index.ts'),
      ]);
      const client = () => connect(flags(), context);
      const snapgate = () => new Snapgate(findConnection(flags(), context));
      return networkCommand({ context, setExitCode, client, snapgate });
    },
  },
  {
    name: 'keys',
    summary: 'make, list and withdraw API keys',
    group: manage,
    remote: 'all',
    load: async (deps) => (await import('./keys.ts')).keysCommand(await connected(deps)),
  },
  {
    name: 'loadtest',
    summary: 'measure a gateway under load and judge what it measured',
    group: manage,
    remote: ['run', 'capacity'],
    async load({ context, flags, setExitCode }) {
      const { loadtestCommand } = await import('../../loadtest/index.ts');
      const { findConnection } = await import('./connection.ts');
      const simulator = async () => (await import('./pool-simulator.ts')).poolSimulator;
      const { stdout, stderr, interrupted } = context;
      const connection = () => findConnection(flags(), context);
      return loadtestCommand({ stdout, stderr, interrupted, setExitCode, connection, simulator });
    },
  },
];
