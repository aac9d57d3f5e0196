import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createAdminClient, Snapgate } from '../sdk/index.ts';
import { leaksOf, makeDataDirectory, publishDrill } from './testing/drill-node.ts';

const cliPath = join(import.meta.dirname, 'cli/main.ts');
const everyMs = 100;

let dataDirectory: string;
before(async () => {
  dataDirectory = await makeDataDirectory();
});
after(async () => {
  assert.deepEqual(await leaksOf(dataDirectory), []);
  await rm(dataDirectory, { recursive: true, force: true });
});

/** Does what systemd does for a socket unit: keeps the listening socket while services that serve on it come and go. */
class SocketHolder implements AsyncDisposable {
  readonly #shell: ChildProcess;
  readonly #lines: AsyncIterator<string>;
  readonly port: number;
  #pid: number | undefined;

  private constructor(shell: ChildProcess, port: number) {
    this.#shell = shell;
    this.#lines = createInterface({ input: shell.stdout! })[Symbol.asyncIterator]();
    this.port = port;
  }

  static async open(): Promise<SocketHolder> {
    const server: Server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    // Node has no way to hand a listening socket to a program that is no Node, other than its number.
    const { fd } = (server as unknown as { _handle: { fd: number } })._handle;
    const shell = spawn('bash', ['-c', 'while IFS= read -r line; do eval "$line"; done'], {
      stdio: ['pipe', 'pipe', 'inherit', fd],
    });
    server.close();
    return new SocketHolder(shell, port);
  }

  async #ask(line: string): Promise<string> {
    this.#shell.stdin!.write(`${line}\n`);
    return (await this.#lines.next()).value as string;
  }

  /** Resolves when a service serves on the socket; there is one at a time. */
  async start(log: string): Promise<void> {
    const words = [
      process.execPath,
      cliPath,
      'up',
      '--data',
      dataDirectory,
      '--listen',
      'fd:3',
      '--tls',
      'off',
    ];
    const pid = Number(await this.#ask(`${words.join(' ')} >/dev/null 2>${log} </dev/null & echo $!`));
    this.#pid = pid;
    for (;;) {
      const said = await readFile(log, 'utf8').catch(() => '');
      if (said.includes('serves on')) return;
      assert.doesNotThrow(() => process.kill(pid, 0), `it ended: ${said}`);
      await sleep(50);
    }
  }

  /** Asks it to stop. @returns its exit code */
  async stop(): Promise<number> {
    const pid = this.#pid!;
    this.#pid = undefined;
    process.kill(pid, 'SIGTERM');
    return Number(await this.#ask(`wait ${pid}; echo $?`));
  }

  async [Symbol.asyncDispose]() {
    if (this.#pid !== undefined) await this.stop();
    this.#shell.stdin!.end();
    await once(this.#shell, 'exit');
  }
}

test('restarted on a socket that somebody keeps, it fails no request, and sandboxes live on', async () => {
  await using holder = await SocketHolder.open();
  const log = join(dataDirectory, 'up.log');
  await holder.start(log);
  const { apiKey } = JSON.parse(await readFile(join(dataDirectory, 'credentials.json'), 'utf8')) as {
    apiKey: string;
  };
  const access = { url: `http://127.0.0.1:${holder.port}`, apiKey };
  const client = createAdminClient(access);
  // What comes in the seconds of a restart all waits at once.
  await publishDrill(client, { admission: { queue: { depth: 1000, timeoutMs: 60_000 } } });
  await using sandbox = await new Snapgate(access).sandboxes.create({ template: 'drill' });
  const counting = await sandbox.start(['sh', '-c', 'read line; echo "heard $line"']);

  const outcomes: Promise<string>[] = [];
  let isLoading = true;
  const load = (async () => {
    while (isLoading) {
      const call = client.invoke('drill').then(
        async ({ response }) => `${response.status} ${(await response.text()).length > 0}`,
        (error: Error) => `failed: ${error}: ${(error.cause as Error | undefined)?.stack}`,
      );
      outcomes.push(call);
      await sleep(everyMs);
    }
  })();
  try {
    for (let round = 0; round < 2; round++) {
      await sleep(1_000);
      assert.equal(await holder.stop(), 0, 'it stops cleanly');
      await holder.start(log);
    }
    await sleep(1_000);
  } finally {
    isLoading = false;
    await load;
  }
  assert.deepEqual([...new Set(await Promise.all(outcomes))], ['200 true']);
  assert.ok(outcomes.length > 30, `${outcomes.length} requests were made`);

  const again = await new Snapgate(access).sandboxes.get(sandbox.id);
  const survivor = again.process(counting.id);
  await survivor.write('after two restarts\n');
  const ended = await survivor.wait();
  assert.equal(ended.exitCode, 0);
});
