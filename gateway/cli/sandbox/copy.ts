import { stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { Command } from 'commander';
import { GatewayError, isGatewayError, type Sandbox, visibleText } from '../../../sdk/index.ts';
import { type CliContext, write } from '../context.ts';
import { type CopyCall, copyFileIn, copyFileOut, copyTreeIn, copyTreeOut } from './copy-tree.ts';
import type { SandboxCommandDeps } from './deps.ts';

/** One end of a copy: a file of ours, or `ID:/path` in a sandbox. */
type Place =
  | { readonly kind: 'local'; readonly path: string }
  | { readonly kind: 'sandbox'; readonly id: string; readonly path: string };

/** `snapgate sandbox cp`: a file or a folder, in or out; `-` is stdin or stdout. */
export function copyCommand({ context, snapgate }: SandboxCommandDeps): Command {
  return new Command('cp')
    .description('copy a file or a folder into a sandbox or out of it')
    .argument('<from>', 'FILE, FOLDER, - or ID:/PATH')
    .argument('<to>', 'FILE, FOLDER, - or ID:/PATH; one that is a directory keeps the name')
    .option('--user <name>', 'acts with the rights of this user inside (default: root)')
    .action(async (from: string, to: string, { user }: { user?: string }) => {
      const [source, target] = [placeOf(from), placeOf(to)];
      const signal = context.interrupted;
      const call = { user, signal };
      if (source.kind === 'local' && target.kind === 'sandbox') {
        const sandbox = await snapgate().sandboxes.get(target.id, { signal });
        await copyIn(context, source.path, sandbox, target.path, call);
      } else if (source.kind === 'sandbox' && target.kind === 'local') {
        const sandbox = await snapgate().sandboxes.get(source.id, { signal });
        await copyOut(context, sandbox, source.path, target.path, call);
      } else {
        throw new GatewayError('invalid_request', 'one end is a file here, the other ID:/PATH in a sandbox');
      }
    });
}

function placeOf(text: string): Place {
  const match = /^([a-z0-9]{20}):(\/.*)$/s.exec(text);
  return match === null ? { kind: 'local', path: text } : { kind: 'sandbox', id: match[1]!, path: match[2]! };
}

/** As a person reads it; the exit code stays that of a copy that was made. */
const skipping = (context: CliContext) => (path: string, type: string) =>
  write(context.stderr, `left out ${visibleText(path, { lines: 'one' })}: a ${type}\n`);

async function copyIn(
  context: CliContext,
  from: string,
  sandbox: Sandbox,
  to: string,
  call: CopyCall,
): Promise<void> {
  if (from === '-') return sandbox.files.write(to, context.stdin, call);
  const source = resolve(context.workingDirectory, from);
  const isTree = (await stat(source)).isDirectory();
  const target = (await isDirectory(sandbox, to, call))
    ? `${to.replace(/\/+$/, '')}/${basename(source)}`
    : to;
  if (isTree) await copyTreeIn(source, sandbox, target, call, skipping(context));
  else await copyFileIn(source, sandbox, target, call);
}

async function isDirectory(sandbox: Sandbox, path: string, call: CopyCall): Promise<boolean> {
  try {
    return (await sandbox.files.stat(path, call)).type === 'directory';
  } catch (error) {
    if (isGatewayError(error, 'file_not_found')) return false;
    throw error;
  }
}

async function copyOut(
  context: CliContext,
  sandbox: Sandbox,
  from: string,
  to: string,
  call: CopyCall,
): Promise<void> {
  if (to === '-') {
    for await (const chunk of await sandbox.files.stream(from, call)) await write(context.stdout, chunk);
    return;
  }
  const isTree = await isDirectory(sandbox, from, call);
  const wanted = resolve(context.workingDirectory, to);
  const isInto = await stat(wanted).then(
    (found) => found.isDirectory(),
    () => false,
  );
  const target = isInto ? join(wanted, basename(from)) : wanted;
  if (isTree) await copyTreeOut(sandbox, from, target, call, skipping(context));
  else await copyFileOut(sandbox, from, target, call);
}
