import { open } from 'node:fs/promises';
import { resolve } from 'node:path';
import { Command } from 'commander';
import { type AdminClient, GatewayError, type InvocationStart, visibleText } from '../../sdk/index.ts';
import { collected, wholeNumber } from './command-options.ts';
import { type CliContext, type OutputStream, write } from './context.ts';

interface Deps {
  readonly context: CliContext;
  readonly client: () => AdminClient;
  /** Called with the process's exit code when it is not 0 although nothing failed on our side. */
  readonly setExitCode: (code: number) => void;
}

interface Flags {
  readonly request?: string;
  readonly data?: string;
  readonly header: readonly string[];
  readonly include?: boolean;
  readonly fail?: boolean;
  readonly session?: string;
  readonly timeoutMs?: number;
}

/** `snapgate invoke`: one call of a function, its body on stdout. */
export function invokeCommand({ context, client, setExitCode }: Deps): Command {
  return new Command('invoke')
    .description('call a function and print its answer')
    .argument('<template>', 'NAME, NAME@VERSION or NAME@ALIAS')
    .argument('[path]', 'path and query as the function sees them', '/')
    .option('-X, --request <method>', 'method (default: GET, or POST with --data)')
    .option('-d, --data <data>', 'body; @FILE reads a file, @- stdin')
    .option('-H, --header <name: value>', 'add a header; may be repeated', collected, [])
    .option('-i, --include', 'tell on stderr the status, start type, machine, version and timing')
    .option('--fail', 'exit with 1 when the function answers 400 or more')
    .option('--session <id>', 'calls of one session go to one machine')
    .option('--timeout-ms <ms>', "budget of the function's own time", wholeNumber(1, 86_400_000))
    .action(async (template: string, path: string, flags: Flags) => {
      await using resources = new AsyncDisposableStack();
      const headers = parseHeaders(flags.header);
      const body = flags.data === undefined ? undefined : await requestBody(flags.data, context, resources);
      if (body !== undefined && !headers.has('content-type'))
        headers.set('content-type', guessType(flags.data));
      const { response, start } = await client().invoke(template, {
        path,
        headers,
        ...(flags.request === undefined ? {} : { method: flags.request }),
        ...(body === undefined ? {} : { body }),
        ...(flags.session === undefined ? {} : { session: flags.session }),
        ...(flags.timeoutMs === undefined ? {} : { timeoutMs: flags.timeoutMs }),
        signal: context.interrupted,
      });
      if (flags.include) await write(context.stderr, renderStart(response, start));
      await printBody(response, context.stdout);
      if (flags.fail && response.status >= 400) setExitCode(1);
    });
}

function parseHeaders(lines: readonly string[]): Headers {
  const headers = new Headers();
  for (const line of lines) {
    const colon = line.indexOf(':');
    try {
      if (colon < 1) throw new TypeError('there is no colon');
      headers.append(line.slice(0, colon).trim(), line.slice(colon + 1).trim());
    } catch (cause) {
      throw new GatewayError('invalid_request', 'a header is given as "name: value"', {
        field: '--header',
        cause,
      });
    }
  }
  return headers;
}

// Bytes, not a string: `fetch` would add a content type of its own to a string.
async function requestBody(
  data: string,
  context: CliContext,
  resources: AsyncDisposableStack,
): Promise<Uint8Array | AsyncIterable<Uint8Array>> {
  if (data === '@-') return context.stdin;
  if (!data.startsWith('@')) return new TextEncoder().encode(data);
  // Opened here, so that a wrong path fails before anything is sent.
  const file = resources.use(await open(resolve(context.workingDirectory, data.slice(1))));
  return file.createReadStream();
}

function guessType(data: string | undefined): string {
  if (data === undefined || data.startsWith('@')) return 'application/octet-stream';
  try {
    JSON.parse(data);
    return 'application/json';
  } catch {
    return 'text/plain; charset=utf-8';
  }
}

/** What `-i` prints: two lines about the answer and how it came to be. */
export function renderStart(response: Response, start: InvocationStart | null): string {
  const type = response.headers.get('content-type') ?? 'no content type';
  const first = visibleText(`${response.status} ${response.statusText} (${type})`, { lines: 'one' });
  if (start === null) return `${first}\n\n`;
  const { queueMs, restoreMs, execMs } = start.timing;
  return [
    first,
    visibleText(`start: ${start.type}   machine: ${start.machine}   version: ${start.version}`, {
      lines: 'one',
    }),
    `queue: ${queueMs} ms   restore: ${restoreMs} ms   exec: ${execMs} ms`,
    '',
    '',
  ].join('\n');
}

/** Bytes as they are for a pipe; on a terminal, control characters spelled out and a newline at the end. */
async function printBody(response: Response, stdout: OutputStream): Promise<void> {
  if (response.body === null) return;
  const decoder = new TextDecoder();
  let isLineOpen = false;
  for await (const chunk of response.body) {
    if (!stdout.isTTY) {
      await write(stdout, chunk);
      continue;
    }
    const text = decoder.decode(chunk, { stream: true });
    isLineOpen = text === '' ? isLineOpen : !text.endsWith('\n');
    await write(stdout, visibleText(text));
  }
  if (isLineOpen) await write(stdout, '\n');
}
