/** Logs and figures of sandboxes and of the whole fleet. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { z } from 'zod';
import {
  GatewayError,
  type LogLine,
  type MachineId,
  type SandboxInfo,
  type VersionDigest,
} from '../../../sdk/index.ts';
import { type ApiEnv, newRouter } from '../../api/router.ts';
import { readQuery, sandboxIdOf } from './body.ts';
import type { ControlDeps } from './deps.ts';
import { idsSchema } from './listing.ts';

/** Everybody with a key is of the one team there is. */
const teamID = 'default';
const milliseconds = z.coerce.number().int().min(0).max(4_102_444_800_000).optional();
const limit = z.coerce.number().int().min(0).max(1000);
const levels = z.enum(['debug', 'info', 'warn', 'error']);

const logsV1Schema = z.strictObject({ start: milliseconds, limit: limit.default(1000) });
const logsV2Schema = z.strictObject({
  cursor: milliseconds,
  limit: limit.default(1000),
  direction: z.enum(['forward', 'backward']).default('forward'),
  level: levels.default('debug'),
  search: z.string().max(1000).optional(),
});
const manySchema = z.strictObject({ sandbox_ids: idsSchema });
const seconds = z.coerce.number().int().min(0).max(4_102_444_800).optional();
const rangeSchema = z.strictObject({ start: seconds, end: seconds });
const maxSchema = z.strictObject({
  start: seconds,
  end: seconds,
  metric: z.enum(['concurrent_sandboxes', 'sandbox_start_rate']),
});

/** How long after the request lines are still waited for, milliseconds. */
const readMs = 5000;
const mostLines = 10_000;

export function observabilityRoutes(deps: ControlDeps): OpenAPIHono<ApiEnv> {
  const { sandboxes: edge, history, clock } = deps;
  const router = newRouter();

  const linesOf = async (info: SandboxInfo, tail: number): Promise<LogLine[]> => {
    const lines: LogLine[] = [];
    for (const node of deps.placement.edges()) {
      const source = node.logs({
        digests: [info.digest as VersionDigest],
        machine: info.id as unknown as MachineId,
        streams: ['stdout', 'stderr'],
        tail,
        follow: false,
        signal: AbortSignal.timeout(readMs),
      });
      for await (const line of source) lines.push(line);
    }
    return lines.sort((one, other) => one.at - other.at);
  };
  const entry = (line: LogLine) => ({
    timestamp: new Date(line.at).toISOString(),
    message: line.text,
    level: levelOf(line),
    fields: { stream: line.stream, machine: line.machine },
  });

  router.get('/sandboxes/metrics', (context) => {
    const { sandbox_ids } = readQuery(context, manySchema);
    const found = sandbox_ids.flatMap((id) => {
      const latest = history.latest(id);
      return latest === undefined ? [] : [[id, latest] as const];
    });
    return context.json({ sandboxes: Object.fromEntries(found) });
  });
  router.get('/sandboxes/:id/logs', async (context) => {
    const { start = 0, limit: most } = readQuery(context, logsV1Schema);
    const info = await edge.get(sandboxIdOf(context));
    const lines = (await linesOf(info, mostLines)).filter(({ at }) => at >= start).slice(0, most);
    return context.json({
      logs: lines.map(({ at, text }) => ({ timestamp: new Date(at).toISOString(), line: text })),
      logEntries: lines.map(entry),
    });
  });
  router.get('/v2/sandboxes/:id/logs', async (context) => {
    const { cursor, limit: most, direction, level, search } = readQuery(context, logsV2Schema);
    const info = await edge.get(sandboxIdOf(context));
    const isForward = direction === 'forward';
    const least = levels.options.indexOf(level);
    const lines = (await linesOf(info, mostLines)).filter(
      (line) =>
        (cursor === undefined || (isForward ? line.at >= cursor : line.at <= cursor)) &&
        levels.options.indexOf(levelOf(line)) >= least &&
        (search === undefined || line.text.includes(search)),
    );
    if (!isForward) lines.reverse();
    return context.json({ logs: lines.slice(0, most).map(entry) });
  });

  router.get('/teams', (context) => context.json([{ teamID, name: 'default', isDefault: true, apiKey: '' }]));
  const requireTeam = (id: string) => {
    if (id !== teamID)
      throw new GatewayError('forbidden', 'there is one team, "default"', { field: 'teamID' });
  };
  const samples = ({ start, end }: z.infer<typeof rangeSchema>) =>
    history.fleet((start ?? 0) * 1000, end === undefined ? clock.now() : end * 1000 + 999);
  const rate = ({ started }: { readonly started: number }) => started / sampleSeconds;
  const stamp = (at: number) => ({
    timestamp: new Date(at).toISOString(),
    timestampUnix: Math.floor(at / 1000),
  });
  router.get('/teams/:team/metrics', (context) => {
    requireTeam(context.req.param('team'));
    return context.json(
      samples(readQuery(context, rangeSchema)).map((sample) => ({
        ...stamp(sample.at),
        concurrentSandboxes: sample.running,
        sandboxStartRate: rate(sample),
      })),
    );
  });
  router.get('/teams/:team/metrics/max', (context) => {
    requireTeam(context.req.param('team'));
    const { metric, ...range } = readQuery(context, maxSchema);
    const value = metric === 'concurrent_sandboxes' ? ({ running }: { running: number }) => running : rate;
    const [most = { at: clock.now(), running: 0, started: 0 }] = samples(range).sort(
      (one, other) => value(other) - value(one),
    );
    return context.json({ ...stamp(most.at), value: value(most) });
  });
  return router;
}

/** Seconds between two looks at the fleet. */
const sampleSeconds = 5;

const levelOf = ({ stream }: Pick<LogLine, 'stream'>): z.infer<typeof levels> =>
  stream === 'stderr' ? 'warn' : 'info';
