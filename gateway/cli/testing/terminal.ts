/** A process for the CLI's tests: streams that remember, a home of its own, and a gateway that answers from a table. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import { runCli } from '../cli.ts';
import type { CliContext } from '../context.ts';
import type { CommandEntry } from '../program.ts';

export interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Setting {
  readonly env?: Record<string, string>;
  readonly stdin?: string;
  readonly isTTY?: boolean;
  readonly interrupted?: AbortSignal;
  readonly entries?: readonly CommandEntry[];
  readonly workingDirectory?: string;
  readonly userId?: number;
  /** Called with all of stdout so far at each write. */
  readonly onStdout?: (soFar: string) => void;
}

/** A directory which goes away with the test. */
export async function temporaryDirectory(context: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'snapgate-cli-'));
  context.after(() => rm(path, { recursive: true }));
  return path;
}

/** A context in which nothing of the real process shows, and what was written to it. */
export function makeContext(home: string, setting: Setting = {}) {
  const output = { stdout: '', stderr: '' };
  const stream = (name: 'stdout' | 'stderr') =>
    Object.assign(
      new Writable({
        write(chunk, _, done) {
          output[name] += String(chunk);
          if (name === 'stdout') setting.onStdout?.(output.stdout);
          done();
        },
      }),
      { isTTY: setting.isTTY ?? false },
    );
  const context: CliContext = {
    env: setting.env ?? {},
    workingDirectory: setting.workingDirectory ?? home,
    homeDirectory: home,
    userId: setting.userId ?? 12_345,
    stdin: Readable.from(setting.stdin === undefined ? [] : [Buffer.from(setting.stdin)]),
    stdout: stream('stdout'),
    stderr: stream('stderr'),
    interrupted: setting.interrupted ?? new AbortController().signal,
    now: () => 1_000_000_000_000,
  };
  return { context, output };
}

/** Runs `snapgate …words` with a home directory of its own. */
export async function run(
  context: TestContext,
  words: readonly string[],
  setting: Setting = {},
): Promise<Ran> {
  const made = makeContext(await temporaryDirectory(context), setting);
  const code = await runCli(words, made.context, setting.entries);
  return { code, ...made.output };
}

/** What a request to the fake gateway was. */
interface Seen {
  readonly route: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

/** Answers one route: a JSON value, or whatever the function does with the response. */
export type Answer = unknown | ((response: ServerResponse) => void);

/** An address at which nobody listens any more. */
export async function closedAddress(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return `http://127.0.0.1:${port}`;
}

/** An HTTP server on a port of the system's choice which answers `METHOD /path` from a table; anything else is 404. */
export async function fakeGateway(context: TestContext, answers: Readonly<Record<string, Answer>>) {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    const route = `${request.method} ${request.url}`;
    seen.push({ route, headers: request.headers, body: await text(request) });
    const answer = answers[route];
    if (typeof answer === 'function') return void answer(response);
    if (answer === undefined) return void response.writeHead(404).end('no such route in this test');
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  context.after(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url, seen, env: { SNAPGATE_URL: url, SNAPGATE_API_KEY: 'e2b_test' } };
}
