/** envd's port of a sandbox: the gateway answers in its place. */

import type { SandboxEdge } from '../../../edge/client/index.ts';
import {
  type Clock,
  isGatewayError,
  isSandboxId,
  type SandboxId,
  type SandboxInfo,
} from '../../../sdk/index.ts';
import { withUse } from '../../sandboxes/held.ts';
import { checkSignature } from '../access/signature.ts';
import { isSame, type SandboxTokens } from '../access/tokens.ts';
import { isSecure } from '../attributes.ts';
import { type EnvdCall, keepAliveOf, userOf } from './call.ts';
import { toHttpError } from './errors.ts';
import { compose } from './files/compose.ts';
import { download } from './files/download.ts';
import { actingUser, type FilesQuery, parseFilesQuery } from './files/query.ts';
import { upload } from './files/upload.ts';
import { createWatchers } from './filesystem/watchers.ts';
import { createHomes } from './homes.ts';
import { clientSignal, type HttpRequest, type HttpResponse, headerOf, sendError, sendJson } from './http.ts';
import { envdMetrics } from './metrics.ts';
import { createInputLines } from './process/input.ts';
import { createRpcHandler, isRpcPath } from './rpc.ts';

export interface EnvdDeps {
  readonly sandboxes: SandboxEdge;
  readonly tokens: SandboxTokens;
  readonly clock: Clock;
}

export interface EnvdDoor extends Disposable {
  /** Answers a request to a sandbox's envd. @param path with the query. Never throws. */
  handle(request: HttpRequest, response: HttpResponse, sandbox: string, path: string): void;
}

/** What the host uses itself and nobody may reach from outside. */
const internal = new Set(['/init', '/freeze', '/unfreeze', '/collapse', '/fsfreeze', '/fsthaw']);

/** Owns watchers and caches. */
export function createEnvdDoor(deps: EnvdDeps): EnvdDoor {
  const { sandboxes: edge, tokens, clock } = deps;
  const watchers = createWatchers({ clock });
  const homes = createHomes();
  const rpc = createRpcHandler({ watchers, lines: createInputLines() });

  const hasToken = (request: HttpRequest, info: SandboxInfo): boolean =>
    !isSecure(info) || isSame(tokens.envd(info.id), headerOf(request, 'x-access-token'));

  /** Why a file may not be touched; null when it may. */
  const fileProblem = (request: HttpRequest, info: SandboxInfo, query: FilesQuery): string | null => {
    if (hasToken(request, info)) return null;
    const { signature, path = '', username: user = '', signature_expiration: expiration } = query;
    if (signature === undefined) return 'missing signature query parameter';
    const operation = request.method === 'POST' ? 'write' : 'read';
    const file = { path, user, operation, signature, expiration } as const;
    return checkSignature(file, tokens.envd(info.id), clock.now());
  };

  const callFor = (request: HttpRequest, id: SandboxId, user: string): EnvdCall => ({
    ...{ edge, id, user, homes, clock },
    isUsualUser: headerOf(request, 'authorization') === undefined,
    keepAliveMs: keepAliveOf(headerOf(request, 'keepalive-ping-interval')),
  });

  const files = async (
    request: HttpRequest,
    response: HttpResponse,
    info: SandboxInfo,
    search: URLSearchParams,
  ) => {
    const query = parseFilesQuery(search);
    const problem = fileProblem(request, info, query);
    if (problem !== null) return sendError(response, 401, problem);
    const user = actingUser(query, userOf(headerOf(request, 'authorization')));
    const call = callFor(request, info.id as SandboxId, user);
    const signal = clientSignal(response);
    if (request.method === 'POST')
      return sendJson(response, 200, await upload(call, query.path, request, signal));
    return download(call, query.path ?? '', request, response, signal);
  };

  const answer = async (request: HttpRequest, response: HttpResponse, sandbox: string, path: string) => {
    const url = new URL(path, 'http://sandbox');
    const info = isSandboxId(sandbox) ? await found(edge, sandbox) : null;
    if (info === null) return sendGone(response, sandbox);
    const { pathname } = url;
    const signal = () => clientSignal(response);
    if (internal.has(pathname)) return sendError(response, 404, 'there is nothing here');
    if (pathname === '/health') {
      // A request to a sandbox that sleeps lightly wakes it up, this one too.
      await withUse({ edge, id: info.id as SandboxId, signal: signal() }, async () => {});
      response.writeHead(204, { 'cache-control': 'no-store' });
      response.end();
      return;
    }
    const method = request.method ?? 'GET';
    if (pathname === '/files') {
      if (method !== 'GET' && method !== 'HEAD' && method !== 'POST')
        return refuseMethod(response, 'GET, POST');
      return files(request, response, info, url.searchParams);
    }
    if (!hasToken(request, info)) return sendError(response, 401, 'the access token is missing or wrong');
    const user = userOf(headerOf(request, 'authorization'));
    if (user === null) return sendError(response, 401, 'there is no such user');
    const call = callFor(request, info.id as SandboxId, user);
    switch (pathname) {
      case '/files/compose':
        if (method !== 'POST') return refuseMethod(response, 'POST');
        return sendJson(response, 200, await compose(call, request, signal()));
      case '/metrics':
        return sendJson(response, 200, await envdMetrics(call, signal()));
      case '/envs':
        return sendJson(response, 200, await withUse({ ...call, signal: signal() }, async ({ env }) => env));
      default:
        if (isRpcPath(pathname)) return rpc(request, response, call);
        return sendError(response, 404, 'there is nothing here');
    }
  };

  return {
    handle(request, response, sandbox, path) {
      request.on('error', () => {});
      response.on('error', () => {});
      answer(request, response, sandbox, path).catch((thrown: unknown) => {
        if (isGatewayError(thrown, 'sandbox_not_found')) return sendGone(response, sandbox);
        if (isGatewayError(thrown, 'conflict') && /is paused/.test(thrown.message))
          return sendGone(response, sandbox);
        const { status, message } = toHttpError(thrown);
        return sendError(response, status, message);
      });
    },
    [Symbol.dispose]() {
      watchers[Symbol.dispose]();
    },
  };
}

/** Null for a sandbox that nobody can talk to: ended, unknown, or paused until somebody resumes it. */
async function found(edge: SandboxEdge, id: SandboxId): Promise<SandboxInfo | null> {
  try {
    const info = await edge.get(id);
    const sleeps = info.state === 'paused' || info.state === 'pausing';
    return info.state === 'ended' || (sleeps && !info.autoResume) ? null : info;
  } catch (error) {
    if (isGatewayError(error, 'sandbox_not_found')) return null;
    throw error;
  }
}

/** What clients take for "it runs no more", on every route. */
const sendGone = (response: HttpResponse, sandboxId: string): void =>
  sendJson(response, 502, { sandboxId, message: 'The sandbox was not found', code: 502 });

function refuseMethod(response: HttpResponse, allow: string): void {
  response.setHeader('allow', allow);
  sendError(response, 405, 'this method is not for this path');
}
