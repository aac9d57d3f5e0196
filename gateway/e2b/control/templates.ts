/** `/templates`: what can be started, by which names; and the end of a template or a snapshot. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { z } from 'zod';
import { GatewayError, isGatewayError, type TemplateDetail, type VersionDigest } from '../../../sdk/index.ts';
import { latestAlias } from '../../../templates/index.ts';
import { type ApiEnv, newRouter } from '../../api/router.ts';
import { defaultTag, parseTemplateName } from '../template-name.ts';
import { envdVersion } from '../version.ts';
import { readBody, readQuery } from './body.ts';
import type { ControlDeps } from './deps.ts';
import { limitSchema, tokenSchema } from './listing.ts';
import { findSnapshot } from './origin.ts';

const iso = (epochMs: number): string => new Date(epochMs).toISOString();
const tagSchema = z.string().regex(/^(?!v[0-9]+$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
const tagsSchema = z.array(tagSchema).min(1).max(32);
const assignSchema = z.strictObject({ target: z.string().min(1).max(200), tags: tagsSchema });
const removeTagsSchema = z.strictObject({ name: z.string().min(1).max(200), tags: tagsSchema });
const pageSchema = z.strictObject({
  limit: limitSchema,
  nextToken: tokenSchema,
  teamID: z.string().max(200).optional(),
});
const oneSchema = z.strictObject({ limit: limitSchema, nextToken: tokenSchema });
const updateSchema = z.strictObject({ public: z.boolean().optional() });

/** Tags are our aliases; the one that names without a tag mean has another name there. */
const toAlias = (tag: string): string => (tag === defaultTag ? latestAlias : tag);
const toTag = (alias: string): string => (alias === latestAlias ? defaultTag : alias);

/** Names by which a template is started. */
const namesOf = ({ name, aliases }: Pick<TemplateDetail, 'name' | 'aliases'>): string[] =>
  aliases.map(({ alias }) => (alias === latestAlias ? name : `${name}:${toTag(alias)}`));

interface Sizes {
  readonly vcpus: number;
  readonly memoryMiB: number;
  readonly diskMiB: number;
}

function sizesOf({ definition }: TemplateDetail['history'][number]): Sizes {
  const { resources } = definition as { resources?: Partial<Sizes> };
  return {
    vcpus: resources?.vcpus ?? 1,
    memoryMiB: resources?.memoryMiB ?? 0,
    diskMiB: resources?.diskMiB ?? 0,
  };
}

/** The version that counts as the template's: the one its plain name means, else the newest. */
const current = ({ history, latest }: TemplateDetail) =>
  history.find(({ version }) => version === latest) ?? history[0];

function show(template: TemplateDetail): Record<string, unknown> {
  const version = current(template);
  const sizes = version === undefined ? { vcpus: 0, memoryMiB: 0, diskMiB: 0 } : sizesOf(version);
  return {
    ...showHead(template),
    buildID: version?.version ?? '',
    buildStatus: version === undefined ? 'waiting' : 'ready',
    buildCount: template.history.length,
    cpuCount: sizes.vcpus,
    memoryMB: sizes.memoryMiB,
    diskSizeMB: sizes.diskMiB,
    createdBy: null,
    envdVersion,
  };
}

function showHead(template: TemplateDetail): Record<string, unknown> {
  const newest = Math.max(template.createdAt, ...template.history.map(({ createdAt }) => createdAt));
  return {
    templateID: template.name,
    aliases: [template.name],
    names: namesOf(template),
    public: template.public,
    createdAt: iso(template.createdAt),
    updatedAt: iso(newest),
    lastSpawnedAt: null,
    spawnCount: 0,
  };
}

/** Gives a version tags, or moves them to it. */
export function createTagger({ registry, serving }: Pick<ControlDeps, 'registry' | 'serving'>) {
  return (template: string, version: string, tags: readonly string[]): void => {
    for (const tag of tags) registry.setAlias(template, toAlias(tag), [{ version }]);
    serving.syncLater(0);
  };
}

