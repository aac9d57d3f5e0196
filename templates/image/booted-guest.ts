/** For tests of images: boots them under plain QEMU with the real agent, without any of the edge's code. */
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type ClientHttp2Session, connect } from 'node:http2';
import { createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { runCommand } from './command.ts';
import { buildEnvironment } from './debian.ts';
import type { KernelImage } from './image-builder.ts';

/** A running guest. Disposal kills it and removes its files. */
export interface BootedGuest extends AsyncDisposable {
  /** Runs a program to its end as root, or as `user`; answers what it printed. */
  run(argv: readonly string[], user?: string): Promise<{ exitCode: number; output: string }>;
  console(): Promise<string>;
}

const bootTimeoutMs = 180_000;

/** Boots kernel and root with 512 MiB and an empty scratch disk. Fails with the console's last lines. */
export async function bootGuest(kernel: KernelImage, rootPath: string): Promise<BootedGuest> {
  const directory = await mkdtemp(join(tmpdir(), 'guest-'));
  const at = (name: string): string => join(directory, name);
  const token = randomBytes(32).toString('hex');
  const options = { signal: AbortSignal.timeout(60_000), env: buildEnvironment };
  await runCommand('truncate', ['--size=256M', at('scratch')], options);
  await runCommand('mkfs.ext4', ['-q', '-F', at('scratch')], options);
  const drive = (id: string, path: string, more: string) => [
    ...['-drive', `if=none,id=${id},file=${path.replaceAll(',', ',,')},format=raw,${more}`],
    ...['-device', `virtio-blk-pci,drive=${id}`],
  ];
  const qemu = spawn(
    'qemu-system-x86_64',
    [
      ...[
        '-M',
        'q35',
        '-accel',
        'tcg',
        '-cpu',
        'max',
        '-m',
        '512',
        '-nodefaults',
        '-no-user-config',
        '-no-reboot',
      ],
      ...['-display', 'none', '-serial', `file:${at('console')}`],
      ...drive('root', rootPath, 'readonly=on,file.locking=off'),
      ...drive('scratch', at('scratch'), 'cache=unsafe'),
      ...[
        '-chardev',
        `socket,id=agent,path=${at('agent')},server=on,wait=off`,
        '-device',
        'virtio-serial-pci',
      ],
      ...['-device', 'virtserialport,chardev=agent,name=snapgate.agent'],
      ...['-kernel', kernel.vmlinuzPath, '-initrd', kernel.initrdPath],
      ...['-append', `console=ttyS0 panic=-1 quiet snapgate.token=${token}`],
    ],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const gone = once(qemu, 'exit');
  const consoleText = (): Promise<string> => readFile(at('console'), 'utf8').catch(() => '');
  let session: ClientHttp2Session | undefined;
  const dispose = async (): Promise<void> => {
    session?.destroy();
    if (qemu.exitCode === null && qemu.signalCode === null) {
      qemu.kill('SIGKILL');
      await gone;
    }
    await rm(directory, { recursive: true });
  };
  try {
    const connected = openSession(at('agent'), token, AbortSignal.timeout(bootTimeoutMs));
    session = await Promise.race([connected, gone.then(() => Promise.reject(new Error('QEMU ended')))]);
  } catch (error) {
    const tail = (await consoleText()).split('\n').slice(-20).join('\n');
    await dispose();
    throw new Error(`the guest did not come up: ${tail}`, { cause: error });
  }
  const open = session;
  return {
    console: consoleText,
    run: (argv, user) => runInGuest(open, argv, user ?? 'root'),
    [Symbol.asyncDispose]: dispose,
  };
}

/** Says hello as PROTOCOL.md has it, drops all bytes before the answer, and speaks HTTP/2 from there on. */
async function openSession(path: string, token: string, signal: AbortSignal): Promise<ClientHttp2Session> {
  const socket = await connectWhenThere(path, signal);
  const nonce = randomBytes(16).toString('hex');
  const answer = new RegExp(`SNAPGATE-READY/2 ${nonce} [0-9a-f]{16}\n$`);
  const fields = [token, nonce, '0'.repeat(16), '0'.repeat(128)].join(' ');
  let received = '';
  // The agent may not listen yet while the kernel boots, so hello is said until it is answered.
  const saying = setInterval(() => socket.write(`SNAPGATE-HELLO/2 ${fields}\n\n\n\n\n\n`), 500);
  try {
    while (!answer.test(received)) {
      const [chunk] = (await once(socket, 'data', { signal })) as [Buffer];
      received = (received + chunk.toString('latin1')).slice(-4096);
    }
  } finally {
    clearInterval(saying);
  }
  return connect('http://guest', { createConnection: () => socket });
}

async function connectWhenThere(path: string, signal: AbortSignal): Promise<Socket> {
  for (;;) {
    const socket = createConnection(path);
    try {
      await once(socket, 'connect', { signal });
      return socket;
    } catch {
      socket.destroy();
      signal.throwIfAborted();
      await sleep(50, undefined, { signal });
    }
  }
}

async function request(session: ClientHttp2Session, method: string, path: string, body?: unknown) {
  const stream = session.request({ ':method': method, ':path': path, 'content-type': 'application/json' });
  stream.end(body === undefined ? undefined : JSON.stringify(body));
  const [headers] = (await once(stream, 'response')) as [{ ':status': number }];
  const text = Buffer.concat(await stream.toArray()).toString('utf8');
  if (headers[':status'] >= 300) throw new Error(`${method} ${path}: ${headers[':status']} ${text}`);
  return text;
}

let processNumber = 0;

async function runInGuest(session: ClientHttp2Session, argv: readonly string[], user: string) {
  processNumber += 1;
  const path = `/v1/processes/test-${processNumber}`;
  await request(session, 'POST', '/v1/processes', { id: `test-${processNumber}`, argv, user });
  const { exitCode } = JSON.parse(await request(session, 'GET', `${path}/wait`)) as { exitCode: number };
  const stdout = await request(session, 'GET', `${path}/output/stdout?offset=0`);
  const stderr = await request(session, 'GET', `${path}/output/stderr?offset=0`);
  return { exitCode, output: stdout + stderr };
}
