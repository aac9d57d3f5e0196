/** Starts the template's service and brings it to the state worth keeping: ready, warm, told of the snapshot. */
import { type Clock, isGatewayError } from '../../sdk/index.ts';
import type { TemplateDefinition } from '../definition/index.ts';
import { buildFailed } from './build-error.ts';
import type { GuestSession } from './guest-session.ts';
import type { GuestExit, GuestHttpAnswer } from './host-port.ts';
import { escapeOutput } from './output-text.ts';

const pollMs = 100;
/** One attempt at the ready path; a service may accept connections long before it answers. */
const attemptMs = 10_000;

type Start = NonNullable<TemplateDefinition['start']>;
type Request = { readonly method: string; readonly path: string; readonly body?: string };

const is2xx = (status: number): boolean => status >= 200 && status < 300;

/** How a process ended, as the rest of a sentence. */
export function describeExit(exit: GuestExit): string {
  if (exit.isTimedOut) return 'ran into its time limit';
  return exit.signal === null
    ? `ended with exit code ${exit.exitCode}`
    : `was ended by signal ${exit.signal}`;
}

const sleep = (clock: Clock, delayMs: number): Promise<void> =>
  new Promise((resolve) => {
    clock.schedule(delayMs, resolve);
  });

/** How a guest says that there is no such program, user or folder; the console would not explain it any better. */
const refusals = ['file_not_found', 'invalid_request', 'forbidden', 'conflict'] as const;

/**
 * Starts the service; it has not come up yet when this resolves.
 * @throws GatewayError `build_failed` naming program, user and folder
 */
export async function startService(
  session: GuestSession,
  definition: TemplateDefinition,
  start: Start,
  timeoutMs: number,
): Promise<void> {
  const { command, user, cwd } = start;
  await session.step('starting the service', timeoutMs, async (signal) => {
    try {
      await session.machine.startService(command, { user, cwd, env: definition.env, signal });
    } catch (error) {
      signal.throwIfAborted();
      if (!isGatewayError(error, ...refusals)) throw error;
      const what = `${command[0]} as ${user} in ${cwd}`;
      throw buildFailed(
        escapeOutput(`the service could not be started: ${what}: ${error.message}`),
        '',
        error,
      );
    }
  });
  session.serviceStarted();
}

/** @throws GatewayError `build_failed` with the service's output when it runs no longer */
export async function requireAlive(session: GuestSession, signal: AbortSignal, when: string): Promise<void> {
  const exit = await session.machine.serviceExit({ signal });
  if (exit !== null)
    throw buildFailed(`the service ${describeExit(exit)} ${when}`, await session.lastWords());
}

/**
 * Polls the ready path until it answers 2xx. A service that crashes is noticed within one poll, not at the deadline.
 * @throws GatewayError `build_failed` with the service's output
 */
export async function awaitReady(session: GuestSession, start: Start, clock: Clock): Promise<void> {
  const { http: path, timeoutMs } = start.ready;
  let last = 'nothing was tried yet';
  const attempt = async (signal: AbortSignal): Promise<boolean> => {
    try {
      const options = { signal: AbortSignal.any([signal, AbortSignal.timeout(attemptMs)]) };
      const { status } = await session.machine.http(start.port, { method: 'GET', path }, options);
      last = `it answered ${status}`;
      return is2xx(status);
    } catch (error) {
      signal.throwIfAborted();
      last = error instanceof Error ? error.message : String(error);
      return false;
    }
  };
  const startedAt = clock.monotonic();
  // The deadline of the step is a backstop for a machine that answers nothing at all.
  await session.step('waiting for the service', timeoutMs + attemptMs, async (signal) => {
    for (;;) {
      if (await attempt(signal)) return;
      await requireAlive(session, signal, 'before it was ready');
      if (clock.monotonic() - startedAt >= timeoutMs) {
        const message = `the service was not ready within ${timeoutMs / 1000} s: GET ${path} on port ${start.port}: ${last}`;
        throw buildFailed(escapeOutput(message), await session.lastWords());
      }
      await sleep(clock, pollMs);
      signal.throwIfAborted();
    }
  });
}

/** Sends one request that must be answered to `isGood`'s liking. `what` names its place in the definition. */
async function request(
  session: GuestSession,
  port: number,
  what: string,
  message: Request,
  timeoutMs: number,
  isGood: (status: number) => boolean,
): Promise<void> {
  const { method, path } = message;
  const answer = await session.step(
    `${what}: ${method} ${path}`,
    timeoutMs,
    async (signal): Promise<GuestHttpAnswer> => {
      try {
        return await session.machine.http(port, message, { signal });
      } catch (error) {
        signal.throwIfAborted();
        await requireAlive(session, signal, `while it answered ${what}`);
        const reason = error instanceof Error ? error.message : String(error);
        throw buildFailed(
          `${what}: ${method} ${path} got no answer: ${reason}`,
          await session.lastWords(),
          error,
        );
      }
    },
  );
  if (isGood(answer.status)) return;
  const output = [escapeOutput(answer.body.slice(0, 4096)), await session.lastWords()].filter(
    (part) => part !== '',
  );
  throw buildFailed(`${what}: ${method} ${path} answered ${answer.status}`, output.join('\n'));
}

/** Sends the warm-up requests one after another, as the first callers would. */
export async function warmUp(
  session: GuestSession,
  definition: TemplateDefinition,
  port: number,
): Promise<void> {
  for (const [index, { count, ...message }] of definition.warmup.entries()) {
    for (let sent = 0; sent < count; sent += 1) {
      const { method, path, body } = message;
      const one = { method, path, ...(body === undefined ? {} : { body }) };
      await request(
        session,
        port,
        `warmup.${index}`,
        one,
        definition.ttl.invocationMs,
        (status) => status < 500,
      );
    }
  }
}

/** Calls a hook, which must answer 2xx. */
export async function callHook(
  session: GuestSession,
  port: number,
  name: 'beforeSnapshot',
  hook: NonNullable<TemplateDefinition['hooks'][typeof name]>,
): Promise<void> {
  const { method, http: path, timeoutMs } = hook;
  await request(session, port, `hooks.${name}`, { method, path }, timeoutMs, is2xx);
}

/**
 * The request that proves a restored service alive: the first warm-up request, else the ready path.
 * @throws GatewayError `build_failed`
 */
export async function proveAlive(
  session: GuestSession,
  definition: TemplateDefinition,
  start: Start,
): Promise<void> {
  const [first] = definition.warmup;
  const timeoutMs = definition.ttl.invocationMs;
  if (first === undefined) {
    await request(session, start.port, 'verify', { method: 'GET', path: start.ready.http }, timeoutMs, is2xx);
    return;
  }
  const { method, path, body } = first;
  const message = { method, path, ...(body === undefined ? {} : { body }) };
  await request(session, start.port, 'verify', message, timeoutMs, (status) => status < 500);
}
