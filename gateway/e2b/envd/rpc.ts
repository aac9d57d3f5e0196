/** envd's RPCs over node's requests, HTTP/1.1 and HTTP/2 alike. */
import type { ServerHttp2Stream } from 'node:http2';
import { createContextValues, type Interceptor } from '@connectrpc/connect';
import { connectNodeAdapter } from '@connectrpc/connect-node';
import { isGatewayError } from '../../../sdk/index.ts';
import { Filesystem } from '../proto/gen/filesystem/filesystem_pb.js';
import { Process } from '../proto/gen/process/process_pb.js';
import { callKey, cutKey, type EnvdCall } from './call.ts';
import { toConnectError } from './errors.ts';
import { filesystemService } from './filesystem/service.ts';
import type { Watchers } from './filesystem/watchers.ts';
import type { HttpRequest, HttpResponse } from './http.ts';
import type { InputLines } from './process/input.ts';
import { processService } from './process/service.ts';

/** Largest message of a client; input of a process in one piece is the largest there is. */
const readMaxBytes = 16 * 1024 * 1024;
/** A client may let a command run for 30 days. */
const maxTimeoutMs = 30 * 86_400_000;

/** Answers one request; `call` says for whom. */
export type RpcHandler = (request: HttpRequest, response: HttpResponse, call: EnvdCall) => void;

const rpcPath = /^\/(?:process\.Process|filesystem\.Filesystem)\//;
/** Whether a path is one of an RPC, known or not. */
export const isRpcPath = (path: string): boolean =>
  rpcPath.test(path) || /^\/[\w.]+\.[A-Z]\w*\/[A-Z]\w*$/.test(path);

const translateErrors: Interceptor = (next) => async (request) => {
  try {
    const answer = await next(request);
    if (!answer.stream) return answer;
    return { ...answer, message: translated(answer.message, request.contextValues.get(cutKey)) };
  } catch (error) {
    throw toConnectError(error);
  }
};

/** A sandbox that ends in the middle ends its streams without a word, as E2B's own proxy does. */
async function* translated<T>(messages: AsyncIterable<T>, cut: () => void): AsyncGenerator<T> {
  let hasBegun = false;
  try {
    for await (const message of messages) {
      hasBegun = true;
      yield message;
    }
  } catch (error) {
    if (hasBegun && isGatewayError(error, 'sandbox_not_found')) cut();
    throw toConnectError(error);
  }
}

/** Owns nothing; calls end with their requests. */
export function createRpcHandler(deps: {
  readonly watchers: Watchers;
  readonly lines: InputLines;
}): RpcHandler {
  const calls = new WeakMap<object, { readonly call: EnvdCall; readonly cut: () => void }>();
  const handle = connectNodeAdapter({
    routes: (router) =>
      router
        .service(Process, processService(deps.lines))
        .service(Filesystem, filesystemService(deps.watchers)),
    contextValues(request) {
      const { call, cut } = calls.get(request) ?? {};
      return createContextValues()
        .set(callKey, call)
        .set(cutKey, cut ?? (() => {}));
    },
    interceptors: [translateErrors],
    grpc: false,
    grpcWeb: false,
    readMaxBytes,
    maxTimeoutMs,
    // A field we don't know would change what the caller meant.
    jsonOptions: { ignoreUnknownFields: false },
    fallback: (_request, response) => {
      response.writeHead(501, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ code: 'unimplemented', message: 'there is no such method' }));
    },
  });
  return (request, response, call) => {
    // JSON is what E2B's clients speak; the binary form would be one more parser for what comes from outside.
    if (/\bproto\b/.test(request.headers['content-type'] ?? '')) {
      response.writeHead(415, { 'accept-post': 'application/json, application/connect+json' });
      response.end();
      return;
    }
    calls.set(request, { call, cut: () => cutOff(response) });
    handle(request, response);
  };
}

/** Resets the stream, or the connection where there is nothing else. Not by `close` with a code, which in node 24 may spin. */
function cutOff(response: HttpResponse): void {
  const { stream } = response as unknown as { stream?: ServerHttp2Stream };
  if (stream === undefined) response.socket?.destroy();
  else stream.destroy(new Error('the sandbox has ended'));
}
