/**
 * `npm run bench:invoke`: what gateway and edge add to a call of a warm machine, against the same function called directly over the
 * tunnel, call by call in turns; and requests per second through the gateway to a stub edge in the same process.
 */
import { Worker } from 'node:worker_threads';
import pino from 'pino';
import { Client } from 'undici';
import { connectGuest, type SandboxChannel } from '../../edge/guest/index.ts';
import { dataLayout } from '../../edge/index.ts';
import { GuestHttp } from '../../edge/machine/guest-http.ts';
import { openEdge } from '../../edge/main.ts';
import { certificateDirectory, openGateway } from '../../gateway/runtime.ts';
import { startHarness } from '../../gateway/testing/harness.ts';
import { fixedAnswer } from '../../gateway/testing/stub-edge.ts';
import { benchDirectory, median, publishExample, quantile, require, writeResult } from './bench-node.ts';

const calls = Number(process.argv[2] ?? 400);
/**
 * What the gateway adds for the function's sake. The direct call carries the same, because an emulated Python takes some
 * 0.3 ms to parse a header, which is the function's time and not the gateway's.
 */
const sameHeaders = [
  ...['host', '127.0.0.1:7070', 'x-forwarded-for', '127.0.0.1', 'x-forwarded-host', '127.0.0.1:7070'],
  ...['x-forwarded-proto', 'http', 'x-forwarded-port', '7070', 'x-forwarded-prefix', '/fn/hello-python'],
  ...[
    'forwarded',
    'for=127.0.0.1;host="127.0.0.1:7070";proto=http',
    'x-request-id',
    '00000000-0000-4000-8000-000000000000',
  ],
];
const log = pino({ level: 'error' });
const signal = new AbortController().signal;

const channels = new Map<string, SandboxChannel>();
const dataDirectory = await benchDirectory();
const edge = await openEdge(
  {
    log,
    onStep: () => {},
    signal,
    async connectGuest(options) {
      const channel = await connectGuest(options);
      channels.set(options.socketPath, channel);
      return channel;
    },
  },
  { dataDirectory },
);
const service = await openGateway(
  { edge, log },
  {
    listen: '127.0.0.1:0',
    paths: { ...dataLayout(dataDirectory), tls: certificateDirectory(dataDirectory) },
  },
);

async function compare() {
  await publishExample(service, 'hello-python');
  const client = new Client(service.url);
  const headers = { authorization: `Bearer ${service.apiKey}` };
  const throughGateway = async () => {
    const from = performance.now();
    const answer = await client.request({ method: 'GET', path: '/fn/hello-python/', headers });
    await answer.body.dump();
    if (answer.statusCode !== 200) throw new Error(`status ${answer.statusCode}`);
    return { ms: performance.now() - from, machine: String(answer.headers['x-snapgate-machine']) };
  };
  const { machine } = await throughGateway();
  const channel = [...channels].find(([path]) => path.includes(machine))![1];
  const http = new GuestHttp(channel, { port: 8000, connections: 1 });
  const direct = async () => {
    const from = performance.now();
    const answer = await http.request({
      method: 'GET',
      target: '/',
      rawHeaders: sameHeaders,
      body: null,
      signal,
    });
    await answer.body.toArray();
    return performance.now() - from;
  };
  const times = { gateway: [] as number[], direct: [] as number[] };
  for (let count = -40; count < calls; count++) {
    // In turns and in changing order, so that neither always comes first.
    const isDirectFirst = count % 2 === 0;
    const before = isDirectFirst ? await direct() : 0;
    const viaGateway = (await throughGateway()).ms;
    const viaTunnel = isDirectFirst ? before : await direct();
    if (count < 0) continue;
    times.direct.push(viaTunnel);
    times.gateway.push(viaGateway);
  }
  await http.destroy();
  await client.close();
  return times;
}

/** Load comes from another thread, so that it does not take the gateway's own. */
async function throughput(seconds: number): Promise<number> {
  const body = Buffer.from('ok');
  await using stub = await startHarness({
    beforeStart(edge) {
      edge.behaviour.invoke = async (request) => fixedAnswer(request, body);
    },
  });
  const worker = new Worker(new URL('./blaster.ts', import.meta.url), {
    workerData: { url: stub.url, path: '/fn/open/', seconds, connections: 32 },
  });
  return await new Promise<number>((resolve, reject) => {
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

try {
  const times = await compare();
  const requestsPerSecond = await throughput(4);
  const figures = {
    calls,
    directMs: { p50: median(times.direct), p95: quantile(times.direct, 0.95) },
    gatewayMs: { p50: median(times.gateway), p95: quantile(times.gateway, 0.95) },
    // Of calls that followed each other: an emulated guest is slow for minutes at a time, and for both alike.
    addedMs: median(times.gateway.map((ms, call) => ms - times.direct[call]!)),
    requestsPerSecond,
  };
  console.table({
    'direct over the tunnel': figures.directMs,
    'through gateway and edge': figures.gatewayMs,
  });
  require('added by gateway and edge, median of the differences of neighbours', figures.addedMs, 1, ' ms');
  require('requests per second through the gateway to a stub edge', requestsPerSecond, 2000, '/s', false);
  await writeResult('invoke', figures);
} finally {
  await service.close();
  await edge.dispose();
}
