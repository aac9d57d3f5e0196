import { createWriteStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream as NodeReadableStream } from 'node:stream/web';
import { Command } from 'commander';
import { GatewayError, isGatewayError, type Sandbox } from '../../../sdk/index.ts';
import { type CliContext, write } from '../context.ts';
import type { SandboxCommandDeps } from './deps.ts';

/** One end of a copy: a file of ours, or `ID:/path` in a sandbox. */
type Place =
  | { readonly kind: 'local'; readonly path: string }
  | { readonly kind: 'sandbox'; readonly id: string; readonly path: string };

/** `snapgate sandbox cp`: one file, in or out; `-` is stdin or stdout. */
export function copyCommand({ context, snapgate }: SandboxCommandDeps): Command {
  return new Command('cp')
    .description('copy a file into a sandbox or out of it')
    .argument('<from>', 'FILE, - or ID:/PATH')
    .argument('<to>', 'FILE, - or ID:/PATH; a directory keeps the name')
    .option('--user <name>', 'acts with the rights of this user inside (default: root)')
    .action(async (from: string, to: string, { user }: { user?: string }) => {
      const [source, target] = [placeOf(from), placeOf(to)];
      const signal = context.interrupted;
      if (source.kind === 'local' && target.kind === 'sandbox') {
        const sandbox = await snapgate().sandboxes.get(target.id, { signal });
        await copyIn(context, source.path, sandbox, target.path, user);
      } else if (source.kind === 'sandbox' && target.kind === 'local') {
        const sandbox = await snapgate().sandboxes.get(source.id, { signal });
        await copyOut(context, sandbox, source.path, target.path, user);
      } else {
        throw new GatewayError('invalid_request', 'one end is a file here, the other ID:/PATH in a sandbox');
      }
    });
}

function placeOf(text: string): Place {
  const match = /^([a-z0-9]{20}):(\/.*)$/s.exec(text);
  return match === null ? { kind: 'local', path: text } : { kind: 'sandbox', id: match[1]!, path: match[2]! };
}

async function copyIn(
  context: CliContext,
  from: string,
  sandbox: Sandbox,
  to: string,
  user: string | undefined,
): Promise<void> {
  const call = { user, signal: context.interrupted };
  if (from === '-') return sandbox.files.write(to, context.stdin, call);
  await using file = await open(resolve(context.workingDirectory, from));
  const { mode } = await file.stat();
  const path = (await isDirectory(sandbox, to, user)) ? join(to, basename(from)) : to;
  const data = file.createReadStream({ autoClose: false });
  await sandbox.files.write(path, data, { ...call, mode: mode & 0o777 });
}

async function isDirectory(sandbox: Sandbox, path: string, user: string | undefined): Promise<boolean> {
  try {
    return (await sandbox.files.stat(path, { user })).type === 'directory';
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
  user: string | undefined,
): Promise<void> {
  const { interrupted: signal } = context;
  const stream = await sandbox.files.stream(from, { user, signal });
  const bytes = Readable.fromWeb(stream as unknown as NodeReadableStream<Uint8Array>);
  if (to === '-') {
    for await (const chunk of bytes) await write(context.stdout, chunk as Uint8Array);
    return;
  }
  const wanted = resolve(context.workingDirectory, to);
  const isInto = await stat(wanted).then(
    (found) => found.isDirectory(),
    () => false,
  );
  await pipeline(bytes, createWriteStream(isInto ? join(wanted, basename(from)) : wanted), { signal });
}
