/** Between SQLite rows and the wire types: every prepared statement of the registry and what its rows mean. */
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { z } from 'zod';
import {
  type Alias,
  type TemplateName,
  type Version,
  type VersionFacts,
  versionFactsSchema,
} from '../../sdk/index.ts';
import { type TemplateDefinition, templateDefinitionSchema } from '../definition/index.ts';

/** A version as the registry knows it; assignable to the wire's {@link Version}. */
export interface RegisteredVersion extends Version {
  readonly template: TemplateName;
  readonly definition: TemplateDefinition;
}

const versionRow = z.object({
  template: z.string(),
  number: z.number(),
  digest: z.string(),
  created_at: z.number(),
  facts: z.string(),
  definition: z.string(),
});

const targetRow = z.object({
  template: z.string(),
  alias: z.string(),
  updated_at: z.number(),
  number: z.number(),
  weight: z.number(),
});

const templateRow = z.object({ name: z.string(), created_at: z.number(), next_version: z.number() });
type TemplateRow = z.infer<typeof templateRow>;

/** `v7` → 7; undefined for anything else. */
export const numberOf = (version: string): number | undefined =>
  /^v[1-9][0-9]{0,8}$/.test(version) ? Number(version.slice(1)) : undefined;

/** Definitions go through the schema again, which fills in fields that are younger than the row. */
function toVersion(row: unknown, aliases: readonly string[]): RegisteredVersion {
  const { template, number, digest, created_at, facts, definition } = versionRow.parse(row);
  return {
    template: template as TemplateName,
    version: `v${number}`,
    digest,
    createdAt: created_at,
    aliases: [...aliases],
    facts: versionFactsSchema.parse(JSON.parse(facts)),
    definition: templateDefinitionSchema.parse(JSON.parse(definition)),
  };
}

function toAliases(rows: readonly unknown[]): Alias[] {
  const aliases: Alias[] = [];
  for (const row of rows) {
    const { template, alias, updated_at, number, weight } = targetRow.parse(row);
    const last = aliases.at(-1);
    const target = { version: `v${number}`, weight };
    if (last?.template === template && last.alias === alias) last.targets.push(target);
    else aliases.push({ template, alias, targets: [target], updatedAt: updated_at });
  }
  return aliases;
}

const versionColumns = 'template, number, digest, created_at, facts, definition';
const aliasQuery = `SELECT a.template, a.alias, a.updated_at, t.number, t.weight
  FROM aliases a JOIN alias_targets t USING (template, alias)`;

/** Reads and writes without rules; {@link createTemplateRegistry} has the rules. */
export interface RegistryRows {
  templates(): TemplateRow[];
  template(name: string): TemplateRow | undefined;
  /** Newest first. */
  versions(template: string): RegisteredVersion[];
  version(template: string, number: number): RegisteredVersion | undefined;
  versionByDigest(template: string, digest: string): RegisteredVersion | undefined;
  /** At most two, to tell "none", "one" and "several" apart. `prefix` holds no wildcard. */
  versionsByDigestPrefix(template: string, prefix: string): RegisteredVersion[];
  versionCount(template: string): number;
  aliases(template?: string): Alias[];
  insertTemplate(name: string, createdAt: number): void;
  /** Numbers are never used twice, not even after a removal. */
  takeNumber(template: string): number;
  insertVersion(
    template: string,
    number: number,
    createdAt: number,
    facts: VersionFacts,
    definition: string,
  ): void;
  updateFacts(template: string, number: number, facts: VersionFacts): void;
  putAlias(template: string, alias: string, updatedAt: number, targets: readonly [number, number][]): void;
  deleteAlias(template: string, alias: string): void;
  deleteVersion(template: string, number: number): void;
  deleteTemplate(name: string): void;
}

