/** What a user would run on the host instead of a machine: a process per request, a warm server, an isolate. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Client } from 'undici';
import { z } from 'zod';

const app = join(import.meta.dirname, 'app');

const answerSchema = z.object({
  served: z.number().int().min(1),
  found: z.number(),
  size: z.literal(50_000),
});

/** Reads an answer of the bench's program. Throws when it is none. @returns requests its instance has served, this one included */
export const readAnswer = (body: string): number => answerSchema.parse(JSON.parse(body)).served;

/** A server on the host, and a connection to it that stays open. */
export interface HostServer extends AsyncDisposable {
  request(): Promise<void>;
}

/** Milliseconds from nothing to the answer of a process that serves one request. */
export async function runProcess(): Promise<number> {
  const from = performance.now();
  const child = spawn(process.execPath, [join(app, 'once.mjs')], { stdio: ['ignore', 'pipe', 'inherit'] });
  let body = '';
  for await (const chunk of child.stdout.setEncoding('utf8')) body += chunk;
  readAnswer(body);
  return performance.now() - from;
}

/** The same program as a plain Node server. */
export function startNodeServer(): Promise<HostServer> {
  const child = spawn(process.execPath, [join(app, 'main.mjs')], {
    env: { ...process.env, PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return served(child, (line) => Number(line));
}

/** The package brings no types; its main module names the binary for this platform. */
function workerdBinary(): string {
  const require = createRequire(import.meta.url);
  return z.object({ default: z.string() }).parse(require('workerd')).default;
}

/** The same program as a module of a workerd process. */
export async function startWorkerd(): Promise<HostServer> {
  const child = spawn(workerdBinary(), ['serve', join(app, 'workerd.capnp'), '--control-fd=1'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  return served(child, (line) => z.object({ port: z.number() }).parse(JSON.parse(line)).port);
}

async function served(child: ChildProcess, portIn: (line: string) => number): Promise<HostServer> {
  const [line] = (await once(createInterface(child.stdout!), 'line')) as [string];
  const client = new Client(`http://127.0.0.1:${portIn(line)}`);
  return {
    async request() {
      const answer = await client.request({ method: 'GET', path: '/' });
      readAnswer(await answer.body.text());
    },
    async [Symbol.asyncDispose]() {
      await client.destroy();
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
  };
}
