/** Sandboxes of an edge in another process. */
import type { z } from 'zod';
import { GatewayError, type SandboxId, sandboxEventSchema } from '../../sdk/index.ts';
import { createHttpChannel } from './http-channel-client.ts';
import { askForLines, callJson, readLines } from './http-client-json.ts';
import { type EdgeConnection, responseOf } from './http-connection.ts';
import { jsonFrame } from './http-frames.ts';
import {
  repeatableCalls,
  type SandboxAnswer,
  type SandboxMethod,
  sandboxCalls,
  useLineSchema,
} from './http-sandbox-wire.ts';
import { edgePaths } from './http-wire.ts';
import type { SandboxEdge, SandboxUse } from './sandbox-port.ts';

/** The contract of `SandboxEdge`; beside what the edge says, every method may reject with `edge_unreachable` or `edge_lost`. */
export function createHttpSandboxEdge(connection: EdgeConnection): SandboxEdge {
  const ask = <M extends SandboxMethod>(
    method: M,
    args: z.input<(typeof sandboxCalls)[M]['args']>,
    signal?: AbortSignal,
  ): Promise<SandboxAnswer<M>> =>
    callJson(connection, {
      ...{ method: 'POST', path: edgePaths.sandboxCall, value: { method, args }, signal },
      schema: sandboxCalls[method].result as unknown as z.ZodType<SandboxAnswer<M>>,
      isRepeatable: repeatableCalls.has(method),
    });
  return {
    create: (origin, request, { signal, network }) =>
      ask('create', network === undefined ? { origin, request } : { origin, request, network }, signal),
    get: (id) => ask('get', { id }),
    list: ({ states, ...filter }) =>
      ask('list', states === undefined ? filter : { ...filter, states: [...states] }),
    setDeadline: (id, deadlineMs, { onlyExtend }) => ask('setDeadline', { id, deadlineMs, onlyExtend }),
    kill: (id) => ask('kill', { id }),
    pause: (id, { signal }) => ask('pause', { id }, signal),
    resume: (id, { signal, ...options }) => ask('resume', { id, ...options }, signal),
    fork: (id, request, { signal }) => ask('fork', { id, request }, signal),
    snapshot: (id, request, { signal }) => ask('snapshot', { id, request }, signal),
    rewind: (id, snapshot, { signal }) => ask('rewind', { id, snapshot }, signal),
    snapshots: (filter) => ask('snapshots', filter),
    async removeSnapshot(snapshot) {
      await ask('removeSnapshot', { snapshot });
    },
    pinSnapshot: (snapshot, isPinned) => ask('pinSnapshot', { snapshot, isPinned }),
    diff: (from, to, { signal }) => ask('diff', { from, to }, signal),
    events: ({ signal, ...query }) =>
      askForLines(connection, edgePaths.sandboxEvents, query, sandboxEventSchema, signal),
    use: (id, { signal }) => useOver(connection, id, signal),
    network: (id) => ask('network', { id }),
    setNetwork: (id, choice) => ask('setNetwork', { id, choice }),
    isToken: (id, token) => ask('isToken', { id, token }),
  };
}

/** Holds a use by a request that stays open; its end lets go, and its connection is used again. */
async function useOver(connection: EdgeConnection, id: SandboxId, signal: AbortSignal): Promise<SandboxUse> {
  const exchange = connection.open('POST', edgePaths.sandboxUse, {
    'content-type': 'application/octet-stream',
  });
  const { outgoing } = exchange;
  outgoing.write(jsonFrame('head', { id }));
  const giveUp = () => outgoing.destroy();
  signal.addEventListener('abort', giveUp, { once: true });
  const lost = () => exchange.failure();
  const lines = readLines(await responseOf(exchange, signal).catch(toFailure), useLineSchema, lost);
  function toFailure(thrown: unknown): never {
    signal.removeEventListener('abort', giveUp);
    throw thrown instanceof GatewayError || signal.aborted ? thrown : exchange.failure(thrown);
  }
  try {
    const first = await lines.next();
    if (first.done) throw lost();
    return held(connection, first.value, () => outgoing.end(), lines);
  } catch (thrown) {
    outgoing.destroy();
    throw signal.aborted ? signal.reason : thrown;
  } finally {
    signal.removeEventListener('abort', giveUp);
  }
}

function held(
  connection: EdgeConnection,
  { machine, sandbox, env }: z.output<typeof useLineSchema>,
  letGo: () => void,
  lines: AsyncGenerator<unknown, void>,
): SandboxUse {
  const ended = new AbortController();
  const channel = createHttpChannel(connection, machine);
  let isHeld = true;
  lines.next().then(
    () => {},
    (error: unknown) => {
      if (isHeld) ended.abort(error);
    },
  );
  return {
    ...{ machine, sandbox, env, channel },
    signal: ended.signal,
    tunnel: (port) => channel.tunnel(port, { signal: ended.signal }),
    [Symbol.dispose]() {
      if (!isHeld) return;
      isHeld = false;
      letGo();
    },
  };
}
