import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type TestContext, test } from 'node:test';
import fc from 'fast-check';
import {
  type Clock,
  type ErrorCode,
  isGatewayError,
  templateDetailSchema,
  templateSchema,
  type VersionFacts,
  versionSchema,
} from '../../sdk/index.ts';
import { parseDefinition } from '../definition/index.ts';
import { createTemplateRegistry, type TemplateRegistry } from './registry.ts';

class Hands implements Clock {
  at = 1000;
  now = () => this.at;
  monotonic = () => this.at;
  schedule = () => () => {};
}

interface Desk {
  readonly db: DatabaseSync;
  readonly clock: Hands;
  readonly registry: TemplateRegistry;
}

function desk(context: TestContext, path = ':memory:'): Desk {
  const db = new DatabaseSync(path);
  context.after(() => db.close());
  const clock = new Hands();
  return { db, clock, registry: createTemplateRegistry(db, { clock }) };
}

const facts = (seed: number): VersionFacts => ({
  digest: `sha256:${seed.toString(16).padStart(64, '0')}`,
  builtAt: 1,
  buildMs: 2,
  memoryBytes: 3,
  stateBytes: 4,
  diskBytes: 5,
  accelerator: 'tcg',
  verifyRestoreMs: 6,
  verifyFirstResponseMs: null,
});

const version = (seed: number, name = 'hello', more: object = {}) => ({
  definition: parseDefinition({ name, ...more }),
  facts: facts(seed),
});

const refuses = (code: ErrorCode, work: () => unknown, text?: RegExp) =>
  assert.throws(work, (error) => {
    assert.ok(isGatewayError(error, code), String(error));
    if (text !== undefined) assert.match(error.message, text);
    return true;
  });

test('the first publish makes the template, its v1 and latest', (context) => {
  const { registry } = desk(context);
  const published = registry.publish('hello', version(1));
  assert.equal(published.version, 'v1');
  assert.deepEqual(published.aliases, ['latest']);
  assert.deepEqual(registry.resolve('hello'), published);
  assert.deepEqual(registry.templates(), [
    { name: 'hello', createdAt: 1000, versions: 1, latest: 'v1', public: false },
  ]);
});

test('what the registry answers is what the wire allows', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1, 'hello', { public: true }));
  registry.publish('hello', version(2, 'hello', { start: { command: ['x'], port: 1 } }));
  templateDetailSchema.parse(registry.template('hello'));
  for (const template of registry.templates()) templateSchema.parse(template);
  const { template: _template, ...wire } = registry.resolve('hello');
  versionSchema.parse(wire);
});

test('publishing moves latest to the new version and leaves the old one addressable', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  registry.publish('hello', version(2));
  assert.equal(registry.resolve('hello').version, 'v2');
  assert.equal(registry.resolve('hello', 'v1').digest, facts(1).digest);
  assert.deepEqual(
    registry.template('hello')?.history.map(({ version: name, aliases }) => [name, aliases]),
    [
      ['v2', ['latest']],
      ['v1', []],
    ],
  );
});

test('publishing an unchanged digest answers the version that is there and points latest to it', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  registry.publish('hello', version(2));
  const again = registry.publish('hello', { ...version(1), facts: { ...facts(1), buildMs: 99 } });
  assert.equal(again.version, 'v1');
  assert.equal(again.facts.buildMs, 99);
  assert.equal(registry.resolve('hello').version, 'v1');
  assert.equal(registry.template('hello')?.versions, 2);
});

test('a version can be added before any alias moves, so that it can be warmed first', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  const added = registry.addVersion('hello', version(2));
  assert.deepEqual([added.version, added.aliases], ['v2', []]);
  assert.equal(registry.resolve('hello').version, 'v1');
  registry.setAlias('hello', 'latest', [{ version: 'v2' }]);
  assert.equal(registry.resolve('hello').version, 'v2');
});

test('a digest prefix of eight digits or more names a version when it is unique', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', { ...version(1), facts: { ...facts(1), digest: `sha256:${'ab'.repeat(32)}` } });
  const other = `sha256:${'ab'.repeat(8)}${'cd'.repeat(24)}`;
  registry.publish('hello', { ...version(2), facts: { ...facts(2), digest: other } });
  assert.equal(registry.resolve('hello', other).version, 'v2');
  assert.equal(registry.resolve('hello', other.slice(0, 30)).version, 'v2');
  refuses('version_not_found', () => registry.resolve('hello', 'sha256:abababab'), /several versions/);
  refuses('version_not_found', () => registry.resolve('hello', 'sha256:abab'), /at least 8 digits/);
  refuses('version_not_found', () => registry.resolve('hello', 'sha256:%%%%%%%%'), /no version or alias/);
});

