/** `snapgate templates`: what is published, what names point to, and taking it away. */
import { Command } from 'commander';
import { GatewayError, type TemplateDetail } from '../../sdk/index.ts';
import { templateJsonSchema } from '../definition/index.ts';
import { type CommandDeps, write, writeJson } from './port.ts';
import { formatDuration, formatInstant, formatMiB, renderTable } from './table.ts';

interface Flags {
  readonly json?: boolean;
}

/** `list`, `show`, `alias set`, `rm` and `schema`. */
export function templatesCommand(deps: CommandDeps): Command {
  const templates = new Command('templates').description('list, show, point to and remove what is published');
  for (const add of [addList, addShow, addAlias, addRemove, addSchema]) add(templates, deps);
  return templates;
}

function addList(parent: Command, { context, client }: CommandDeps): void {
  parent
    .command('list')
    .alias('ls')
    .description('list templates')
    .option('--json', 'print JSON')
    .action(async (flags: Flags) => {
      const all = await client().templates({ signal: context.interrupted });
      if (flags.json) return writeJson(context, all);
      const rows = all.map(({ name, latest, versions, public: isPublic, createdAt }) => [
        name,
        latest ?? '-',
        String(versions),
        isPublic ? 'anybody' : 'with a key',
        formatInstant(createdAt),
      ]);
      await write(
        context.stdout,
        renderTable(['NAME', 'LATEST', 'VERSIONS', 'CALLED BY', 'CREATED (UTC)'], rows),
      );
    });
}

function addShow(parent: Command, { context, client }: CommandDeps): void {
  parent
    .command('show')
    .description('show the versions and aliases of a template')
    .argument('<name>', 'template')
    .option('--json', 'print JSON, definitions included')
    .action(async (name: string, flags: Flags) => {
      const detail = await client().template(name, { signal: context.interrupted });
      if (flags.json) return writeJson(context, detail);
      await write(context.stdout, describe(detail));
    });
}

function describe({ history, aliases }: TemplateDetail): string {
  const versions = history.map(({ version, digest, createdAt, aliases: names, facts }) => [
    version,
    digest.slice(0, 'sha256:'.length + 12),
    formatInstant(createdAt),
    formatDuration(facts.verifyRestoreMs),
    formatMiB(facts.memoryBytes),
    names.join(', ') || '-',
  ]);
  const heads = ['VERSION', 'DIGEST', 'CREATED (UTC)', 'RESTORE', 'MEMORY', 'ALIASES'];
  const pointers = aliases.map(({ alias, targets, updatedAt }) => [
    alias,
    targets.map(({ version, weight }) => (targets.length === 1 ? version : `${version}=${weight}`)).join(' '),
    formatInstant(updatedAt),
  ]);
  return `${renderTable(heads, versions)}\n${renderTable(['ALIAS', 'POINTS TO', 'MOVED (UTC)'], pointers)}`;
}

function addAlias(parent: Command, { context, client }: CommandDeps): void {
  const alias = parent.command('alias').description('move aliases');
  alias
    .command('set')
    .description('point an alias to one version, or to several by weight')
    .argument('<name>', 'template')
    .argument('<alias>', 'such as latest, live or canary')
    .argument('<version...>', 'v3, or v3=9 v4=1 for nine in ten calls to v3')
    .option('--json', 'print JSON')
    .action(async (name: string, aliasName: string, versions: string[], flags: Flags) => {
      const targets = versions.map(parseTarget);
      const set = await client().setAlias(name, aliasName, targets, { signal: context.interrupted });
      if (flags.json) return writeJson(context, set);
      await write(context.stderr, `${name}@${aliasName} points to ${versions.join(' ')}.\n`);
    });
}

function parseTarget(text: string): { version: string; weight: number } {
  const match = /^(v[1-9][0-9]*)(?:=([1-9][0-9]{0,3}))?$/.exec(text);
  if (match?.[1] === undefined) {
    throw new GatewayError(
      'invalid_request',
      `a target is a version such as v3, or v3=9 with a weight, not ${text}`,
      {
        field: '<version>',
      },
    );
  }
  return { version: match[1], weight: Number(match[2] ?? 1) };
}

function addRemove(parent: Command, { context, client }: CommandDeps): void {
  parent
    .command('rm')
    .description('remove a version, or a template with all of them')
    .argument('<name[@version]>', 'hello@v1, or hello with --yes')
    .option('--yes', 'needed to remove a whole template')
    .action(async (text: string, flags: { readonly yes?: boolean }) => {
      const options = { signal: context.interrupted };
      const [name = '', version, ...rest] = text.split('@');
      if (name === '' || version === '' || rest.length > 0) {
        throw new GatewayError(
          'invalid_request',
          `name a template or a version of it, such as hello@v1, not ${text}`,
        );
      }
      if (version !== undefined) {
        await client().removeVersion(name, version, options);
        return write(context.stderr, `Removed ${name}@${version}.\n`);
      }
      if (!flags.yes) {
        const { versions } = await client().template(name, options);
        throw new GatewayError(
          'invalid_request',
          `this removes ${name} with ${versions} version${versions === 1 ? '' : 's'} and stops it serving; say --yes to do so`,
          { field: '--yes' },
        );
      }
      await client().removeTemplate(name, options);
      await write(context.stderr, `Removed ${name}.\n`);
    });
}

function addSchema(parent: Command, { context }: CommandDeps): void {
  parent
    .command('schema')
    .description('print the JSON Schema of template.json')
    .action(() => writeJson(context, templateJsonSchema()));
}
