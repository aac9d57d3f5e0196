/** `up`, `gateway` and `edge`: commands that start a composition root and keep it until Ctrl-C. */
import { once } from 'node:events';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { GatewayError } from '../../sdk/index.ts';
import { type CliContext, write } from './context.ts';
import { dataDirectories } from './data-directory.ts';

/** What a composition root answers once it serves. */
export interface RunningService {
  /** Where it listens. */
  readonly url: string;
  /** Drains, then stops. Idempotent. */
  close(): Promise<void>;
}

/** What the command line decides; the composition root's own config decides the rest. */
export interface ServiceOptions {
  /** Absolute; created when missing. */
  readonly dataDirectory: string;
  /** `host:port`. Default: `SNAPGATE_LISTEN`, then the service's own. */
  readonly listen?: string;
  /** Ends a start that is under way; a service that runs is ended by its `close`. */
  readonly signal: AbortSignal;
}

/** Starts a service; rejects with `GatewayError` when the host or the configuration does not allow it. */
export type StartService = (options: ServiceOptions) => Promise<RunningService>;

interface Deps {
  readonly context: CliContext;
  /** Loads the composition root; only called when the command really runs. */
  readonly load: () => Promise<StartService>;
}

/** One serving command. */
export function serviceCommand(name: string, description: string, { context, load }: Deps): Command {
  return new Command(name)
    .description(description)
    .option('--listen <host:port>', 'where to listen (SNAPGATE_LISTEN)')
    .option('--data <directory>', 'data directory (SNAPGATE_DATA)')
    .action(async (flags: { listen?: string; data?: string }) => {
      const listen = flags.listen ?? (context.env.SNAPGATE_LISTEN || undefined);
      if (listen !== undefined && !/^.+:[0-9]{1,5}$/.test(listen)) {
        throw new GatewayError('invalid_request', 'an address to listen on is given as host:port', {
          field: '--listen',
        });
      }
      const start = await load();
      const service = await start({
        dataDirectory:
          flags.data === undefined
            ? dataDirectories(context)[0]
            : resolve(context.workingDirectory, flags.data),
        ...(listen === undefined ? {} : { listen }),
        signal: context.interrupted,
      });
      await write(context.stderr, `snapgate ${name} serves on ${service.url}; Ctrl-C stops it.\n`);
      if (!context.interrupted.aborted) await once(context.interrupted, 'abort');
      await write(context.stderr, 'Stopping; a second Ctrl-C stops at once.\n');
      await service.close();
    });
}
