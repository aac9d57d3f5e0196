/** A gateway over sandboxes in memory, reached in TLS by its names, as E2B's SDKs do. For tests. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { systemClock } from '../../../sdk/index.ts';
import { type SandboxHarness, startSandboxHarness } from '../../testing/sandbox-harness.ts';
import { loadOwnCertificate } from '../tls/authority.ts';
import { becomeClientHost } from './client-host.ts';

export interface TlsHarness extends AsyncDisposable {
  readonly inner: SandboxHarness;
  /** What an SDK is given. */
  readonly options: { readonly apiKey: string; readonly domain: string };
}

/** Disposing fails when something is left behind. */
export async function startTlsHarness(): Promise<TlsHarness> {
  await using stack = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), 'sg-e2b-'));
  stack.defer(() => rm(directory, { recursive: true }));
  const inner = stack.use(await startSandboxHarness());
  const name = 'snapgate.localhost';
  const { cert, key, caPath } = await loadOwnCertificate(directory, name, { clock: systemClock });
  const { port } = await inner.harness.gateway.listen({ host: '127.0.0.1', port: 0, tls: { cert, key } });
  const domain = `${name}:${port}`;
  stack.use(await becomeClientHost(caPath ?? '', domain));
  const held = stack.move();
  return {
    inner,
    options: { apiKey: inner.key, domain },
    [Symbol.asyncDispose]: () => held.disposeAsync(),
  };
}
