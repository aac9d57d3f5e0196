/** A {@link Harness} whose node keeps sandboxes in memory. For tests. */

import { type Harness, startHarness } from './harness.ts';
import { createMemorySandboxes, type MemorySandboxes } from './memory-sandboxes.ts';

/** Disposing also fails when something still held a sandbox. */
export interface SandboxHarness extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly key: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly harness: Harness;
  readonly sandboxes: MemorySandboxes;
  /** Any answer. */
  raw(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Response>;
  /** A successful JSON answer. */
  send<T>(method: string, path: string, body?: unknown): Promise<T>;
  get<T>(path: string): Promise<T>;
  post<T>(path: string, body?: unknown): Promise<T>;
}

/** @param options.port where every port of every sandbox leads */
export async function startSandboxHarness(options: { readonly port?: number } = {}): Promise<SandboxHarness> {
  const sandboxes = createMemorySandboxes(options);
  const harness = await startHarness({ sandboxes });
  const { url, port, key } = harness;
  const headers = { authorization: `Bearer ${key}` };
  const raw: SandboxHarness['raw'] = (method, path, body, more = {}) =>
    fetch(`${url}${path}`, {
      method,
      headers: { ...headers, ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...more },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const send = async <T>(method: string, path: string, body?: unknown): Promise<T> => {
    const answer = await raw(method, path, body);
    const text = await answer.text();
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
    return JSON.parse(text) as T;
  };
  return {
    url,
    port,
    key,
    headers,
    harness,
    sandboxes,
    raw,
    send,
    get: (path) => send('GET', path),
    post: (path, body) => send('POST', path, body),
    async [Symbol.asyncDispose]() {
      await harness[Symbol.asyncDispose]();
      await sandboxes[Symbol.asyncDispose]();
    },
  };
}
