import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { Durations } from '../record/histogram.ts';
import { driveClosedLoop } from './closed-loop.ts';
import { createHttpLauncher } from './http-launcher.ts';
import { createTransport } from './transport.ts';

/** What one request costs the harness itself. It is shown in every report and subtracted from nothing. */
export interface Overhead {
  /** Service time against a server in the same process that answers from memory, one request at a time. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly samples: number;
}

/** What the harness’s own servers answer: the headers of an invocation and two bytes. */
export const nullAnswer = Buffer.from(
  'HTTP/1.1 200 OK\r\ncontent-length: 2\r\nx-snapgate-start: reused\r\nserver-timing: exec;dur=0\r\n\r\nok',
);
/** Long enough for the just-in-time compiler to have seen the whole path; measured at ~250 ms on 2 cores. */
const primeMs = 600;
const measureMs = 200;

/**
 * Runs the sending path hot against a throw-away server in this process, so that the first seconds of a measurement
 * don't hold the harness's own compilation (without it the first burst lags 50–200 ms), and measures its floor.
 * The server under test sees none of it.
 */
export async function primeGenerator(signal: AbortSignal): Promise<Overhead> {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on('data', () => socket.write(nullAnswer));
    socket.on('error', () => socket.destroy());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    await closedRun(origin, { concurrency: 32, durationMs: primeMs, signal });
    const floor = await closedRun(origin, { concurrency: 1, durationMs: measureMs, signal });
    return {
      p50Ms: floor.percentileMs(50),
      p99Ms: floor.percentileMs(99),
      samples: floor.count,
    };
  } finally {
    server.close();
  }
}

async function closedRun(
  origin: string,
  options: { readonly concurrency: number; readonly durationMs: number; readonly signal: AbortSignal },
): Promise<Durations> {
  const startedAt = performance.now();
  const now = () => performance.now() - startedAt;
  const service = new Durations();
  await using transport = createTransport({
    origin,
    maxConnections: options.concurrency,
    timeoutMs: 5_000,
    now,
  });
  const request = { method: 'GET' as const, path: '/', headers: ['authorization', 'Bearer none'] };
  const launcher = createHttpLauncher({
    transport,
    now,
    keepsBody: false,
    repeats: null,
    requestFor: () => request,
    record: (exchange) => service.record(exchange.serviceMs),
  });
  await driveClosedLoop({ launcher, pickTarget: () => 0, now }, options);
  await launcher.idle();
  return service;
}
