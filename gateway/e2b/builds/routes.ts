/** Routes of template builds. */
import { createHmac } from 'node:crypto';
import type { OpenAPIHono } from '@hono/zod-openapi';
import { z } from 'zod';
import { GatewayError } from '../../../sdk/index.ts';
import { type ApiEnv, newRouter } from '../../api/router.ts';
import { bodyStream } from '../../sandboxes/bytes.ts';
import { isSame } from '../access/tokens.ts';
import { readBody, readQuery } from '../control/body.ts';
import type { BuildRecord, Builds } from './builds.ts';
import { buildRequestSchema, buildStartSchema } from './schemas.ts';

const levels = ['debug', 'info', 'warn', 'error'] as const;
const statusSchema = z.strictObject({
  logsOffset: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(100).default(100),
  level: z.enum(levels).default('debug'),
});
const logsSchema = z.strictObject({
  cursor: z.coerce.number().int().min(0).optional(),
  limit: z.coerce.number().int().min(1).max(100).default(100),
  direction: z.enum(['forward', 'backward']).default('forward'),
  level: z.enum(levels).default('debug'),
  source: z.enum(['temporary', 'persistent']).optional(),
});
const hashSchema = z.string().regex(/^[0-9a-f]{64}$/);

/** Path of an upload, which carries its own permission. */
export const isUploadPath = (path: string): boolean => /^\/templates\/[^/]+\/files\/[0-9a-f]{64}$/.test(path);

/** @param secret for addresses of uploads, which clients call without their key */
export function buildRoutes(builds: Builds, secret: Uint8Array): OpenAPIHono<ApiEnv> {
  const router = newRouter();
  const permit = (template: string, hash: string) =>
    createHmac('sha256', secret).update(`upload ${template} ${hash}`).digest('hex');
  const hashOf = (text: string): string => {
    const parsed = hashSchema.safeParse(text);
    if (parsed.success) return parsed.data;
    throw new GatewayError('invalid_request', 'files are named by 64 hex digits', { field: 'hash' });
  };

  router.post('/v3/templates', async (context) => {
    const record = builds.request(await readBody(context, buildRequestSchema));
    return context.json(shown(record), 202);
  });
  router.get('/templates/:id/files/:hash', async (context) => {
    const id = context.req.param('id');
    const hash = hashOf(context.req.param('hash'));
    const url = new URL(context.req.url);
    const query = new URLSearchParams({ permit: permit(id, hash) });
    const proto = context.req.header('x-forwarded-proto') ?? url.protocol.replace(':', '');
    const address = `${proto}://${url.host}/templates/${encodeURIComponent(id)}/files/${hash}?${query}`;
    return context.json({ present: await builds.uploads.has(hash), url: address }, 201);
  });
  router.put('/templates/:id/files/:hash', async (context) => {
    const id = context.req.param('id');
    const hash = hashOf(context.req.param('hash'));
    if (!isSame(permit(id, hash), context.req.query('permit'))) {
      throw new GatewayError('forbidden', 'this address does not permit an upload');
    }
    await builds.uploads.put(hash, bodyStream(context.req.raw));
    return context.body(null, 200);
  });
  router.post('/v2/templates/:id/builds/:build', async (context) => {
    const record = builds.find(context.req.param('id'), context.req.param('build'));
    await builds.start(record, await readBody(context, buildStartSchema));
    // Not empty: clients read JSON whatever the status says.
    return context.json({}, 202);
  });
  router.get('/templates/:id/builds/:build/status', (context) => {
    const record = builds.find(context.req.param('id'), context.req.param('build'));
    const { logsOffset, limit, level } = readQuery(context, statusSchema);
    const entries = fitting(record, level).slice(logsOffset, logsOffset + limit);
    return context.json({
      buildID: record.buildID,
      templateID: record.template,
      status: record.status,
      logEntries: entries,
      logs: entries.map(({ message }) => message),
      ...(record.reason === undefined ? {} : { reason: { ...record.reason, logEntries: [] } }),
    });
  });
  router.get('/templates/:id/builds/:build/logs', (context) => {
    const record = builds.find(context.req.param('id'), context.req.param('build'));
    const { cursor, limit, direction, level } = readQuery(context, logsSchema);
    const isForward = direction === 'forward';
    const logs = fitting(record, level).filter(({ timestamp }) => {
      const at = Date.parse(timestamp);
      return cursor === undefined || (isForward ? at >= cursor : at <= cursor);
    });
    return context.json({ logs: (isForward ? logs : logs.toReversed()).slice(0, limit) });
  });
  return router;
}

const fitting = ({ logs }: BuildRecord, least: (typeof levels)[number]) =>
  logs.filter(({ level }) => levels.indexOf(level) >= levels.indexOf(least));

function shown({ template, buildID, tags }: BuildRecord): Record<string, unknown> {
  return {
    templateID: template,
    buildID,
    names: tags.length === 0 ? [template] : tags.map((tag) => `${template}:${tag}`),
    aliases: [template],
    tags: tags.length === 0 ? ['default'] : tags,
    public: false,
  };
}
