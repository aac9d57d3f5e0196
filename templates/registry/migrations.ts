/** Schema of the registry's tables. The database file is shared, so each owner keeps its own schema version. */
import type { DatabaseSync } from 'node:sqlite';
import { GatewayError } from '../../sdk/index.ts';

const owner = 'templates';

/** Applied in order, each once; never edited after a release, only added to. */
const migrations: readonly string[] = [
  `CREATE TABLE templates (
     name TEXT PRIMARY KEY,
     created_at INTEGER NOT NULL,
     next_version INTEGER NOT NULL DEFAULT 1
   ) STRICT;
   CREATE TABLE versions (
     template TEXT NOT NULL REFERENCES templates(name) ON DELETE CASCADE,
     number INTEGER NOT NULL,
     digest TEXT NOT NULL,
     created_at INTEGER NOT NULL,
     facts TEXT NOT NULL,
     definition TEXT NOT NULL,
     PRIMARY KEY (template, number),
     UNIQUE (template, digest)
   ) STRICT;
   CREATE TABLE aliases (
     template TEXT NOT NULL REFERENCES templates(name) ON DELETE CASCADE,
     alias TEXT NOT NULL,
     updated_at INTEGER NOT NULL,
     PRIMARY KEY (template, alias)
   ) STRICT;
   CREATE TABLE alias_targets (
     template TEXT NOT NULL,
     alias TEXT NOT NULL,
     position INTEGER NOT NULL,
     number INTEGER NOT NULL,
     weight INTEGER NOT NULL,
     PRIMARY KEY (template, alias, position),
     FOREIGN KEY (template, alias) REFERENCES aliases(template, alias) ON DELETE CASCADE,
     FOREIGN KEY (template, number) REFERENCES versions(template, number)
   ) STRICT;`,
];

/** https://www.sqlite.org/rescode.html#full */
const sqliteFull = 13;

/** Runs `work` in a write transaction that is undone when it throws. @throws GatewayError `disk_full` */
export function inTransaction<T>(db: DatabaseSync, work: () => T): T {
  db.exec('BEGIN IMMEDIATE');
  try {
    const result = work();
    db.exec('COMMIT');
    return result;
  } catch (error) {
    // SQLite may have rolled back by itself (disk full); asking twice would hide the first error.
    if (db.isTransaction) db.exec('ROLLBACK');
    if ((error as { errcode?: number }).errcode === sqliteFull) {
      throw new GatewayError('disk_full', 'the disk ran full while the registry was written', {
        component: 'templates',
        cause: error,
      });
    }
    throw error;
  }
}

/**
 * Brings the tables of the registry up to date. Safe when several owners share `db` and when it ran before.
 * @throws Error when the database was written by a newer release
 */
export function migrate(db: DatabaseSync): void {
  db.exec('PRAGMA journal_mode = WAL; PRAGMA foreign_keys = ON; PRAGMA busy_timeout = 5000;');
  inTransaction(db, () => {
    db.exec(
      'CREATE TABLE IF NOT EXISTS schema_migrations (owner TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT',
    );
    const row = db.prepare('SELECT version FROM schema_migrations WHERE owner = ?').get(owner);
    const current = row === undefined ? 0 : Number(row.version);
    if (current > migrations.length) {
      throw new Error(`the template registry was written by a newer release (schema ${current})`);
    }
    for (const sql of migrations.slice(current)) db.exec(sql);
    db.prepare(
      'INSERT INTO schema_migrations (owner, version) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET version = excluded.version',
    ).run(owner, migrations.length);
  });
}
