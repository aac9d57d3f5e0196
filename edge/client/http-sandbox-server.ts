/** Calls about sandboxes that came over HTTP. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import {
  eventQuerySchema,
  type SandboxAnswer,
  type SandboxArgs,
  type SandboxMethod,
  sandboxCallSchema,
  sandboxCalls,
} from './http-sandbox-wire.ts';
import { abortWhenClosed } from './http-server-calls.ts';
import { readJson, sendJson, sendLines } from './http-server-json.ts';
import type { SandboxEdge } from './sandbox-port.ts';

type Serve = {
  readonly [M in SandboxMethod]: (
    edge: SandboxEdge,
    args: SandboxArgs<M>,
    options: { readonly signal: AbortSignal },
  ) => Promise<SandboxAnswer<M>>;
};

const serve: Serve = {
  create: (edge, { origin, request, network }, options) =>
    edge.create(origin, request, network === undefined ? options : { ...options, network }),
  get: (edge, { id }) => edge.get(id),
  list: (edge, { states, template, metadata }) =>
    edge.list({
      ...(states === undefined ? {} : { states }),
      ...(template === undefined ? {} : { template }),
      ...(metadata === undefined ? {} : { metadata }),
    }),
  setDeadline: (edge, { id, deadlineMs, onlyExtend }) => edge.setDeadline(id, deadlineMs, { onlyExtend }),
  kill: (edge, { id }) => edge.kill(id),
  pause: (edge, { id }, options) => edge.pause(id, options),
  resume: (edge, { id, deadlineMs }, options) =>
    edge.resume(id, deadlineMs === undefined ? options : { ...options, deadlineMs }),
  fork: (edge, { id, request }, options) => edge.fork(id, request, options),
  snapshot: (edge, { id, request }, options) => edge.snapshot(id, request, options),
  rewind: (edge, { id, snapshot }, options) => edge.rewind(id, snapshot, options),
  snapshots: (edge, { sandbox }) => edge.snapshots(sandbox === undefined ? {} : { sandbox }),
  async removeSnapshot(edge, { snapshot }) {
    await edge.removeSnapshot(snapshot);
    return null;
  },
  pinSnapshot: (edge, { snapshot, isPinned }) => edge.pinSnapshot(snapshot, isPinned),
  async diff(edge, { from, to }, options) {
    const { files, processes } = await edge.diff(from, to, options);
    return { files: [...files], processes: [...processes] };
  },
  network: (edge, { id }) => edge.network(id),
  setNetwork: (edge, { id, choice }) => edge.setNetwork(id, choice),
  isToken: (edge, { id, token }) => edge.isToken(id, token),
};

/** @throws whatever the edge throws, before anything is answered */
export async function serveSandboxCall(
  edge: SandboxEdge,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { signal } = abortWhenClosed(response, () => response.writableFinished);
  const { method, args } = sandboxCallSchema.parse(await readJson(incoming));
  sendJson(response, await callOf(edge, method, args, signal));
}

function callOf<M extends SandboxMethod>(
  edge: SandboxEdge,
  method: M,
  args: unknown,
  signal: AbortSignal,
): Promise<SandboxAnswer<M>> {
  return serve[method](edge, sandboxCalls[method].args.parse(args) as SandboxArgs<M>, { signal });
}

/** History and what comes, one event a line. */
export async function serveSandboxEvents(
  edge: SandboxEdge,
  incoming: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { sandbox, ...query } = eventQuerySchema.parse(await readJson(incoming));
  await sendLines(response, (signal) =>
    edge.events({ ...query, ...(sandbox === undefined ? {} : { sandbox }), signal }),
  );
}
