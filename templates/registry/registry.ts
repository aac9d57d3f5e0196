/** Names, versions and aliases: who is `hello@canary`, and what moves when something is published. */
import { randomInt } from 'node:crypto';
import type { DatabaseSync } from 'node:sqlite';
import { LRUCache } from 'lru-cache';
import {
  type Alias,
  aliasNameSchema,
  type Clock,
  setAliasRequestSchema,
  type Template,
  type TemplateDetail,
  templateNameSchema,
  type VersionDigest,
  type VersionFacts,
} from '../../sdk/index.ts';
import { canonicalJson, type TemplateDefinition, templateDefinitionSchema } from '../definition/index.ts';
import { inTransaction, migrate } from './migrations.ts';
import { draw, failure, lookUp, show, type Target } from './references.ts';
import { createRows, numberOf, type RegisteredVersion, type RegistryRows } from './rows.ts';

/** The alias that publishing moves, and that is meant where no version is named. */
export const latestAlias = 'latest';
const maxCachedTemplates = 1000;
const maxCachedReferences = 256;

/** A built version that gets a number. */
export interface NewVersion {
  readonly definition: Readonly<Record<string, unknown>> | TemplateDefinition;
  readonly facts: VersionFacts;
}

/** All methods are synchronous and durable when they return. Writers may be several processes; readers see them within `cacheMs`. */
export interface TemplateRegistry {
  templates(): Template[];
  /** Null when nothing was published under that name. */
  template(name: string): TemplateDetail | null;
  aliases(): Alias[];
  /** Every version some alias points to: what edges have to keep warm. */
  aliasedVersions(): RegisteredVersion[];
  /**
   * The version a caller means. `reference` is a version (`v3`), an alias, or `sha256:` with at least 8 digits; default
   * `latest`. For a weighted alias, `random` (uniform in [0, 1)) draws the target.
   * @throws GatewayError `template_not_found`, `version_not_found`
   */
  resolve(name: string, reference?: string, random?: () => number): RegisteredVersion;
  /**
   * Records a version under the next number and makes its template when it is the first; moves no alias. A digest that is
   * known keeps its number and gets the new facts.
   * @throws GatewayError `invalid_request` when the definition is of another template
   */
  addVersion(name: string, version: NewVersion): RegisteredVersion;
  /** {@link addVersion}, and `latest` points to it alone, in one transaction. */
  publish(name: string, version: NewVersion): RegisteredVersion;
  /** Makes or replaces an alias. @throws GatewayError `invalid_request`, `template_not_found`, `version_not_found` */
  setAlias(name: string, alias: string, targets: readonly { version: string; weight?: number }[]): Alias;
  /** @throws GatewayError `conflict` for `latest`, `template_not_found`, `version_not_found` */
  removeAlias(name: string, alias: string): void;
  /** @returns its digest. @throws GatewayError `template_not_found`, `version_not_found`, `conflict` while an alias names it */
  removeVersion(name: string, version: string): VersionDigest;
  /** With all versions and aliases. @returns the digests. @throws GatewayError `template_not_found` */
  removeTemplate(name: string): VersionDigest[];
}

export interface RegistryOptions {
  /** How long a resolved name may be answered from memory, milliseconds. Own writes count at once. Default 1000. */
  readonly cacheMs?: number;
}

/** Uniform in [0, 1) with 48 bits. */
const cryptoRandom = (): number => randomInt(2 ** 47) / 2 ** 47;

/**
 * Opens the registry in `db`, which may be shared with other owners and stays the caller's to close.
 * @throws Error when a newer release wrote it
 */
