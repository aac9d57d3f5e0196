/** The name check: takes connections the kernel steered here, reads which name they mean, and only then connects. */
import http from 'node:http';
import type { Server, Socket } from 'node:net';
import { maxHelloBytes, readServerName } from './client-hello.ts';

/** Where a steered connection was going, and the name it says itself. */
export interface InspectedTarget {
  readonly address: string;
  readonly port: number;
  /** Null: it says none. */
  readonly name: string | null;
}

export interface InspectorDeps {
  /** Asked before anything is sent on; reports refusals itself. */
  readonly isAllowed: (target: InspectedTarget) => boolean;
  /** Whether an open connection may go on under new rules; its name was matched with its address when it was made. */
  readonly isStillAllowed: (target: InspectedTarget) => boolean;
  /** A socket in the slot, not connected yet. */
  readonly openSocket: (address: string, port: number) => Promise<Socket>;
  /** Told of what is no TLS where TLS belongs, too slow, or too many. */
  readonly onRefused: (target: InspectedTarget, why: string) => void;
}

export interface Inspector extends Disposable {
  serve(server: Server): void;
  /** Resets the connections that are no longer allowed. */
  reconsider(): void;
}

/** Connections at once of one machine; time to say a name. */
const inspectLimits = { connections: 256, nameMs: 10_000 } as const;

export function createInspector(deps: InspectorDeps): Inspector {
  /** Each connection of the guest with what it was allowed as; null until it said a name. */
  const open = new Map<Socket, InspectedTarget | null>();

  const cut = (socket: Socket) => {
    if (!socket.destroyed) socket.resetAndDestroy();
  };

  async function connect(target: InspectedTarget): Promise<Socket> {
    const socket = await deps.openSocket(target.address, target.port);
    socket.on('error', () => cut(socket));
    return socket.connect({ host: target.address, port: target.port });
  }

  const web = http.createServer({
    headersTimeout: inspectLimits.nameMs,
    requestTimeout: 0,
    keepAliveTimeout: 30_000,
  });
  web.on('clientError', (_error, socket) => cut(socket as Socket));
  web.on('request', (request, response) => {
    void forward(request, response).catch(() => cut(request.socket));
  });

  /** Every request of a connection is checked: a later one may name another host. */
  async function forward(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const { socket } = request;
    const target = { address: socket.localAddress ?? '', port: socket.localPort ?? 0, name: hostOf(request) };
    if (!request.url?.startsWith('/') && request.url !== '*') {
      deps.onRefused(target, 'the request names its target in another way than by Host');
      cut(socket);
      return;
    }
    if (!deps.isAllowed(target)) {
      cut(socket);
      return;
    }
    open.set(socket, target);
    const upstreamSocket = await connect(target);
    const upstream = http.request({
      method: request.method ?? 'GET',
      path: request.url,
      headers: [...endToEnd(request.rawHeaders), 'connection', 'close'],
      setHost: false,
      createConnection: () => upstreamSocket,
    });
    response.once('close', () => upstream.destroy());
    socket.once('close', () => upstream.destroy());
    upstream.on('error', () => cut(socket));
    upstream.on('response', (answer) => {
      answer.on('error', () => cut(socket));
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage, endToEnd(answer.rawHeaders));
      answer.pipe(response);
    });
    request.pipe(upstream);
  }

  async function relayTls(socket: Socket): Promise<void> {
    const to = { address: socket.localAddress ?? '', port: socket.localPort ?? 0 };
    const first = await readHello(socket);
    if (first === null || first.name.kind !== 'name') {
      deps.onRefused(
        { ...to, name: null },
        first === null ? 'it ended or took too long to say a name' : 'it is not TLS',
      );
      cut(socket);
      return;
    }
    const target = { ...to, name: first.name.name };
    if (!deps.isAllowed(target)) {
      cut(socket);
      return;
    }
    open.set(socket, target);
    const upstream = await connect(target);
    socket.once('close', () => upstream.destroy());
    upstream.once('close', () => {
      if (!socket.writableEnded) cut(socket);
    });
    upstream.write(first.bytes);
    upstream.pipe(socket);
    socket.pipe(upstream);
  }

  return {
    serve(server) {
      server.on('error', () => {});
      server.on('connection', (socket) => {
        socket.on('error', () => cut(socket));
        const to = { address: socket.localAddress ?? '', port: socket.localPort ?? 0, name: null };
        if (open.size >= inspectLimits.connections) {
          deps.onRefused(to, `more than ${inspectLimits.connections} connections at once`);
          cut(socket);
          return;
        }
        open.set(socket, null);
        socket.once('close', () => open.delete(socket));
        if (to.port === 80) {
          web.emit('connection', socket);
          socket.resume();
        } else void relayTls(socket).catch(() => cut(socket));
      });
    },
    reconsider() {
      for (const [socket, target] of open) if (target === null || !deps.isStillAllowed(target)) cut(socket);
    },
    [Symbol.dispose]() {
      for (const socket of open.keys()) cut(socket);
      web.close();
    },
  };
}

/** First bytes up to a whole ClientHello; null when they don't come. Leaves the socket paused. */
async function readHello(
  socket: Socket,
): Promise<{ bytes: Buffer; name: ReturnType<typeof readServerName> } | null> {
  let bytes = Buffer.alloc(0);
  const { promise, resolve } = Promise.withResolvers<{
    bytes: Buffer;
    name: ReturnType<typeof readServerName>;
  } | null>();
  const onData = (chunk: Buffer) => {
    bytes = Buffer.concat([bytes, chunk]);
    const name = bytes.length > maxHelloBytes * 2 ? ({ kind: 'invalid' } as const) : readServerName(bytes);
    if (name.kind !== 'more') resolve({ bytes, name });
  };
  const onEnd = () => resolve(null);
  const timer = setTimeout(onEnd, inspectLimits.nameMs);
  // It was accepted paused: adding a listener alone does not start it.
  socket.on('data', onData).once('end', onEnd).once('close', onEnd).resume();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    socket.pause();
    socket.off('data', onData).off('end', onEnd).off('close', onEnd);
  }
}

/** The one Host header without its port; null when there is not exactly one. */
function hostOf(request: http.IncomingMessage): string | null {
  const values = request.rawHeaders.filter(
    (_, index, all) => index % 2 === 1 && all[index - 1]?.toLowerCase() === 'host',
  );
  return values.length === 1 ? (values[0] ?? '').replace(/:\d+$/, '') : null;
}

const hopByHop = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

function endToEnd(raw: readonly string[]): string[] {
  const listed = raw.flatMap((value, index) =>
    index % 2 === 1 && raw[index - 1]?.toLowerCase() === 'connection' ? value.toLowerCase().split(',') : [],
  );
  const dropped = new Set([...hopByHop, ...listed.map((name) => name.trim())]);
  return raw.flatMap((value, index) =>
    index % 2 === 0 && !dropped.has(value.toLowerCase()) ? [value, raw[index + 1] ?? ''] : [],
  );
}