test('unknown names are told apart: no template, no version, no alias', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  refuses('template_not_found', () => registry.resolve('nobody'));
  refuses('version_not_found', () => registry.resolve('hello', 'v2'));
  refuses('version_not_found', () => registry.resolve('hello', 'canary'));
  refuses('version_not_found', () => registry.resolve('hello', ''));
  assert.equal(registry.template('nobody'), null);
});

test('a weighted alias gives each version its share', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  registry.publish('hello', version(2));
  registry.setAlias('hello', 'canary', [
    { version: 'v1', weight: 3 },
    { version: 'v2', weight: 1 },
  ]);
  const drawn = [0, 0.25, 0.5, 0.749, 0.75, 0.999].map(
    (point) => registry.resolve('hello', 'canary', () => point).version,
  );
  assert.deepEqual(drawn, ['v1', 'v1', 'v1', 'v1', 'v2', 'v2']);
});

test('an alias must have a proper name and distinct versions that exist', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  refuses('invalid_request', () => registry.setAlias('hello', 'v1', [{ version: 'v1' }]));
  refuses('invalid_request', () => registry.setAlias('hello', 'Live', [{ version: 'v1' }]));
  refuses('invalid_request', () => registry.setAlias('hello', 'live', []));
  refuses('invalid_request', () => registry.setAlias('hello', 'live', [{ version: 'v1', weight: 0 }]));
  refuses('invalid_request', () =>
    registry.setAlias('hello', 'live', [{ version: 'v1' }, { version: 'v1' }]),
  );
  refuses('version_not_found', () =>
    registry.setAlias('hello', 'live', [{ version: 'v1' }, { version: 'v9' }]),
  );
  refuses('template_not_found', () => registry.setAlias('nobody', 'live', [{ version: 'v1' }]));
  assert.deepEqual(
    registry.aliases().map(({ alias }) => alias),
    ['latest'],
  );
});

test('a version an alias points to is not removed; numbers are never used twice', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  registry.publish('hello', version(2));
  refuses('conflict', () => registry.removeVersion('hello', 'v2'), /in use by alias latest/);
  assert.equal(registry.removeVersion('hello', 'v1'), facts(1).digest);
  refuses('version_not_found', () => registry.removeVersion('hello', 'v1'));
  assert.equal(registry.publish('hello', version(1)).version, 'v3');
});

test('an alias that is removed frees its versions, and latest stays', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  registry.setAlias('hello', 'live', [{ version: 'v1' }]);
  registry.publish('hello', version(2));
  refuses('conflict', () => registry.removeVersion('hello', 'v1'), /live/);
  registry.removeAlias('hello', 'live');
  registry.removeVersion('hello', 'v1');
  refuses('conflict', () => registry.removeAlias('hello', 'latest'));
  refuses('version_not_found', () => registry.removeAlias('hello', 'live'));
});

test('a removed template is gone with its versions, and its name starts over', (context) => {
  const { registry } = desk(context);
  registry.publish('hello', version(1));
  registry.publish('hello', version(2));
  registry.publish('other', version(3, 'other'));
  registry.resolve('hello');
  assert.deepEqual(registry.removeTemplate('hello').sort(), [facts(1).digest, facts(2).digest]);
  refuses('template_not_found', () => registry.resolve('hello'));
  refuses('template_not_found', () => registry.removeTemplate('hello'));
  assert.deepEqual(
    registry.aliases().map(({ template }) => template),
    ['other'],
  );
  assert.equal(registry.publish('hello', version(4)).version, 'v1');
});

test('a definition of another template is not recorded, and nothing is left of the attempt', (context) => {
  const { registry } = desk(context);
  refuses('invalid_request', () => registry.publish('hello', version(1, 'other')));
  assert.deepEqual(registry.templates(), []);
});

test('all versions behind any alias are the ones to keep warm', (context) => {
  const { registry } = desk(context);
  for (const seed of [1, 2, 3]) registry.publish('hello', version(seed));
  registry.setAlias('hello', 'live', [{ version: 'v1' }]);
  registry.publish('other', version(9, 'other'));
  assert.deepEqual(
    registry.aliasedVersions().map(({ template, version: name }) => `${template}@${name}`),
    ['hello@v3', 'hello@v1', 'other@v1'],
  );
});

test('resolving from memory reads no row, and another process is seen once that has aged', (context) => {
  const directory = mkdtempSync(join(tmpdir(), 'snapgate-registry-'));
  context.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'control.db');
  const here = desk(context, path);
  const there = desk(context, path);
  here.registry.publish('hello', version(1));
  assert.equal(here.registry.resolve('hello').version, 'v1');
  there.registry.publish('hello', version(2));
  assert.equal(here.registry.resolve('hello').version, 'v1');
  here.clock.at += 600;
  here.registry.resolve('hello', 'v1');
  here.clock.at += 600;
  assert.equal(here.registry.resolve('hello').version, 'v2');
});