export function createTemplateRegistry(
  db: DatabaseSync,
  deps: { readonly clock: Clock },
  options: RegistryOptions = {},
): TemplateRegistry {
  migrate(db);
  const rows = createRows(db);
  const { clock } = deps;
  const { cacheMs = 1000 } = options;
  const cache = new LRUCache<string, Map<string, readonly Target[]>>({
    max: maxCachedTemplates,
    ttl: cacheMs,
    ttlResolution: 0,
    // lru-cache takes an age that starts at 0 for none.
    perf: { now: () => clock.monotonic() + 1 },
  });

  const requireTemplate = (name: string) => {
    const row = rows.template(name);
    if (row === undefined) throw failure('template_not_found', `there is no template named ${show(name)}`);
    return row;
  };
  const requireVersion = (name: string, version: string): RegisteredVersion & { number: number } => {
    const number = numberOf(version);
    const found = number === undefined ? undefined : rows.version(name, number);
    if (found === undefined || number === undefined) {
      throw failure('version_not_found', `template ${name} has no version ${show(version)}`);
    }
    return { ...found, number };
  };
  /** Own writes invalidate before anybody can read again, whether they succeed or not. */
  const write = <T>(name: string, work: () => T): T => {
    try {
      return inTransaction(db, work);
    } finally {
      cache.delete(name);
    }
  };

  function add(name: string, version: NewVersion): RegisteredVersion & { number: number } {
    const definition = checkedDefinition(name, version);
    const now = clock.now();
    if (rows.template(name) === undefined) rows.insertTemplate(name, now);
    const known = rows.versionByDigest(name, version.facts.digest);
    const number = known === undefined ? rows.takeNumber(name) : (numberOf(known.version) as number);
    if (known !== undefined) rows.updateFacts(name, number, version.facts);
    else rows.insertVersion(name, number, now, version.facts, canonicalJson(definition));
    return requireVersion(name, `v${number}`);
  }

  const withoutNumber = ({ number: _number, ...version }: RegisteredVersion & { number: number }) => version;

  return {
    templates: () => rows.templates().map((row) => summaryOf(rows, row)),
    template(name) {
      const row = rows.template(name);
      if (row === undefined) return null;
      return {
        ...summaryOf(rows, row),
        history: rows.versions(name).map(toWire),
        aliases: rows.aliases(name),
      };
    },
    aliases: () => rows.aliases(),
    aliasedVersions: () =>
      rows.templates().flatMap(({ name }) => rows.versions(name).filter(({ aliases }) => aliases.length > 0)),
    resolve(name, reference = latestAlias, random = cryptoRandom) {
      let references = cache.get(name);
      let targets = references?.get(reference);
      if (targets === undefined) {
        requireTemplate(name);
        targets = lookUp(rows, name, reference);
        references ??= new Map();
        // References are the caller's text; only those that resolved are kept, and not without end.
        if (references.size >= maxCachedReferences) references.clear();
        references.set(reference, targets);
        // An entry keeps its age: otherwise new references would hide other processes' writes for ever.
        if (!cache.has(name)) cache.set(name, references);
      }
      return draw(targets, random);
    },
    addVersion: (name, version) => withoutNumber(write(name, () => add(name, version))),
    publish: (name, version) =>
      write(name, () => {
        const { number } = add(name, version);
        rows.putAlias(name, latestAlias, clock.now(), [[number, 1]]);
        return withoutNumber(requireVersion(name, `v${number}`));
      }),
    setAlias: (name, alias, targets) =>
      write(name, () => {
        requireTemplate(name);
        const checked = checkedTargets(alias, targets).map(({ version, weight }): [number, number] => [
          requireVersion(name, version).number,
          weight,
        ]);
        rows.putAlias(name, alias, clock.now(), checked);
        return rows.aliases(name).find((row) => row.alias === alias) as Alias;
      }),
    removeAlias: (name, alias) =>
      write(name, () => {
        requireTemplate(name);
        if (alias === latestAlias) throw failure('conflict', 'latest always exists; it can only be moved');
        if (!rows.aliases(name).some((row) => row.alias === alias)) {
          throw failure('version_not_found', `template ${name} has no alias ${show(alias)}`);
        }
        rows.deleteAlias(name, alias);
      }),
    removeVersion: (name, version) =>
      write(name, () => {
        requireTemplate(name);
        const { number, aliases, digest } = requireVersion(name, version);
        if (aliases.length > 0) {
          throw failure('conflict', `${name}@${version} is in use by alias ${aliases.join(', ')}`);
        }
        rows.deleteVersion(name, number);
        return digest as VersionDigest;
      }),
    removeTemplate: (name) =>
      write(name, () => {
        requireTemplate(name);
        const digests = rows.versions(name).map(({ digest }) => digest as VersionDigest);
        rows.deleteTemplate(name);
        return digests;
      }),
  };
}

const toWire = ({ template: _template, ...version }: RegisteredVersion) => version;

function summaryOf(rows: RegistryRows, row: { name: string; created_at: number }): Template {
  const aliases = rows.aliases(row.name);
  const latest = aliases.find(({ alias }) => alias === latestAlias)?.targets[0]?.version ?? null;
  const number = latest === null ? undefined : numberOf(latest);
  return {
    name: row.name,
    createdAt: row.created_at,
    versions: rows.versionCount(row.name),
    latest,
    public: number === undefined ? false : (rows.version(row.name, number)?.definition.public ?? false),
  };
}

function checkedDefinition(name: string, version: NewVersion): TemplateDefinition {
  const definition = templateDefinitionSchema.parse(version.definition);
  if (!templateNameSchema.safeParse(name).success || definition.name !== name) {
    throw failure('invalid_request', `the definition is of ${show(definition.name)}, not of ${show(name)}`);
  }
  return definition;
}

function checkedTargets(alias: string, targets: readonly { version: string; weight?: number }[]) {
  if (!aliasNameSchema.safeParse(alias).success) {
    throw failure(
      'invalid_request',
      `${show(alias)} is not a name for an alias: a-z, 0-9 and -, and not like v1`,
    );
  }
  const result = setAliasRequestSchema.safeParse({ targets });
  if (!result.success) {
    const issue = result.error.issues[0];
    throw failure('invalid_request', `${issue?.path.join('.')}: ${issue?.message}`);
  }
  const seen = new Set(result.data.targets.map(({ version }) => version));
  if (seen.size < result.data.targets.length) throw failure('invalid_request', 'a version is named twice');
  return result.data.targets;
}
