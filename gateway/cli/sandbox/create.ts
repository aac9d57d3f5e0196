import { Command, Option } from 'commander';
import { GatewayError } from '../../../sdk/index.ts';
import { wholeNumber } from '../command-options.ts';
import { type CliContext, write, writeJson } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { keyValue, networkRule } from './pairs.ts';

interface Flags {
  readonly snapshot?: string;
  readonly deadlineMs: number;
  readonly onTimeout: 'kill' | 'pause';
  readonly autoResume?: boolean;
  readonly metadata: Readonly<Record<string, string>>;
  readonly env: Readonly<Record<string, string>>;
  readonly secret: readonly string[];
  readonly network?: Readonly<Record<string, boolean>>;
  readonly json?: boolean;
}

/** `snapgate sandbox create`: prints the id, so that a script can go on with it. */
export function createCommand({ context, snapgate }: SandboxCommandDeps): Command {
  return new Command('create')
    .description('make a sandbox and print its id')
    .argument('[template]', 'NAME, NAME@VERSION or NAME@ALIAS')
    .option('--snapshot <snapshot>', 'start from a snapshot instead: its id or snapshot:NAME')
    .option('--deadline-ms <ms>', 'how long it lives', wholeNumber(1000, 30 * 86_400_000), 300_000)
    .addOption(
      new Option('--on-timeout <what>', 'what the deadline does').choices(['kill', 'pause']).default('kill'),
    )
    .option('--auto-resume', 'a request to it wakes it from pause')
    .option('-m, --metadata <key=value>', 'may be repeated', keyValue, {})
    .option('-e, --env <key=value>', 'seen by every command; may be repeated', keyValue, {})
    .option(
      '--network <rule>',
      'a network rule instead of those of its template, or !RULE; may be repeated',
      networkRule,
    )
    .option(
      '--secret <name>',
      'like --env, with the value of this variable here; may be repeated',
      listed,
      [],
    )
    .option('--json', 'print JSON, with the token')
    .action(async (template: string | undefined, flags: Flags) => {
      const { snapshot, deadlineMs, onTimeout, autoResume = false, metadata, env } = flags;
      const sandbox = await snapgate().sandboxes.create({
        ...(template === undefined ? {} : { template }),
        ...(snapshot === undefined ? {} : { snapshot }),
        deadlineMs,
        onTimeout,
        autoResume,
        metadata: { ...metadata },
        env: { ...env },
        secrets: secretsOf(flags.secret, context.env),
        ...(flags.network === undefined ? {} : { network: { ...flags.network } }),
        signal: context.interrupted,
      });
      if (flags.json) await writeJson(context, { ...sandbox.info, token: sandbox.token });
      else await write(context.stdout, `${sandbox.id}\n`);
    });
}

const listed = (text: string, before: readonly string[]): readonly string[] => [...before, text];

/** Values come from our environment, since a command line can be read by everybody on this host. */
function secretsOf(names: readonly string[], env: CliContext['env']): Record<string, string> {
  return Object.fromEntries(
    names.map((name) => {
      const value = env[name];
      if (value !== undefined) return [name, value];
      throw new GatewayError('invalid_request', `there is no variable ${name} here`, { field: 'secrets' });
    }),
  );
}