test('the registry survives a restart and shares its file with other owners', (context) => {
  const directory = mkdtempSync(join(tmpdir(), 'snapgate-registry-'));
  context.after(() => rmSync(directory, { recursive: true }));
  const path = join(directory, 'control.db');
  const first = new DatabaseSync(path);
  first.exec('CREATE TABLE schema_migrations (owner TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT');
  first.exec("INSERT INTO schema_migrations VALUES ('keys', 7)");
  createTemplateRegistry(first, { clock: new Hands() }).publish('hello', version(1));
  first.close();
  const { db, registry } = desk(context, path);
  assert.equal(registry.resolve('hello').version, 'v1');
  assert.equal(db.prepare("SELECT version FROM schema_migrations WHERE owner = 'keys'").get()?.version, 7);
  db.exec("UPDATE schema_migrations SET version = 999 WHERE owner = 'templates'");
  assert.throws(() => createTemplateRegistry(db, { clock: new Hands() }), /newer release/);
});

test('a disk that runs full in the middle of a publish is disk_full, and nothing half-recorded stays', (context) => {
  const { db, registry } = desk(context);
  registry.publish('hello', version(1));
  const pages = Number(db.prepare('PRAGMA page_count').get()?.page_count);
  db.exec(`PRAGMA max_page_count = ${pages + 1}`);
  const large = { env: { A: 'x'.repeat(16_000) } };
  refuses('disk_full', () => registry.publish('hello', version(2, 'hello', large)));
  assert.equal(registry.resolve('hello').version, 'v1');
  assert.equal(registry.template('hello')?.versions, 1);
  db.exec('PRAGMA max_page_count = 100000');
  assert.equal(registry.publish('hello', version(2, 'hello', large)).version, 'v2');
});

// Against a model that is only arrays: whatever is done in whatever order, both agree on names and latest.
test('any sequence of publishes, moves and removals keeps numbers, latest and references consistent', () => {
  const command = fc.oneof(
    fc.record({ kind: fc.constant('publish' as const), seed: fc.integer({ min: 1, max: 4 }) }),
    fc.record({ kind: fc.constant('add' as const), seed: fc.integer({ min: 1, max: 4 }) }),
    fc.record({ kind: fc.constant('move' as const), seed: fc.integer({ min: 1, max: 6 }) }),
    fc.record({ kind: fc.constant('remove' as const), seed: fc.integer({ min: 1, max: 6 }) }),
  );
  fc.assert(
    fc.property(fc.array(command, { maxLength: 20 }), (commands) => {
      const db = new DatabaseSync(':memory:');
      const registry = createTemplateRegistry(db, { clock: new Hands() });
      const digests = new Map<number, string>();
      let next = 1;
      let latest: number | undefined;
      registry.publish('hello', version(100));
      digests.set(next, facts(100).digest);
      latest = next;
      next += 1;
      const numberFor = (seed: number) =>
        [...digests].find(([, digest]) => digest === facts(seed).digest)?.[0];
      for (const { kind, seed } of commands) {
        if (kind === 'publish' || kind === 'add') {
          let number = numberFor(seed);
          if (number === undefined) {
            number = next;
            next += 1;
            digests.set(number, facts(seed).digest);
          }
          const { version: name } =
            kind === 'add'
              ? registry.addVersion('hello', version(seed))
              : registry.publish('hello', version(seed));
          assert.equal(name, `v${number}`);
          if (kind === 'publish') latest = number;
        } else if (kind === 'move') {
          const move = () => registry.setAlias('hello', 'latest', [{ version: `v${seed}` }]);
          if (digests.has(seed)) {
            move();
            latest = seed;
          } else refuses('version_not_found', move);
        } else {
          const remove = () => registry.removeVersion('hello', `v${seed}`);
          if (!digests.has(seed)) refuses('version_not_found', remove);
          else if (seed === latest) refuses('conflict', remove);
          else {
            remove();
            digests.delete(seed);
          }
        }
        assert.equal(registry.resolve('hello').version, `v${latest}`);
        for (const [number, digest] of digests) {
          assert.equal(registry.resolve('hello', `v${number}`).digest, digest);
          assert.equal(registry.resolve('hello', digest).version, `v${number}`);
        }
        assert.equal(registry.template('hello')?.versions, digests.size);
      }
      db.close();
    }),
    { numRuns: 60 },
  );
});
