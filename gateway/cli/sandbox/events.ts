import { Command } from 'commander';
import { type SandboxEvent, visibleText } from '../../../sdk/index.ts';
import { wholeNumber } from '../command-options.ts';
import { write } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';

interface Flags {
  readonly follow?: boolean;
  readonly sandbox?: string;
  readonly since: number;
  readonly json?: boolean;
}

/** `snapgate events`: what happened to sandboxes and the processes in them, and whose doing each end was. */
export function eventsCommand({ context, snapgate }: Omit<SandboxCommandDeps, 'setExitCode'>): Command {
  return new Command('events')
    .description('tell what happened to sandboxes and how each process in them ended')
    .option('-f, --follow', 'go on with what happens until Ctrl-C')
    .option('--sandbox <id>', 'only of this one')
    .option(
      '--since <number>',
      'only after the event of this number',
      wholeNumber(0, Number.MAX_SAFE_INTEGER),
      0,
    )
    .option('--json', 'print NDJSON, one event a line')
    .action(async ({ follow, sandbox, since, json }: Flags) => {
      const query = { follow, sandbox, since, signal: context.interrupted };
      const render = json ? (event: SandboxEvent) => JSON.stringify(event) : renderEvent;
      for await (const event of snapgate().sandboxes.events(query))
        await write(context.stdout, `${render(event)}\n`);
    });
}

/** Number, instant (UTC), sandbox, type and details. Exactly one line, whatever a guest said. */
function renderEvent({ sequence, at, sandbox, type, data }: SandboxEvent): string {
  const details = Object.entries(data).map(([name, value]) => `${name}=${text(value)}`);
  const line = [String(sequence), new Date(at).toISOString(), sandbox, type, ...details].join('  ');
  return visibleText(line, { lines: 'one' });
}

const text = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));
