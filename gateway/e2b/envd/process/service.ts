/** `process.Process`: commands and terminals, mapped to the agent's processes. */
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from '@connectrpc/connect';
import type { SandboxUse } from '../../../../edge/client/index.ts';
import { isGatewayError } from '../../../../sdk/index.ts';
import { withUse } from '../../../sandboxes/held.ts';
import { observe } from '../../../sandboxes/observe.ts';
import type { Process, StartRequest } from '../../proto/gen/process/process_pb.js';
import { Signal } from '../../proto/gen/process/process_pb.js';
import { callKey, type EnvdCall } from '../call.ts';
import { follow } from './follow.ts';
import { closeInput, type InputLines, sendInput } from './input.ts';
import { readNote } from './note.ts';
import { type ProcessRecord, selectProcess, selectRunning } from './selection.ts';
import { startSpec } from './start.ts';

type Selector = Parameters<typeof selectProcess>[1];

/** The call of a handler; the router has put it there. */
function callOf(context: HandlerContext): EnvdCall {
  const call = context.values.get(callKey);
  if (call === undefined) throw new ConnectError('no sandbox is named', Code.Internal);
  return call;
}

/** @param lines shared by all calls of the gateway */
export function processService(lines: InputLines): ServiceImpl<typeof Process> {
  /** Work with one process that runs. */
  const onRunning = async (
    context: HandlerContext,
    selector: Selector,
    work: (channel: SandboxUse['channel'], record: ProcessRecord, signal: AbortSignal) => Promise<void>,
  ): Promise<void> => {
    const call = callOf(context);
    await withUse({ ...call, signal: context.signal }, async ({ channel }, signal) =>
      work(channel, await selectRunning(channel, selector, signal), signal),
    );
  };
  return {
    async list(_request, context) {
      const call = callOf(context);
      const all = await withUse({ ...call, signal: context.signal }, ({ channel }, signal) =>
        channel.listProcesses({ signal }),
      );
      return { processes: all.filter(({ state }) => state === 'running').flatMap(shown) };
    },

    async *start(request, context) {
      const call = callOf(context);
      const record = await start(call, request, context);
      for await (const event of follow(call, { record, fromStart: true }, context.signal)) yield { event };
    },

    async *connect(request, context) {
      const call = callOf(context);
      const { signal } = context;
      const record = await observe({ ...call, signal }, (channel) =>
        selectProcess(channel, request.process, signal),
      );
      for await (const event of follow(call, { record, fromStart: false }, signal)) yield { event };
    },

    async update(request, context) {
      const size = request.pty?.size;
      if (size === undefined || size.cols < 1 || size.rows < 1 || size.cols > 10_000 || size.rows > 10_000) {
        throw new ConnectError('"pty.size" has 1 to 10000 columns and rows', Code.InvalidArgument);
      }
      const { cols, rows } = size;
      await onRunning(context, request.process, (channel, record, signal) =>
        channel.resizeTerminal(record.id, { cols, rows }, { signal }),
      );
      return {};
    },

    async sendInput(request, context) {
      await onRunning(context, request.process, (channel, record, signal) =>
        lines.inTurn(callOf(context).id, record.id, () => sendInput(channel, record, request.input, signal)),
      );
      return {};
    },

    async streamInput(requests, context) {
      let selector: Selector;
      for await (const { event } of requests) {
        if (event.case === 'start') selector = event.value.process;
        else if (event.case === 'data') {
          const { input } = event.value;
          await onRunning(context, selector, (channel, record, signal) =>
            lines.inTurn(callOf(context).id, record.id, () => sendInput(channel, record, input, signal)),
          );
        }
      }
      return {};
    },

    async sendSignal(request, context) {
      const { signal: number } = request;
      if (number !== Signal.SIGKILL && number !== Signal.SIGTERM) {
        throw new ConnectError('"signal" is SIGNAL_SIGTERM or SIGNAL_SIGKILL', Code.InvalidArgument);
      }
      await onRunning(context, request.process, (channel, record, signal) =>
        channel.signalProcess(record.id, number, { signal }),
      );
      return {};
    },

    async closeStdin(request, context) {
      await onRunning(context, request.process, (channel, record, signal) =>
        lines.inTurn(callOf(context).id, record.id, () => closeInput(channel, record, signal)),
      );
      return {};
    },
  };
}

async function start(call: EnvdCall, request: StartRequest, context: HandlerContext): Promise<ProcessRecord> {
  const wantedCwd = request.process?.cwd;
  return withUse({ ...call, signal: context.signal }, async ({ channel, env, sandbox }, signal) => {
    const usual = usualOf(env);
    const user = call.isUsualUser ? (usual.user ?? call.user) : call.user;
    const asking = { ...call, user, channel, signal };
    const cwd =
      wantedCwd === undefined || wantedCwd === ''
        ? usual.workdir
        : await call.homes.resolve(wantedCwd, asking);
    const timeoutMs = context.timeoutMs();
    const spec = startSpec(request, { user, cwd, env, sandbox, timeoutMs });
    try {
      return await channel.startProcess(spec, { signal });
    } catch (error) {
      if (!isGatewayError(error, 'file_not_found', 'forbidden')) throw error;
      // A directory or a command that is not there is a wrong argument, not a missing process.
      const message = error.message.startsWith('cwd:')
        ? `cwd ${JSON.stringify(wantedCwd ?? '~')} does not exist or can't be entered`
        : `${JSON.stringify(request.process?.cmd)} can't be started: ${error.message}`;
      throw new ConnectError(message, Code.InvalidArgument, undefined, undefined, error);
    }
  });
}

/** What the template says for commands that say nothing themselves; see `builds/builds.ts`. */
function usualOf(env: Readonly<Record<string, string>>) {
  const { E2B_DEFAULT_USER: user, E2B_DEFAULT_WORKDIR: workdir } = env;
  return { user, workdir: workdir?.startsWith('/') ? workdir : undefined };
}

function shown({ pid, note }: ProcessRecord) {
  const known = readNote(note);
  // What the template's service or the native API started is not E2B's to show.
  if (known === null) return [];
  const { tag, ...config } = known;
  return [{ pid, config, ...(tag === undefined ? {} : { tag }) }];
}
