/** `npm start`: serves from the checkout's own data directory, publishes the examples and shows one real invocation of each. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { e2bExports } from '../gateway/cli/e2b-exports.ts';
import type { RunningService } from '../gateway/runtime.ts';
import { up } from '../gateway/up.ts';
import { createAdminClient, errorCodes, GatewayError, type PublishEvent } from '../sdk/index.ts';
import { packTemplate, parseDefinition } from '../templates/index.ts';

const root = join(import.meta.dirname, '..');
const dataDirectory = process.env.SNAPGATE_DATA ?? join(root, '.snapgate');
const examples = ['hello-python', 'hello-node', 'base'];
const startedAt = performance.now();

const say = (text: string) => process.stdout.write(`${text}\n`);
const since = (from: number) => `${((performance.now() - from) / 1000).toFixed(1)} s`;

function showProgress(name: string): (event: PublishEvent) => void {
  return (event) => {
    if (event.type === 'task' && event.state === 'started') return;
    if (event.type === 'task')
      say(
        `  ${name}: ${event.title} ${event.state === 'done' ? `(${((event.ms ?? 0) / 1000).toFixed(1)} s)` : event.state}`,
      );
    if (event.type === 'output' && process.env.SNAPGATE_VERBOSE) process.stdout.write(event.text);
  };
}

async function main(): Promise<void> {
  let step = { title: '', at: 0 };
  const nextStep = (title: string) => {
    if (step.title !== '') say(`✔ ${step.title} (${since(step.at)})`);
    step = { title, at: performance.now() };
  };
  const service = await up({
    dataDirectory,
    ...(process.env.SNAPGATE_LISTEN === undefined ? {} : { listen: process.env.SNAPGATE_LISTEN }),
    ...(process.env.SNAPGATE_DOMAIN === undefined ? {} : { domain: process.env.SNAPGATE_DOMAIN }),
    ...(process.env.SNAPGATE_TLS_LISTEN === undefined
      ? {}
      : { tls: { listen: process.env.SNAPGATE_TLS_LISTEN } }),
    onStep: nextStep,
    logLevel: process.env.SNAPGATE_LOG ?? 'warn',
  });
  nextStep('Serve');
  let closing: Promise<void> | undefined;
  const stop = () => {
    if (closing !== undefined) process.exit(130);
    say('\nStopping…');
    closing = service.close().then(() => {
      say('Stopped; nothing is left running.');
    });
  };
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);

  try {
    await show(service, nextStep);
  } catch (error) {
    if (closing === undefined) {
      await service.close();
      throw error;
    }
  }
}

/** Publishes and invokes the examples through the public API, as any user would. */
async function show(service: RunningService, nextStep: (title: string) => void): Promise<void> {
  const client = createAdminClient({ url: service.url, apiKey: service.apiKey });
  if ((await client.templates()).length > 0) {
    nextStep('Wait for warm machines of what is published');
    await service.ready;
    say(`  ready to serve after ${since(startedAt)}`);
  }
  nextStep('Publish the examples');
  for (const name of examples) {
    const folder = join(root, 'templates/examples', name);
    const show = showProgress(name);
    for await (const event of client.publish(
      name,
      await packTemplate(
        folder,
        parseDefinition(JSON.parse(await readFile(join(folder, 'template.json'), 'utf8'))),
      ),
    ))
      show(event);
  }
  nextStep('');
  say('');
  for (const name of examples) {
    if (name === 'base') continue;
    const calledAt = performance.now();
    const { response, start } = await client.invoke(name);
    const body = (await response.text()).trim();
    say(
      `${name} answered ${response.status} in ${(performance.now() - calledAt).toFixed(0)} ms from a ${start?.type} machine: ${body}`,
    );
  }
  const cli = 'npm run -s snapgate --';
  say(`\nServing on ${service.url}, ready after ${since(startedAt)}; Ctrl-C stops it.${service.isNewKey ? `\nAPI key (shown this once): ${service.apiKey}` : ''}
Try next:
  curl -H 'Authorization: Bearer ${service.isNewKey ? service.apiKey : '<key>'}' ${service.url}/fn/hello-python/
  ${cli} invoke hello-node -i
  ${cli} ps
  ${cli} init python my-function && ${cli} publish my-function`);
  if (service.e2b !== null) say(`\n${e2bExports(service.e2b, service.isNewKey ? service.apiKey : null)}`);
}

try {
  await main();
} catch (error) {
  const isKnown = error instanceof GatewayError;
  process.stderr.write(
    `error${isKnown ? `[${error.code}]` : ''}: ${error instanceof Error ? error.message : error}\n`,
  );
  if (isKnown && error.details.output !== undefined) process.stderr.write(`${error.details.output}\n`);
  if (isKnown) process.stderr.write(`→ ${errorCodes[error.code].remediation}\n`);
  else if (error instanceof Error) process.stderr.write(`${error.stack}\n`);
  process.exitCode = 1;
}
