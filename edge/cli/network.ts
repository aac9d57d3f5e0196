/** `snapgate network`: which rules decide about a destination, and the rules of sandboxes. */
import type { Writable } from 'node:stream';
import { Command } from 'commander';
import { type AdminClient, type Snapgate, visibleText } from '../../sdk/index.ts';
import { explain } from '../network/rules/explain.ts';
import { parseDestination } from './network-destination.ts';
import { findRules, floorOf } from './network-rules.ts';

/** What the command needs of the program it is part of. */
export interface NetworkCommandDeps {
  readonly context: {
    readonly workingDirectory: string;
    readonly stdout: Writable;
    readonly interrupted: AbortSignal;
  };
  readonly client: () => AdminClient;
  readonly snapgate: () => Snapgate;
  /** Ends the process with this code although the command succeeded. */
  readonly setExitCode: (code: number) => void;
}

export function networkCommand(deps: NetworkCommandDeps): Command {
  return new Command('network')
    .description('explain, show and change network rules')
    .addCommand(explainCommand(deps))
    .addCommand(showCommand(deps))
    .addCommand(setCommand(deps));
}

/** The exit code is 0 when the destination is allowed, 1 when it is refused. */
function explainCommand(deps: NetworkCommandDeps): Command {
  return new Command('explain')
    .description('say whether rules allow a destination, and which rule decides; nothing is sent')
    .argument('<subject>', 'NAME[@VERSION] of a template, id of a sandbox, or a folder with a template.json')
    .argument('<destination>', 'https://host, http://host, tcp://host:port or udp://host:port')
    .option('--permit <range...>', "private ranges that the node's operator permits; default: ask the node")
    .option('--json', 'print JSON')
    .action(async (subject: string, target: string, flags: { permit?: string[]; json?: boolean }) => {
      const destination = parseDestination(target);
      const { rules, permittedRanges } = await findRules(deps, subject);
      const found = explain(rules, floorOf(flags.permit ?? permittedRanges), destination);
      deps.context.stdout.write(
        flags.json
          ? `${JSON.stringify(found)}\n`
          : `${found.verdict === 'allow' ? 'allowed' : 'refused'}: ${found.text}\n`,
      );
      if (found.verdict === 'refuse') deps.setExitCode(1);
    });
}

function showCommand({ context, snapgate }: NetworkCommandDeps): Command {
  return new Command('show')
    .description('show the rules of a sandbox, and what they refused lately')
    .argument('<sandbox>', 'its id')
    .option('--json', 'print JSON')
    .action(async (id: string, flags: { json?: boolean }) => {
      const { signal } = { signal: context.interrupted };
      const network = await (await snapgate().sandboxes.get(id, { signal })).network({ signal });
      if (flags.json) {
        context.stdout.write(`${JSON.stringify(network, null, 2)}\n`);
        return;
      }
      const whose = network.own === null ? 'of its template' : 'its own';
      const rules =
        network.own?.kind === 'e2b'
          ? JSON.stringify(network.own)
          : Object.entries(network.own?.rules ?? network.template)
              .map(([rule, isAllowed]) => (isAllowed ? rule : `!${rule}`))
              .join(' ');
      const lines = network.refusals.map(({ at, kind, name, address, protocol, port, reason, count }) => {
        const to = kind === 'name' ? name : [protocol, name, address, port].filter(Boolean).join(' ');
        return `${new Date(at).toISOString()} ${to}: ${reason}${count === 1 ? '' : ` (${count} times)`}`;
      });
      const head = network.hasCard ? `rules ${whose}: ${rules || 'none'}` : 'no network card';
      context.stdout.write(
        [head, ...lines].map((line) => `${visibleText(line, { lines: 'one' })}\n`).join(''),
      );
    });
}

function setCommand({ context, snapgate }: NetworkCommandDeps): Command {
  return new Command('set')
    .description('replace the rules of a sandbox while it runs; connections no longer allowed are cut')
    .argument('<sandbox>', 'its id')
    .argument(
      '[rules...]',
      'all rules from now on; ! in front of what is refused; none: nothing is reachable',
    )
    .option('--template', 'the rules of its template again')
    .action(async (id: string, rules: string[], flags: { template?: boolean }) => {
      const signal = context.interrupted;
      const sandbox = await snapgate().sandboxes.get(id, { signal });
      const wanted = Object.fromEntries(rules.map((rule) => [rule.replace(/^!/, ''), !rule.startsWith('!')]));
      await sandbox.setNetwork(flags.template ? null : wanted, { signal });
    });
}
