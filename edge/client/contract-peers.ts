/** What the parts of the contract suite share: the values that cross, and an edge that does as a test says. */
import assert from 'node:assert/strict';
import { Readable } from 'node:stream';
import { GatewayError, type MachineId, type VersionDigest } from '../../sdk/index.ts';
import type { EdgeClient, InvokeMeta, InvokeRequest, InvokeResponse } from './port.ts';
import type { SandboxEdge } from './sandbox-port.ts';

/** Joins a client to an edge. */
export type OpenPair = (edge: EdgeClient) => Promise<EdgePair>;

/** A client that reaches the given edge. Disposing leaves nothing behind. */
export interface EdgePair extends AsyncDisposable {
  readonly client: EdgeClient;
}

/** Joins a client to what keeps the sandboxes of an edge. */
export type OpenSandboxes = (
  sandboxes: SandboxEdge,
) => Promise<{ readonly client: SandboxEdge } & AsyncDisposable>;

/** The version that all calls are of. */
export const digest = `sha256:${'ab'.repeat(32)}` as VersionDigest;
/** The machine that gives all answers. */
export const machine = 'node0000000000000000' as MachineId;
/** What all answers say of themselves. */
export const meta: InvokeMeta = {
  machine,
  digest,
  start: 'ready',
  timing: { queueMs: 1.5, restoreMs: 0, execMs: 2 },
};
/** A call that nobody answers. */
export const never = () => new Promise<never>(() => {});

/** A call with everything that could get lost on the way. */
export const request = (changes: Partial<InvokeRequest> = {}): InvokeRequest => ({
  requestId: 'r1',
  digest,
  method: 'POST',
  target: '/a%2Fb?c',
  rawHeaders: ['Host', 'a', 'X-B', '1', 'x-b', '\u00e9'],
  body: null,
  timeoutMs: 1000,
  signal: new AbortController().signal,
  ...changes,
});

/** An answer with everything that could get lost on the way. */
export const response = (body: Readable, changes: Partial<InvokeResponse> = {}): InvokeResponse => ({
  status: 200,
  rawHeaders: ['X-A', '1', 'x-a', '2'],
  body,
  trailers: () => [],
  meta,
  ...changes,
});

/** A body of these parts. */
export const bytes = (...parts: (string | Buffer)[]) =>
  Readable.from(
    parts.map((part) => Buffer.from(part)),
    { objectMode: false },
  );

/** An edge that can only do what `parts` say. */
export function scripted(parts: Partial<EdgeClient>): EdgeClient {
  const refuse = () => {
    throw new GatewayError('internal', 'not part of this test', { component: 'edge' });
  };
  const methods = [
    'node',
    'invoke',
    'upgrade',
    'build',
    'setServing',
    'removeVersion',
    'machines',
    'pools',
    'logs',
    'metrics',
  ];
  return {
    ...(Object.fromEntries(methods.map((name) => [name, refuse])) as unknown as EdgeClient),
    ...parts,
  };
}

/** Sandboxes that can only do what `parts` say. */
export const scriptedSandboxes = (parts: Partial<SandboxEdge>): SandboxEdge =>
  new Proxy(parts, {
    get: (target, name) =>
      Reflect.get(target, name) ??
      (() => {
        throw new GatewayError('internal', `${String(name)} is not part of this test`, { component: 'edge' });
      }),
  }) as SandboxEdge;

/** The error of a promise that must reject, and with nothing but a `GatewayError`. */
export async function fails(promise: Promise<unknown>): Promise<GatewayError> {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof GatewayError, String(error));
    return error;
  }
  throw new Error('it did not fail');
}

/** Everything an iteration yields. */
export async function all<T>(values: AsyncIterable<T>): Promise<T[]> {
  const result: T[] = [];
  for await (const value of values) result.push(value);
  return result;
}