/** Prepares all statements once. */
export function createRows(db: DatabaseSync): RegistryRows {
  const prepare = (sql: string): StatementSync => db.prepare(sql);
  const sql = {
    templates: prepare('SELECT * FROM templates ORDER BY name'),
    template: prepare('SELECT * FROM templates WHERE name = ?'),
    versions: prepare(`SELECT ${versionColumns} FROM versions WHERE template = ? ORDER BY number DESC`),
    version: prepare(`SELECT ${versionColumns} FROM versions WHERE template = ? AND number = ?`),
    byDigest: prepare(`SELECT ${versionColumns} FROM versions WHERE template = ? AND digest = ?`),
    byPrefix: prepare(
      `SELECT ${versionColumns} FROM versions WHERE template = ? AND substr(digest, 1, length(?)) = ? LIMIT 2`,
    ),
    count: prepare('SELECT count(*) AS count FROM versions WHERE template = ?'),
    aliasesOf: prepare(`${aliasQuery} WHERE a.template = ? ORDER BY a.alias, t.position`),
    aliases: prepare(`${aliasQuery} ORDER BY a.template, a.alias, t.position`),
    aliasesOfVersion: prepare(
      'SELECT DISTINCT alias FROM alias_targets WHERE template = ? AND number = ? ORDER BY alias',
    ),
    insertTemplate: prepare('INSERT INTO templates (name, created_at) VALUES (?, ?)'),
    takeNumber: prepare(
      'UPDATE templates SET next_version = next_version + 1 WHERE name = ? RETURNING next_version - 1 AS number',
    ),
    insertVersion: prepare(`INSERT INTO versions (${versionColumns}) VALUES (?, ?, ?, ?, ?, ?)`),
    updateFacts: prepare('UPDATE versions SET facts = ? WHERE template = ? AND number = ?'),
    putAlias: prepare(
      `INSERT INTO aliases (template, alias, updated_at) VALUES (?, ?, ?)
       ON CONFLICT (template, alias) DO UPDATE SET updated_at = excluded.updated_at`,
    ),
    clearTargets: prepare('DELETE FROM alias_targets WHERE template = ? AND alias = ?'),
    insertTarget: prepare(
      'INSERT INTO alias_targets (template, alias, position, number, weight) VALUES (?, ?, ?, ?, ?)',
    ),
    deleteAlias: prepare('DELETE FROM aliases WHERE template = ? AND alias = ?'),
    deleteVersion: prepare('DELETE FROM versions WHERE template = ? AND number = ?'),
    // Targets refer to versions without a cascade (a version in use must not vanish), so they go first.
    deleteTargets: prepare('DELETE FROM alias_targets WHERE template = ?'),
    deleteTemplate: prepare('DELETE FROM templates WHERE name = ?'),
  };

  const withAliases = (row: unknown): RegisteredVersion => {
    const { template, number } = versionRow.parse(row);
    const aliases = sql.aliasesOfVersion.all(template, number).map(({ alias }) => String(alias));
    return toVersion(row, aliases);
  };
  const optional = <T>(row: unknown, read: (row: unknown) => T): T | undefined =>
    row === undefined ? undefined : read(row);

  return {
    templates: () => sql.templates.all().map((row) => templateRow.parse(row)),
    template: (name) => optional(sql.template.get(name), (row) => templateRow.parse(row)),
    versions: (template) => sql.versions.all(template).map(withAliases),
    version: (template, number) => optional(sql.version.get(template, number), withAliases),
    versionByDigest: (template, digest) => optional(sql.byDigest.get(template, digest), withAliases),
    versionsByDigestPrefix: (template, prefix) => sql.byPrefix.all(template, prefix, prefix).map(withAliases),
    versionCount: (template) => Number(sql.count.get(template)?.count ?? 0),
    aliases: (template) =>
      toAliases(template === undefined ? sql.aliases.all() : sql.aliasesOf.all(template)),
    insertTemplate: (name, createdAt) => void sql.insertTemplate.run(name, createdAt),
    takeNumber: (template) => Number(sql.takeNumber.get(template)?.number),
    insertVersion: (template, number, createdAt, facts, definition) =>
      void sql.insertVersion.run(
        template,
        number,
        facts.digest,
        createdAt,
        JSON.stringify(facts),
        definition,
      ),
    updateFacts: (template, number, facts) =>
      void sql.updateFacts.run(JSON.stringify(facts), template, number),
    putAlias(template, alias, updatedAt, targets) {
      sql.putAlias.run(template, alias, updatedAt);
      sql.clearTargets.run(template, alias);
      for (const [position, [number, weight]] of targets.entries()) {
        sql.insertTarget.run(template, alias, position, number, weight);
      }
    },
    deleteAlias: (template, alias) => void sql.deleteAlias.run(template, alias),
    deleteVersion: (template, number) => void sql.deleteVersion.run(template, number),
    deleteTemplate(name) {
      sql.deleteTargets.run(name);
      sql.deleteTemplate.run(name);
    },
  };
}
