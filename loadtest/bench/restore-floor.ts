/**
 * The floor of a restore, measured without product code: a bare VMM with the same command line, state over a socket, `cont`,
 * greeting of the agent and its first answer. What a product can't be faster than.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Qmp } from './qmp.ts';

/** Read off a blank VMM of the product. */
export interface FloorRecipe {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The file of its writable layer, which is copied. */
  readonly diskPath: string;
  /** What its descriptors 3, 4 … are, all read-only. */
  readonly inherited: readonly string[];
  readonly statePath: string;
  readonly token: string;
}

/** One bare restore. @returns milliseconds from state to the agent's greeting, and to its first answer to a request */
export async function measureFloor(
  recipe: FloorRecipe,
): Promise<{ readonly greetedMs: number; readonly answeredMs: number }> {
  const directory = await mkdtemp(join(tmpdir(), 'floor-'));
  let child: ChildProcess | undefined;
  try {
    await cp(recipe.diskPath, join(directory, 'disk.qcow2'));
    const files = await Promise.all(recipe.inherited.map((path) => open(path, 'r')));
    const [binary, ...argv] = recipe.argv;
    child = spawn(binary!, argv, {
      cwd: directory,
      env: recipe.env,
      stdio: ['ignore', 'ignore', 'inherit', ...files.map((file) => file.fd)],
    });
    await Promise.all(files.map((file) => file.close()));
    const qmp = await Qmp.open(join(directory, 'qmp.sock'));
    await qmp.execute('migrate-set-capabilities', {
      capabilities: ['events', 'x-ignore-shared'].map((capability) => ({ capability, state: true })),
    });
    await qmp.execute('migrate-incoming', { uri: 'unix:incoming.sock' });
    const state = await readFile(recipe.statePath);
    // As long as a blank of the product usually waits.
    await sleep(300);

    const startedAt = performance.now();
    const feed = connect(join(directory, 'incoming.sock'));
    feed.end(state);
    await qmp.next(
      (message) =>
        message.event === 'MIGRATION' && (message.data as { status: string }).status === 'completed',
    );
    await qmp.execute('cont');
    const agent = connect(join(directory, 'agent.sock'));
    const nonce = randomBytes(16).toString('hex');
    const fields = [recipe.token, nonce, '0'.repeat(16), '0'.repeat(128)].join(' ');
    agent.write(`SNAPGATE-HELLO/2 ${fields}\n\n\n\n\n\n`);
    let heard = Buffer.alloc(0);
    while (!heard.includes(`SNAPGATE-READY/2 ${nonce} `) || heard.at(-1) !== 10) {
      await once(agent, 'readable');
      heard = Buffer.concat([heard, (agent.read() as Buffer | null) ?? Buffer.alloc(0)]);
    }
    const greetedMs = performance.now() - startedAt;
    const session = connectHttp2('http://guest', { createConnection: () => agent });
    const ping = session.request({ ':path': '/v1/ping' });
    await once(ping, 'response');
    ping.resume();
    await once(ping, 'end');
    const answeredMs = performance.now() - startedAt;
    session.destroy();
    return { greetedMs, answeredMs };
  } finally {
    child?.kill('SIGKILL');
    if (child !== undefined && child.exitCode === null && child.signalCode === null)
      await once(child, 'exit');
    await rm(directory, { recursive: true, force: true });
  }
}
