/** `up`, `gateway` and `edge`: commands that start a composition root and keep it until Ctrl-C. */
import { once } from 'node:events';
import { resolve } from 'node:path';
import { Command, Option } from 'commander';
import { GatewayError } from '../../sdk/index.ts';
import type { RunningService } from '../runtime.ts';
import { type CliContext, write } from './context.ts';
import { dataDirectories } from './data-directory.ts';
import { e2bExports } from './e2b-exports.ts';

/** What the command line decides; the composition root's own config decides the rest. */
export interface ServiceOptions {
  /** Absolute; created when missing. */
  readonly dataDirectory: string;
  /** `host:port`. Default: `SNAPGATE_LISTEN`, then the service's own. */
  readonly listen?: string;
  /** Names below it lead here. Default: the gateway's own. */
  readonly domain?: string;
  /** The listener in TLS for clients of E2B; null for none. Default: beside the plain one. */
  readonly tls?: TlsFlags | null;
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

/** What the command line says of the listener in TLS; paths are absolute. */
export interface TlsFlags {
  readonly listen?: string;
  readonly certPath?: string;
  readonly keyPath?: string;
}

/** Only a gateway has keys to tell of. */
type StartedService = Pick<RunningService, 'url' | 'close'> &
  Partial<Pick<RunningService, 'apiKey' | 'isNewKey' | 'e2b'>>;

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
  if (name !== 'edge') {
    command
      .option('--domain <name>', 'names below it lead here (SNAPGATE_DOMAIN)')
      .option(
        '--tls <host:port>',
        'where to listen in TLS for E2B clients; off for nowhere (SNAPGATE_TLS_LISTEN)',
      )
      .option('--tls-cert <file>', 'certificate for *.<domain>, with --tls-key; default: one of our own')
      .option('--tls-key <file>', 'its key');
  }
  return command
    .option('--listen <host:port>', 'where to listen (SNAPGATE_LISTEN)')
    .option('--data <directory>', 'data directory (SNAPGATE_DATA)')
    .addOption(
      new Option('--log <level>', 'what goes to stderr as JSON lines (SNAPGATE_LOG)').choices(logLevels),
    )
    .action(async (flags: ServiceFlags) => {
      const listen = flags.listen ?? (context.env.SNAPGATE_LISTEN || undefined);
      if (listen !== undefined && !/^.+:[0-9]{1,5}$/.test(listen)) {
        throw new GatewayError('invalid_request', 'an address to listen on is given as host:port', {
          field: '--listen',
        });
      }
      const domain = flags.domain ?? (context.env.SNAPGATE_DOMAIN || undefined);
      const tls = tlsFlags(flags, context);
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
        ...(domain === undefined ? {} : { domain }),
        ...(tls === undefined ? {} : { tls }),
        ...(flags.edge === undefined ? {} : { edge: flags.edge }),
        ...(logLevel === undefined ? {} : { logLevel }),
        onStep: (title) => void write(context.stderr, `• ${title}\n`).catch(() => {}),
        signal: context.interrupted,
      });
      if (service.isNewKey) {
        await write(context.stderr, `API key, shown this once: ${service.apiKey}\n`);
      }
      if (service.e2b != null) {
        const key = service.isNewKey === true ? (service.apiKey ?? null) : null;
        await write(context.stderr, e2bExports(service.e2b, key));
      }
      await write(context.stderr, `snapgate ${name} serves on ${service.url}; Ctrl-C stops it.\n`);
      if (!context.interrupted.aborted) await once(context.interrupted, 'abort');
      await write(context.stderr, 'Stopping; a second Ctrl-C stops at once.\n');
      // Timers and child processes keep nobody alive; without this the process ends in the middle of its closing.
      const closing = setInterval(() => {}, 60_000);
      await service.close().finally(() => clearInterval(closing));
    });
}

interface ServiceFlags {
  readonly listen?: string;
  readonly data?: string;
  readonly log?: string;
  readonly edge?: string;
  readonly domain?: string;
  readonly tls?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
}

/** Undefined: as usual. Null: no such listener. */
function tlsFlags(flags: ServiceFlags, { env, workingDirectory }: CliContext): TlsFlags | null | undefined {
  const { tlsCert, tlsKey } = flags;
  const listen = flags.tls ?? (env.SNAPGATE_TLS_LISTEN || undefined);
  if (listen === 'off') return null;
  if (listen !== undefined && !/^.+:[0-9]{1,5}$/.test(listen)) {
    throw new GatewayError('invalid_request', 'an address to listen on is given as host:port, or off', {
      field: '--tls',
    });
  }
  if ((tlsCert === undefined) !== (tlsKey === undefined)) {
    throw new GatewayError('invalid_request', '--tls-cert and --tls-key come together', {
      field: '--tls-cert',
    });
  }
  if (listen === undefined && tlsCert === undefined) return undefined;
  return {
    ...(listen === undefined ? {} : { listen }),
    ...(tlsCert === undefined ? {} : { certPath: resolve(workingDirectory, tlsCert) }),
    ...(tlsKey === undefined ? {} : { keyPath: resolve(workingDirectory, tlsKey) }),
  };
}
