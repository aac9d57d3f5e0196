/** Runs the host's network tools: bounded in time and output, no shell, own environment. */
import { spawn } from 'node:child_process';
import { GatewayError } from '../../sdk/index.ts';

export interface CommandOptions {
  /** Written to standard input, which is then closed. */
  readonly input?: string;
  /** Milliseconds until it is killed. Default 10 000. */
  readonly timeoutMs?: number;
}

/** Resolves with standard output. Throws `host_not_ready`: the tool is missing or failed; its last words are in the error. */
export type RunCommand = (argv: readonly string[], options?: CommandOptions) => Promise<string>;

const maxOutputBytes = 4 * 2 ** 20;

export const runCommand: RunCommand = async (argv, options = {}) => {
  const [program = '', ...args] = argv;
  const child = spawn(program, args, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', LC_ALL: 'C' },
    timeout: options.timeoutMs ?? 10_000,
    killSignal: 'SIGKILL',
  });
  const output: Buffer[] = [];
  const errors: Buffer[] = [];
  const keep = (chunks: Buffer[]) => {
    let bytes = 0;
    return (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes <= maxOutputBytes) chunks.push(chunk);
      else child.kill('SIGKILL');
    };
  };
  child.stdout.on('data', keep(output));
  child.stderr.on('data', keep(errors));
  // The tool may end before it has read everything; its exit code tells.
  child.stdin.on('error', () => {});
  child.stdin.end(options.input ?? '');
  const { promise, resolve, reject } = Promise.withResolvers<number | null>();
  child.once('error', reject);
  child.once('close', resolve);
  const code = await promise.catch((cause: unknown) => {
    throw new GatewayError('host_not_ready', `could not start ${program}`, { component: 'edge', cause });
  });
  if (code === 0) return Buffer.concat(output).toString();
  throw new GatewayError('host_not_ready', `${argv.slice(0, 4).join(' ')} failed`, {
    component: 'edge',
    output: Buffer.concat(errors).toString().slice(0, 2000),
  });
};

/**
 * `argv` inside a named network namespace; null: where we are. Not by `ip -n`, which also remounts the root file system for
 * itself and so fails in a chroot.
 */
export const inNamespace = (netns: string | null, argv: readonly string[]): string[] =>
  netns === null ? [...argv] : ['nsenter', `--net=/run/netns/${netns}`, ...argv];
