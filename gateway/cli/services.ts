/** `up`, `gateway` and `edge`: commands that start a composition root and keep it until Ctrl-C. */
import { once } from 'node:events';
import { resolve } from 'node:path';
import { Command, Option } from 'commander';
import { GatewayError } from '../../sdk/index.ts';
import type { RunningService } from '../runtime.ts';
import { type CliContext, write } from './context.ts';
import { dataDirectories } from './data-directory.ts';

/** What the command line decides; the composition root's own config decides the rest. */
export interface ServiceOptions {
  /** Absolute; created when missing. */
  readonly dataDirectory: string;
  /** `host:port`. Default: `SNAPGATE_LISTEN`, then the service's own. */
  readonly listen?: string;
  /** Of a gateway alone: where its edge is. Default: the socket in the data directory. */
  readonly edge?: string;
  /** pino level. Default: the service's own. */
  readonly logLevel?: string;
  /** Told of each step of the start. */
  readonly onStep: (title: string) => void;
  /** Ends a start that is under way; a service that runs is ended by its `close`. */
  readonly signal: AbortSignal;
}

/** Starts a service; rejects with `GatewayError` when the host or the configuration does not allow it. */
export type StartService = (options: ServiceOptions) => Promise<StartedService>;

/** Only a gateway has keys to tell of. */
type StartedService = Pick<RunningService, 'url' | 'close'> &
  Partial<Pick<RunningService, 'apiKey' | 'isNewKey'>>;

const logLevels: readonly string[] = ['trace', 'debug', 'info', 'warn', 'error', 'silent'];

interface Deps {
  readonly context: CliContext;
  /** Loads the composition root; only called when the command really runs. */
  readonly load: () => Promise<StartService>;
}

/** One serving command. */
export function serviceCommand(name: string, description: string, { context, load }: Deps): Command {
  const command = new Command(name).description(description);
  if (name === 'gateway')
    command.option('--edge <address>', "the edge: a socket's absolute path or https://host:port");
  return command
    .option('--listen <host:port>', 'where to listen (SNAPGATE_LISTEN)')
    .option('--data <directory>', 'data directory (SNAPGATE_DATA)')
    .addOption(
      new Option('--log <level>', 'what goes to stderr as JSON lines (SNAPGATE_LOG)').choices(logLevels),
    )
    .action(async (flags: { listen?: string; data?: string; log?: string; edge?: string }) => {
      const listen = flags.listen ?? (context.env.SNAPGATE_LISTEN || undefined);
      if (listen !== undefined && !/^.+:[0-9]{1,5}$/.test(listen)) {
        throw new GatewayError('invalid_request', 'an address to listen on is given as host:port', {
          field: '--listen',
        });
      }
      const logLevel = flags.log ?? (context.env.SNAPGATE_LOG || undefined);
      if (logLevel !== undefined && !logLevels.includes(logLevel)) {
        throw new GatewayError('invalid_request', `SNAPGATE_LOG is one of ${logLevels.join(', ')}`, {
          field: 'SNAPGATE_LOG',
        });
      }
      const start = await load();
      const service = await start({
        dataDirectory:
          flags.data === undefined
            ? dataDirectories(context)[0]
            : resolve(context.workingDirectory, flags.data),
        ...(listen === undefined ? {} : { listen }),
        ...(flags.edge === undefined ? {} : { edge: flags.edge }),
        ...(logLevel === undefined ? {} : { logLevel }),
        onStep: (title) => void write(context.stderr, `• ${title}\n`).catch(() => {}),
        signal: context.interrupted,
      });
      if (service.isNewKey) {
        await write(context.stderr, `API key, shown this once: ${service.apiKey}\n`);
      }
      await write(context.stderr, `snapgate ${name} serves on ${service.url}; Ctrl-C stops it.\n`);
      if (!context.interrupted.aborted) await once(context.interrupted, 'abort');
      await write(context.stderr, 'Stopping; a second Ctrl-C stops at once.\n');
      await service.close();
    });
}
