/** Reads the definition of a template folder, on the side of its author. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { GatewayError, visibleText } from '../../sdk/index.ts';
import { parseDefinition, parseDefinitionText } from './parse.ts';
import type { TemplateDefinition } from './schema.ts';

const maxDefinitionBytes = 1024 * 1024;
const maxStderrLength = 8192;
const evaluator = fileURLToPath(new URL('./evaluate.ts', import.meta.url));

export interface LoadOptions {
  readonly signal: AbortSignal;
  /** How long a `template.ts` may take to say what it exports, milliseconds. Default 20,000. */
  readonly timeoutMs?: number;
}

const refuse = (message: string, output = ''): GatewayError =>
  new GatewayError('invalid_definition', message, {
    component: 'templates',
    field: '(root)',
    ...(output === '' ? {} : { output }),
  });

/** Everything a stream says, up to a bound; what comes after it is read and dropped. */
async function read(stream: Readable, maxLength: number, keep: 'start' | 'end'): Promise<string> {
  let text = '';
  for await (const chunk of stream.setEncoding('utf8')) {
    text += chunk;
    if (text.length > maxLength)
      text = keep === 'start' ? text.slice(0, maxLength + 1) : text.slice(-maxLength);
  }
  return text;
}

/**
 * Imports a `template.ts` in a process of its own, so that it can neither change nor hang this one. It is the author's
 * own file and runs with the author's rights.
 */
async function evaluate(path: string, { signal, timeoutMs = 20_000 }: LoadOptions): Promise<unknown> {
  signal.throwIfAborted();
  const deadline = AbortSignal.timeout(timeoutMs);
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', evaluator, path], {
    stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
    signal: AbortSignal.any([signal, deadline]),
    killSignal: 'SIGKILL',
  });
  const failed = once(child, 'error').then(([error]) => error as Error);
  const exited = once(child, 'close').then(([code]) => code as number | null);
  const [json, stderr, outcome] = await Promise.all([
    read(child.stdio[3] as Readable, maxDefinitionBytes, 'start').catch(() => ''),
    read(child.stderr as Readable, maxStderrLength, 'end').catch(() => ''),
    Promise.race([exited, failed]),
  ]);
  signal.throwIfAborted();
  if (deadline.aborted)
    throw refuse(`template.ts did not finish within ${timeoutMs / 1000} s`, visibleText(stderr));
  if (outcome !== 0) throw refuse('template.ts could not be loaded', visibleText(stderr));
  if (json.length > maxDefinitionBytes)
    throw refuse('the definition that template.ts exports is larger than 1 MiB');
  return JSON.parse(json);
}

const isFile = (path: string): Promise<boolean> =>
  stat(path).then(
    (stats) => stats.isFile(),
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return false;
      throw error;
    },
  );

/**
 * The definition in `template.json`, or the default export of `template.ts`, of a folder.
 * @throws GatewayError `invalid_request` without either, `invalid_definition` (with what `template.ts` printed to stderr),
 *   `not_supported_yet`
 */
export async function loadDefinition(folder: string, options: LoadOptions): Promise<TemplateDefinition> {
  const [json, script] = [join(folder, 'template.json'), join(folder, 'template.ts')];
  const [hasJson, hasScript] = await Promise.all([isFile(json), isFile(script)]);
  if (hasJson && hasScript)
    throw refuse('both template.json and template.ts are there; which one counts is unclear');
  if (hasScript) return parseDefinition(await evaluate(script, options));
  if (hasJson) return parseDefinitionText(await readFile(json, 'utf8'));
  throw new GatewayError(
    'invalid_request',
    `${folder} has neither template.json nor template.ts; \`snapgate init\` writes a template to start from`,
    { component: 'templates' },
  );
}
