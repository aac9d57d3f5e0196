/** `snapgate init`: a working template to start from. */
import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Argument, Command } from 'commander';
import { GatewayError, isTemplateName } from '../../sdk/index.ts';
import { parseDefinitionText } from '../definition/index.ts';
import { type CommandDeps, write } from './port.ts';

/** Kinds of starters, each a folder in `starters/`. */
export const starterKinds = ['node', 'python', 'static'] as const;
type StarterKind = (typeof starterKinds)[number];

const starters = fileURLToPath(new URL('./starters/', import.meta.url));

interface Flags {
  readonly name?: string;
}

/** Writes a starter into a new or empty folder; talks to nobody. */
export function initCommand({ context }: Pick<CommandDeps, 'context'>): Command {
  return new Command('init')
    .description('write a working template to start from')
    .addArgument(new Argument('<kind>', 'what it runs').choices(starterKinds))
    .argument('[folder]', 'new or empty folder (default: the name)')
    .option('--name <name>', 'name of the template (default: the folder, or hello-<kind>)')
    .action(async (kind: StarterKind, folder: string | undefined, flags: Flags) => {
      const name =
        flags.name ??
        (folder === undefined ? `hello-${kind}` : basename(resolve(context.workingDirectory, folder)));
      if (!isTemplateName(name)) {
        throw new GatewayError(
          'invalid_request',
          `${JSON.stringify(name)} can't be the name of a template (1 to 63 of a-z, 0-9 and -); give one with --name`,
          { component: 'templates', field: '--name' },
        );
      }
      const shown = folder ?? name;
      await writeStarter(kind, name, resolve(context.workingDirectory, shown));
      await write(
        context.stdout,
        `Wrote ${shown}. Next:\n  snapgate publish ${shown}\n  snapgate invoke ${name}\n`,
      );
    });
}

async function writeStarter(kind: StarterKind, name: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  if ((await readdir(folder)).length > 0) {
    throw new GatewayError('conflict', `${folder} is not empty; nothing was written`, {
      component: 'templates',
    });
  }
  try {
    await cp(join(starters, kind), folder, { recursive: true });
    const path = join(folder, 'template.json');
    const text = (await readFile(path, 'utf8')).replace(`"hello-${kind}"`, JSON.stringify(name));
    parseDefinitionText(text);
    await writeFile(path, text);
  } catch (error) {
    // It was empty before, so it is again.
    for (const entry of await readdir(folder))
      await rm(join(folder, entry), { recursive: true, force: true });
    throw error;
  }
}
