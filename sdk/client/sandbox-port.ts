import { GatewayError } from '../errors.ts';
import { errorComponent, errorOfAnswer } from './answer-error.ts';
import type { BodySource } from './bounded-body.ts';
import type { HeadersSource, Transport } from './transport.ts';

export interface PortRequest {
  /** Default `GET`, or `POST` when there is a body. */
  readonly method?: string;
  readonly headers?: HeadersSource;
  readonly body?: BodySource;
  readonly signal?: AbortSignal;
}

/** A TCP port of a sandbox on which an HTTP server listens. */
export interface SandboxPort {
  /** Without a slash at its end. Needs `Authorization: Bearer` with the API key or the sandbox's token. */
  readonly url: string;
  /** The same for `new WebSocket`, in clients that can send headers. */
  readonly webSocketUrl: string;
  /**
   * Asks the server, with our credentials, which it does not see.
   * @param path with query; starts with `/`
   * @throws GatewayError for errors that Snapgate made, such as `function_port_closed`; an error status of the server is an answer
   */
  fetch(path?: string, request?: PortRequest): Promise<Response>;
}

/** @param token of the sandbox; null: the API key is used */
export function createSandboxPort(
  transport: Transport,
  sandboxPath: string,
  port: number,
  token: string | null,
): SandboxPort {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) throw invalid('a port is 1 to 65535', 'port');
  const prefix = `${sandboxPath}/ports/${port}`;
  const url = `${transport.url}${prefix}`;
  return {
    url,
    webSocketUrl: url.replace(/^http/, 'ws'),
    async fetch(path = '/', request = {}) {
      // `fetch` resolves dot segments before it sends, so a path could leave the sandbox with the caller's key.
      const full = `${prefix}${path.startsWith('/') ? '' : '/'}${path}`;
      const { pathname } = new URL(`${transport.url}${full}`);
      if (!pathname.startsWith(`${new URL(url).pathname}/`)) {
        throw invalid('the path must not lead out of the port', 'path');
      }
      const headers = new Headers(request.headers);
      if (token !== null && !headers.has('x-api-key')) headers.set('x-api-key', token);
      const method = request.method ?? (request.body === undefined ? 'GET' : 'POST');
      const response = await transport.raw({
        method,
        path: full,
        headers,
        ...(request.body === undefined ? {} : { body: request.body }),
        ...(request.signal === undefined ? {} : { signal: request.signal }),
      });
      if (errorComponent(response.headers) !== null) throw await errorOfAnswer(response, `${method} ${url}`);
      return response;
    },
  };
}

const invalid = (message: string, field: string) =>
  new GatewayError('invalid_request', message, { component: 'sdk', field });