export function templateRoutes(deps: ControlDeps): OpenAPIHono<ApiEnv> {
  const { registry, serving, placement, sandboxes } = deps;
  const router = newRouter();

  const require = (text: string): TemplateDetail => {
    const { name } = parseTemplateName(text);
    const found = registry.template(name);
    if (found !== null) return found;
    throw new GatewayError('template_not_found', `there is no template ${JSON.stringify(text.slice(0, 80))}`);
  };
  const all = () => registry.templates().flatMap(({ name }) => registry.template(name) ?? []);

  router.get('/templates', (context) => {
    readQuery(context, z.strictObject({ teamID: z.string().max(200).optional() }));
    return context.json(all().map(show));
  });
  router.get('/v2/templates', (context) => {
    const { limit, nextToken } = readQuery(context, pageSchema);
    const rest = all()
      .sort((one, other) => (one.name < other.name ? -1 : 1))
      .filter(({ name }) => nextToken === undefined || name > nextToken);
    const last = rest[limit - 1];
    if (last !== undefined && rest.length > limit) context.header('x-next-token', last.name);
    return context.json(rest.slice(0, limit).map(show));
  });
  router.get('/templates/aliases/:alias', (context) => {
    const template = require(context.req.param('alias'));
    return context.json({ templateID: template.name, public: template.public });
  });
  router.get('/templates/:id', (context) => {
    const { limit, nextToken } = readQuery(context, oneSchema);
    const template = require(context.req.param('id'));
    const builds = template.history.map((version) => {
      const { vcpus, memoryMiB, diskMiB } = sizesOf(version);
      return {
        buildID: version.version,
        status: 'ready',
        createdAt: iso(version.createdAt),
        updatedAt: iso(version.createdAt),
        finishedAt: iso(version.createdAt),
        ...{ cpuCount: vcpus, memoryMB: memoryMiB, diskSizeMB: diskMiB, envdVersion },
      };
    });
    const after = nextToken === undefined ? -1 : builds.findIndex(({ buildID }) => buildID === nextToken);
    const items = builds.slice(after + 1, after + 1 + limit);
    const last = items.at(-1);
    if (last !== undefined && last !== builds.at(-1)) context.header('x-next-token', last.buildID);
    return context.json({ ...showHead(template), builds: items });
  });
  router.get('/templates/:id/tags', (context) => {
    const { aliases } = require(context.req.param('id'));
    return context.json(
      aliases.map(({ alias, targets, updatedAt }) => ({
        tag: toTag(alias),
        buildID: targets[0]?.version ?? '',
        createdAt: iso(updatedAt),
      })),
    );
  });
  router.post('/templates/tags', async (context) => {
    const { target, tags } = await readBody(context, assignSchema);
    const { name, reference } = parseTemplateName(target);
    const { version } = registry.resolve(name, reference);
    createTagger(deps)(name, version, tags);
    return context.json({ buildID: version, tags }, 201);
  });
  router.delete('/templates/tags', async (context) => {
    const { name, tags } = await readBody(context, removeTagsSchema);
    const template = require(name);
    const missing = tags.find((tag) => !template.aliases.some(({ alias }) => alias === toAlias(tag)));
    if (missing !== undefined) throw new GatewayError('version_not_found', `${name} has no tag ${missing}`);
    for (const tag of tags) registry.removeAlias(template.name, toAlias(tag));
    serving.syncLater(0);
    return context.body(null, 204);
  });
  router.delete('/templates/:id', async (context) => {
    const text = context.req.param('id');
    const snapshot = await findSnapshot(deps, text);
    if (snapshot !== undefined && registry.template(parseTemplateName(text).name) === null) {
      await sandboxes.removeSnapshot(snapshot.id);
      return context.body(null, 204);
    }
    await drop(registry.removeTemplate(require(text).name));
    return context.body(null, 204);
  });
  for (const path of ['/templates/:id', '/v2/templates/:id'] as const) {
    router.patch(path, async (context) => {
      const wanted = await readBody(context, updateSchema);
      const template = require(context.req.param('id'));
      if (wanted.public !== undefined && wanted.public !== template.public) {
        throw new GatewayError(
          'not_supported_yet',
          'whether a template is public is part of its definition: publish it again',
          {
            field: 'public',
          },
        );
      }
      return context.json({ names: namesOf(template) });
    });
  }

  /** Drains first, so that the nodes can let go of the snapshots. */
  const drop = async (digests: readonly VersionDigest[]): Promise<void> => {
    await serving.sync();
    for (const edge of placement.edges()) {
      for (const digest of digests) {
        await edge.removeVersion(digest).catch((error: unknown) => {
          // Sandboxes stand on it; its files go with the last of them.
          if (!isGatewayError(error, 'conflict')) throw error;
        });
      }
    }
  };
  return router;
}
