import type { z } from 'zod';
import {
  type CreatedSandbox,
  createdSandboxSchema,
  forkResultSchema,
  headerNames,
  processStatusSchema,
  sandboxSchema,
  snapshotSchema,
} from '../../sdk/index.ts';
import type { StartLabel } from '../record/labels.ts';
import type { Session } from './define.ts';
import type { SessionAnswer } from './session-http.ts';

/**
 * Sandboxes as a session drives them: the gateway's own routes, one request for each thing asked, never repeated. The SDK's
 * client repeats what was refused for now, which here would hide refusals in latency.
 */

/** What a command in a sandbox came to. */
interface Ran {
  readonly exitCode: number | null;
  readonly stdout: string;
}

/** A sandbox of a session. Nothing here is timed: wrap calls in `session.step`. */
export interface LoadSandbox {
  readonly id: string;
  /** How its machine came to be. */
  readonly start: StartLabel;
  /** Runs a shell command to its end; what it wrote to both outputs has been read by then. */
  run(command: string): Promise<Ran>;
  writeFile(path: string, bytes: Uint8Array): Promise<void>;
  readFile(path: string): Promise<Buffer>;
  listFiles(path: string): Promise<void>;
  /** Children in order; one that could not be made fails the call. */
  fork(count: number): Promise<LoadSandbox[]>;
  pause(): Promise<void>;
  resume(): Promise<void>;
  /** The snapshot's id; it is removed when the session ends. */
  snapshot(): Promise<string>;
  rewind(snapshot: string): Promise<void>;
  kill(): Promise<void>;
}

/** Longer than any session, so that only the harness's own clean-up ends a sandbox. */
const deadlineMs = 3_600_000;
/** How long one request waits for the end of a command; then the next one does. */
const waitMs = 20_000;

/** Sessions take seconds, so that some milliseconds of lateness change nothing; the leak check sees what they forget. */
export const sessionDefaults = { leakCheck: true, lagP99Ms: 100 } as const;

/** Creates a sandbox and defers its end, so that a failed session leaves none behind. */
export async function createSandbox(session: Session<unknown>, template: string): Promise<LoadSandbox> {
  const answer = await post(session, '/v1/sandboxes', { template, deadlineMs }, 'once');
  const made = read(session, createdSandboxSchema, answer);
  const { expectedDigests } = session;
  if (expectedDigests.length > 0) {
    const isExpected = expectedDigests.includes(made.digest);
    session.check.digest(
      'create',
      made.id,
      made.digest,
      isExpected ? made.digest : expectedDigests.join(' or '),
    );
  }
  return owned(session, made);
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

function owned(session: Session<unknown>, made: CreatedSandbox): LoadSandbox {
  let isKilled = false;
  const { id, digest } = made;
  const path = `/v1/sandboxes/${id}`;
  const act = (action: string, json?: unknown) => post(session, `${path}/${action}`, json);
  const make = (action: string, json: unknown) => post(session, `${path}/${action}`, json, 'once');
  const get = (what: string) => session.http.send({ method: 'GET', path: `${path}/${what}` });
  const file = (name: string) => `files?path=${encodeURIComponent(name)}`;
  const sandbox: LoadSandbox = {
    id,
    start: made.start,
    async run(command) {
      const started = read(
        session,
        processStatusSchema,
        await make('processes', { argv: ['/bin/sh', '-c', command] }),
      );
      const process = `processes/${started.id}`;
      const [ended, stdout] = await Promise.all([
        untilExited(session, () => get(`${process}/wait?timeoutMs=${waitMs}`)),
        get(`${process}/output/stdout?follow=true`),
        get(`${process}/output/stderr?follow=true`),
      ]);
      return { exitCode: ended.exitCode, stdout: stdout.bytes.toString('utf8') };
    },
    async writeFile(name, bytes) {
      await session.http.send({ method: 'PUT', path: `${path}/${file(name)}`, bytes });
    },
    readFile: async (name) => (await get(file(name))).bytes,
    async listFiles(name) {
      await get(`files/list?path=${encodeURIComponent(name)}`);
    },
    async fork(count) {
      const { children } = read(session, forkResultSchema, await make('fork', { count, deadlineMs }));
      // Own them before judging, so that a partial success is cleaned up too.
      const sandboxes = children.flatMap((child) =>
        'sandbox' in child ? [owned(session, child.sandbox)] : [],
      );
      const failure = children.find((child) => 'error' in child);
      session.expect(
        failure === undefined,
        `${sandboxes.length} of ${count} children were made: ${JSON.stringify(failure)}`,
      );
      for (const child of children) {
        if ('sandbox' in child) session.check.digest('fork', child.sandbox.id, child.sandbox.digest, digest);
      }
      return sandboxes;
    },
    async pause() {
      const { state } = read(session, sandboxSchema, await act('pause'));
      session.expect(state === 'paused', `${id} was paused and is ${state}`);
    },
    async resume() {
      const { state } = read(session, createdSandboxSchema, await act('resume', {}));
      session.expect(state === 'running', `${id} was resumed and is ${state}`);
    },
    async snapshot() {
      const snapshot = read(session, snapshotSchema, await make('snapshots', {}));
      session.defer(() => remove(session, `/v1/snapshots/${snapshot.id}`));
      return snapshot.id;
    },
    async rewind(snapshot) {
      read(session, sandboxSchema, await act('rewind', { snapshot }));
    },
    async kill() {
      if (isKilled) return;
      await remove(session, path);
      isKilled = true;
    },
  };
  session.defer(() => sandbox.kill());
  return sandbox;
}

/** `once`: with a key, so that a repetition on the way (which would be a fault) makes nothing twice. */
function post(session: Session<unknown>, path: string, json?: unknown, how?: 'once'): Promise<SessionAnswer> {
  return session.http.send({
    method: 'POST',
    path,
    ...(json === undefined ? {} : { json }),
    ...(how === undefined ? {} : { headers: { [headerNames.idempotencyKey]: crypto.randomUUID() } }),
  });
}

async function remove(session: Session<unknown>, path: string): Promise<void> {
  await session.http.send({ method: 'DELETE', path, accept: [200, 204, 404] });
}

async function untilExited(
  session: Session<unknown>,
  ask: () => Promise<SessionAnswer>,
): Promise<z.output<typeof processStatusSchema>> {
  for (;;) {
    const status = read(session, processStatusSchema, await ask());
    if (status.state === 'exited') return status;
  }
}

function read<T>(session: Session<unknown>, schema: z.ZodType<T>, answer: SessionAnswer): T {
  const parsed = schema.safeParse(answer.json());
  const issue = parsed.error?.issues[0];
  session.expect(parsed.success, `unexpected answer: ${issue?.path.join('.')} ${issue?.message}`);
  return parsed.data as T;
}
