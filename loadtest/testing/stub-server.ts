import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Answers one request; what it leaves open the stub never answers. */
export type StubHandler = (request: IncomingMessage, response: ServerResponse) => void;
/** Answers a path under `/v1` and says `true`, or leaves it to the stub's 404. */
export type StubApi = (request: IncomingMessage, response: ServerResponse) => boolean;

/** A server with known behaviour on a port of the OS's choice. `dispose` drops open connections. */
export interface StubServer extends AsyncDisposable {
  readonly url: string;
  /** Requests received so far, `/healthz` and `/v1` not counted. */
  readonly received: number;
}

/** Starts a stub; `/healthz` answers 200 and `/v1/…` 404, so that it looks like a server without a node API. */
export async function startStub(handler: StubHandler, api: StubApi = () => false): Promise<StubServer> {
  let received = 0;
  const server = createServer((request, response) => {
    if (request.url === '/healthz') return response.writeHead(200).end();
    if (request.url?.startsWith('/v1/')) {
      if (!api(request, response)) response.writeHead(404).end();
      return;
    }
    received += 1;
    handler(request, response);
  });
  server.keepAliveTimeout = 60_000;
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get received() {
      return received;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

/** Answers 200 with the headers of an invocation. */
export function answerInvocation(
  response: ServerResponse,
  over: { readonly headers?: Record<string, string>; readonly body?: string; readonly status?: number } = {},
): void {
  response.writeHead(over.status ?? 200, {
    'x-snapgate-start': 'reused',
    'x-snapgate-machine': 'stub0000000000000000',
    'x-snapgate-version': 'v1',
    'x-snapgate-digest': `sha256:${'0'.repeat(64)}`,
    'server-timing': 'queue;dur=0.1, restore;dur=0, exec;dur=0.5',
    ...over.headers,
  });
  response.end(over.body ?? 'ok');
}
