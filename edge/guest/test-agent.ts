/** Test support: the real agent, built with sanitizers, on a unix socket of this host instead of a virtio port. */
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { access, constants, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { connectGuest } from './connect.ts';
import type { SandboxChannel } from './port.ts';

const agentDirectory = path.join(import.meta.dirname, '../../templates/agent');
const run = promisify(execFile);

export interface TestAgent extends AsyncDisposable {
  readonly pid: number;
  readonly socketPath: string;
  readonly token: string;
  /** A directory for the test's own files; removed with the agent. */
  readonly directory: string;
  /** Whether processes get control groups, as they do in a guest. */
  readonly hasGroups: boolean;
  connect(token?: string): Promise<SandboxChannel>;
  /** Stops the agent and throws when it did not end well, a sanitizer complained, or it left something behind. */
  stop(): Promise<void>;
}

/** A writable cgroup2 file system of this host, or null: then tests that need control groups are skipped. */
async function cgroupRoot(): Promise<string | null> {
  const mounts = readFileSync('/proc/self/mounts', 'utf8').split('\n');
  const place = mounts.map((line) => line.split(' ')).find((fields) => fields[2] === 'cgroup2')?.[1];
  if (place === undefined) return null;
  return access(place, constants.W_OK).then(
    () => place,
    () => null,
  );
}

/** Builds what is out of date. */
async function buildTestAgent(): Promise<string> {
  await run('make', ['-s', '-C', agentDirectory, 'test']);
  return path.join(agentDirectory, 'build/agent-sanitized');
}

export async function startTestAgent(): Promise<TestAgent> {
  const program = await buildTestAgent();
  const directory = await mkdtemp(path.join(tmpdir(), 'snapgate-agent-'));
  const socketPath = path.join(directory, 'agent.sock');
  const token = randomBytes(32).toString('hex');
  const root = await cgroupRoot();
  const groups = root === null ? null : path.join(root, path.basename(directory));
  const args = ['--socket', socketPath, '--token', token, ...(groups === null ? [] : ['--groups', groups])];
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  const exited = once(child, 'exit');
  await new Promise<void>((resolve, reject) => {
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      said += text;
      if (said.includes('ready')) resolve();
    });
    child.once('error', reject);
    child.once('exit', () => reject(new Error(`the agent did not start: ${said}`)));
  });

  let stopping: Promise<void> | undefined;
  const stop = async () => {
    child.kill('SIGTERM');
    const [code, signal] = (await exited) as [number | null, string | null];
    const isGroupLeft = groups !== null && existsSync(groups);
    await rm(directory, { recursive: true, force: true });
    if (code !== 0 || said.includes('Sanitizer') || said.includes('runtime error') || isGroupLeft)
      throw new Error(`the agent ended with ${code ?? signal}${isGroupLeft ? ', group left' : ''}:\n${said}`);
  };
  const stopOnce = () => {
    stopping ??= stop();
    return stopping;
  };
  return {
    pid: child.pid!,
    socketPath,
    token,
    directory,
    hasGroups: groups !== null,
    connect: (other = token) =>
      connectGuest({ socketPath, token: other, signal: AbortSignal.timeout(10_000) }),
    stop: stopOnce,
    [Symbol.asyncDispose]: stopOnce,
  };
}

/** Open descriptors of a process: what a leak would raise. */
export async function descriptorCount(pid: number): Promise<number> {
  const { stdout } = await run('ls', [`/proc/${pid}/fd`]);
  return stdout.trim().split('\n').length;
}

export async function readText(stream: AsyncIterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString('utf8');
}
