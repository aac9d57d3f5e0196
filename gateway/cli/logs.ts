import { Command } from 'commander';
import { type AdminClient, type LogLine, visibleText } from '../../sdk/index.ts';
import { wholeNumber } from './command-options.ts';
import { type CliContext, write } from './context.ts';

interface Deps {
  readonly context: CliContext;
  readonly client: () => AdminClient;
}

interface Flags {
  readonly follow?: boolean;
  readonly console?: boolean;
  readonly network?: boolean;
  readonly machine?: string;
  readonly tail: number;
  readonly json?: boolean;
}

/** `snapgate logs`: what functions printed, or with `--console` what their kernels did, or with `--network` what rules refused. */
export function logsCommand({ context, client }: Deps): Command {
  return new Command('logs')
    .description('show what a function printed on stdout and stderr')
    .argument('<template>', 'NAME, NAME@VERSION or NAME@ALIAS')
    .option('-f, --follow', 'go on with new lines until Ctrl-C')
    .option('--console', "the machine's console (kernel, agent) instead")
    .option('--network', 'what network rules refused instead')
    .option('--machine <id>', 'only this machine')
    .option('-n, --tail <lines>', 'lines of history per machine', wholeNumber(0, 10_000), 100)
    .option('--json', 'print NDJSON, one line of the log each')
    .action(async (reference: string, flags: Flags) => {
      const [template = '', version] = reference.split('@', 2);
      const lines = client().logs({
        template,
        ...(version === undefined ? {} : { version }),
        ...(flags.machine === undefined ? {} : { machine: flags.machine }),
        streams: streamsOf(flags),
        tail: flags.tail,
        follow: flags.follow ?? false,
        signal: context.interrupted,
      });
      const render = flags.json ? (line: LogLine) => JSON.stringify(line) : renderLogLine;
      for await (const line of lines) await write(context.stdout, `${render(line)}\n`);
    });
}

function streamsOf({ console, network }: Flags): LogLine['stream'][] {
  const instead: LogLine['stream'][] = [
    ...(console ? (['console'] as const) : []),
    ...(network ? (['network'] as const) : []),
  ];
  return instead.length > 0 ? instead : ['stdout', 'stderr'];
}

/**
 * Time of day (UTC), the machine's last six characters, the stream where it is not stdout, and the text. Exactly one
 * line, whatever the guest printed.
 */
export function renderLogLine({ at, machine, stream, text }: LogLine): string {
  const time = new Date(at).toISOString().slice(11, 23);
  const origin = stream === 'stdout' ? machine.slice(-6) : `${machine.slice(-6)} ${stream}`;
  return `${time} ${visibleText(origin, { lines: 'one' })} | ${visibleText(text.replace(/\r?\n$/, ''), { lines: 'one' })}`;
}
