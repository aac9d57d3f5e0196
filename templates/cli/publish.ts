/** `snapgate publish`: from a folder to a version that serves. */
import { resolve } from 'node:path';
import { Command } from 'commander';
import { GatewayError, isTemplateName, type PublishEvent } from '../../sdk/index.ts';
import { loadDefinition, type TemplateDefinition } from '../definition/index.ts';
import { packTemplate } from '../publish/index.ts';
import { type CommandDeps, write, writeJson } from './port.ts';
import { formatDuration, formatMiB } from './table.ts';
import { TaskLines } from './task-lines.ts';

type Result = Extract<PublishEvent, { type: 'result' }>;

interface Flags {
  readonly name?: string;
  readonly json?: boolean;
}

/** Publishes a template folder. Its errors are those of the loader, the packer and the gateway. */
export function publishCommand({ context, client }: CommandDeps): Command {
  return new Command('publish')
    .description('build a template folder, verify it by restoring it once, and let it serve')
    .argument('[folder]', 'folder with template.json or template.ts', '.')
    .option('--name <name>', 'publish under this name instead of the definition’s')
    .option('--json', 'print the result as JSON')
    .action(async (folder: string, flags: Flags) => {
      const signal = context.interrupted;
      const path = resolve(context.workingDirectory, folder);
      const definition = renamed(await loadDefinition(path, { signal }), flags.name);
      const archive = await packTemplate(path, definition);
      const lines = new TaskLines(context);
      let result: Result | undefined;
      try {
        for await (const event of client().publish(definition.name, archive, { signal })) {
          if (event.type === 'result') result = event;
          else if (event.type !== 'error') await lines.show(event);
        }
      } finally {
        archive.destroy();
        await lines.end();
      }
      if (result === undefined)
        throw new GatewayError('internal', 'the gateway did not say how the publish ended');
      if (flags.json) return writeJson(context, result);
      await write(context.stdout, `${summary(result)}\n`);
    });
}

function renamed(definition: TemplateDefinition, name: string | undefined): TemplateDefinition {
  if (name === undefined) return definition;
  if (!isTemplateName(name)) {
    throw new GatewayError(
      'invalid_request',
      'a template name is 1 to 63 of a-z, 0-9 and -, no dash at the ends',
      {
        field: '--name',
      },
    );
  }
  return { ...definition, name };
}

function summary({ template, version, digest, unchanged, facts }: Result): string {
  const name = `${template}@${version}`;
  const short = digest.slice(0, 'sha256:'.length + 12);
  if (unchanged) return `${name} is unchanged (${short}); latest points to it.`;
  const first =
    facts.verifyFirstResponseMs === null
      ? ''
      : `, first answer ${formatDuration(facts.verifyFirstResponseMs)}`;
  return [
    `${name} is published (${short}); latest points to it.`,
    `  built in ${formatDuration(facts.buildMs)}, restored in ${formatDuration(facts.verifyRestoreMs)}${first}` +
      ` (${facts.accelerator}), memory image ${formatMiB(facts.memoryBytes)}`,
  ].join('\n');
}
