import { z } from 'zod';
import type { Session } from './define.ts';
import type { SessionAnswer } from './session-http.ts';

/**
 * The sandbox routes as issue 3 and DESIGN §7 name them, in one place. None of this has run against a real gateway yet:
 * where the served names come out different, this file is the only one to change.
 */

const createdSchema = z.object({ id: z.string().regex(/^[a-z0-9]{1,64}$/) });
const forkedSchema = z.object({
  children: z.array(z.object({ id: z.string().optional(), error: z.unknown().optional() })),
});
const ranSchema = z.object({
  exitCode: z.number().int(),
  stdout: z.string(),
  stderr: z.string().default(''),
});
const snapshotSchema = z.object({ snapshot: z.string().min(1) });

/** What a command in a sandbox came to. */
type Ran = z.output<typeof ranSchema>;

/** A sandbox of a session. Nothing here is timed: wrap calls in `session.step`. */
export interface LoadSandbox {
  readonly id: string;
  readonly start: SessionAnswer['start'];
  /** Runs a shell command to its end. */
  run(command: string): Promise<Ran>;
  writeFile(path: string, bytes: Uint8Array): Promise<void>;
  readFile(path: string): Promise<Buffer>;
  listFiles(path: string): Promise<void>;
  /** Children in order; one that could not be made fails the call. */
  fork(count: number): Promise<LoadSandbox[]>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** The snapshot's id. */
  snapshot(): Promise<string>;
  rewind(snapshot: string): Promise<void>;
  kill(): Promise<void>;
}

/** Creates a sandbox and defers its end, so that a failed session leaves none behind. */
export async function createSandbox(session: Session<unknown>, template: string): Promise<LoadSandbox> {
  const answer = await session.http.send({
    method: 'POST',
    path: '/v1/sandboxes',
    json: { template, deadlineMs: 600_000 },
  });
  const { id } = read(session, createdSchema, answer);
  return owned(session, id, answer.start);
}

/** Reads one line of hex random bytes and the clock of the guest, and has both checked. */
export async function checkUniqueness(session: Session<unknown>, sandbox: LoadSandbox): Promise<void> {
  const askedAt = Date.now();
  const ran = await sandbox.run("od -An -N16 -tx1 /dev/urandom | tr -d ' \\n'; echo; date +%s%3N");
  const answeredAt = Date.now();
  const [hex = '', clock = ''] = ran.stdout.trim().split('\n');
  session.check.firstUse(
    'first command',
    sandbox.id,
    ran.exitCode === 0 ? null : `exit code ${ran.exitCode}`,
  );
  session.check.randomBytes('first command', sandbox.id, hex);
  session.check.guestClock('first command', sandbox.id, Number(clock), askedAt, answeredAt);
}

function owned(session: Session<unknown>, id: string, start: SessionAnswer['start']): LoadSandbox {
  let isKilled = false;
  const path = `/v1/sandboxes/${id}`;
  const post = (action: string, json: unknown = {}) =>
    session.http.send({ method: 'POST', path: `${path}/${action}`, json });
  const file = (name: string) => `${path}/files?path=${encodeURIComponent(name)}`;
  const sandbox: LoadSandbox = {
    id,
    start,
    run: async (command) =>
      read(session, ranSchema, await post('run', { command: ['/bin/sh', '-c', command] })),
    async writeFile(name, bytes) {
      await session.http.send({ method: 'PUT', path: file(name), bytes });
    },
    readFile: async (name) => (await session.http.send({ method: 'GET', path: file(name) })).bytes,
    async listFiles(name) {
      await session.http.send({ method: 'GET', path: `${path}/files/list?path=${encodeURIComponent(name)}` });
    },
    async fork(count) {
      const { children } = read(session, forkedSchema, await post('fork', { count, deadlineMs: 600_000 }));
      const made = children.filter((child) => child.id !== undefined);
      // Own them before judging, so that a partial success is cleaned up too.
      const sandboxes = made.map((child) => owned(session, child.id!, 'forked'));
      session.expect(sandboxes.length === count, `${sandboxes.length} of ${count} children were made`);
      return sandboxes;
    },
    async pause() {
      await post('pause');
    },
    async resume() {
      await post('resume');
    },
    snapshot: async () => read(session, snapshotSchema, await post('snapshot')).snapshot,
    async rewind(snapshot) {
      await post('rewind', { snapshot });
    },
    async kill() {
      if (isKilled) return;
      await session.http.send({ method: 'DELETE', path, accept: [200, 204, 404] });
      isKilled = true;
    },
  };
  session.defer(() => sandbox.kill());
  return sandbox;
}

function read<T>(session: Session<unknown>, schema: z.ZodType<T>, answer: SessionAnswer): T {
  const parsed = schema.safeParse(answer.json());
  const issue = parsed.error?.issues[0];
  session.expect(parsed.success, `unexpected answer: ${issue?.path.join('.')} ${issue?.message}`);
  return parsed.data as T;
}
