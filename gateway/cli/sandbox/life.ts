import { Command } from 'commander';
import type { Sandbox } from '../../../sdk/index.ts';
import { wholeNumber } from '../command-options.ts';
import { write, writeJson } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';
import { keyValue } from './pairs.ts';

interface ForkFlags {
  readonly count: number;
  readonly deadlineMs?: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly json?: boolean;
}

/** `snapgate sandbox pause|resume|kill|fork|snapshot|rewind`. */
export function lifeCommands(deps: SandboxCommandDeps): Command[] {
  const { context, snapgate, setExitCode } = deps;
  const options = { signal: context.interrupted };
  const find = (id: string) => snapgate().sandboxes.get(id, options);
  const each = (name: string, description: string, done: string, act: (one: Sandbox) => Promise<unknown>) =>
    new Command(name)
      .description(description)
      .argument('<id...>', 'sandboxes')
      .action(async (ids: string[]) => {
        for (const id of ids) {
          await act(await find(id));
          await write(context.stderr, `${done} ${id}.\n`);
        }
      });

  const fork = new Command('fork')
    .description('make children that go on from its present memory and disk; prints their ids')
    .argument('<id>', 'the source')
    .option('-n, --count <count>', 'how many', wholeNumber(1, 100), 1)
    .option('--deadline-ms <ms>', 'how long they live', wholeNumber(1000, 30 * 86_400_000))
    .option('-m, --metadata <key=value>', 'added to the source’s; may be repeated', keyValue, {})
    .option('--json', 'print JSON, with tokens and timing')
    .action(async (id: string, { count, deadlineMs, metadata, json }: ForkFlags) => {
      const source = await find(id);
      const forked = await source.fork({ count, deadlineMs, metadata, ...options });
      const { children, failures, notInherited, timing } = forked;
      if (json) {
        const sandboxes = children.map(({ info, token }) => ({ ...info, token }));
        const errors = failures.map(({ code, message }) => ({ code, message }));
        await writeJson(context, { children: sandboxes, failures: errors, notInherited, timing });
      } else {
        for (const child of children) await write(context.stdout, `${child.id}\n`);
        for (const { code, message } of failures)
          await write(context.stderr, `no child: error[${code}]: ${message}\n`);
        await write(context.stderr, `The source stood still for ${timing.stoppedMs.toFixed(1)} ms.\n`);
      }
      if (failures.length > 0) setExitCode(1);
    });

  const snapshot = new Command('snapshot')
    .description('keep its present state while it goes on; prints the id of the snapshot')
    .argument('<id>', 'the sandbox')
    .option('--name <name>', 'then also snapshot:NAME')
    .option('--pin', 'keep it whatever the limits say')
    .option('--json', 'print JSON')
    .action(async (id: string, { name, pin, json }: { name?: string; pin?: boolean; json?: boolean }) => {
      const source = await find(id);
      const made = await source.snapshot({ name, isPinned: pin, ...options });
      await (json ? writeJson(context, made) : write(context.stdout, `${made.id}\n`));
    });

  const rewind = new Command('rewind')
    .description('put it back to one of its snapshots, in place')
    .argument('<id>', 'the sandbox')
    .argument('<snapshot>', 'id or snapshot:NAME')
    .action(async (id: string, wanted: string) => {
      const sandbox = await find(id);
      await sandbox.rewind(wanted, options);
      await write(context.stderr, `Rewound ${id} to ${wanted}.\n`);
    });

  return [
    each('pause', 'put sandboxes on disk, memory and all', 'Paused', (one) => one.pause(options)),
    each('resume', 'go on where they were paused', 'Resumed', (one) => one.resume(options)),
    fork,
    snapshot,
    rewind,
    each('kill', 'end sandboxes, whatever their state', 'Killed', (one) => one.kill(options)),
  ];
}
