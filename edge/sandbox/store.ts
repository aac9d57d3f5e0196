/** Durable records of sandboxes and snapshots, and the numbered events of both, in one SQLite file. */
import { DatabaseSync } from 'node:sqlite';
import { GatewayError, type SandboxEvent, type SandboxId, sandboxEventSchema } from '../../sdk/index.ts';
import { processKey } from './process-watch.ts';
import {
  type SandboxRecord,
  type SnapshotRecord,
  sandboxRecordSchema,
  snapshotRecordSchema,
} from './record.ts';

/** Events beyond these are dropped, oldest first. */
const maxEvents = 200_000;
const eventsPerRead = 1_000;

const schema = `
  PRAGMA journal_mode = WAL;
  PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS sandboxes (
    id TEXT PRIMARY KEY, state TEXT NOT NULL, ended_at INTEGER, record TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS snapshots (
    id TEXT PRIMARY KEY, name TEXT UNIQUE, sandbox TEXT NOT NULL, record TEXT NOT NULL
  ) STRICT;
  CREATE TABLE IF NOT EXISTS events (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, sandbox TEXT NOT NULL, type TEXT NOT NULL,
    data TEXT NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS events_of_sandbox ON events (sandbox, sequence);
`;

/** What happens to a sandbox, before it has a number. */
export type NewEvent = Pick<SandboxEvent, 'sandbox' | 'type' | 'data'>;

/** One change: records as they are from now on, records that go, and the events of it. All or nothing, on the medium. */
export interface Change {
  readonly sandboxes?: readonly SandboxRecord[];
  readonly snapshots?: readonly SnapshotRecord[];
  readonly removedSnapshots?: readonly string[];
  readonly events?: readonly NewEvent[];
}

export interface SandboxStore extends Disposable {
  /** Durable when it returns. Throws `conflict` when a snapshot's name is taken, `disk_full`. */
  apply(change: Change): void;
  sandbox(id: string): SandboxRecord | undefined;
  sandboxes(): SandboxRecord[];
  snapshot(id: string): SnapshotRecord | undefined;
  snapshotByName(name: string): SnapshotRecord | undefined;
  snapshots(): SnapshotRecord[];
  /** At most 1,000, in order, after `since`. */
  events(since: number, sandbox?: SandboxId): SandboxEvent[];
  lastSequence(): number;
  /** Keys (see `processKey`) of the processes of a sandbox whose end is on record. */
  endedProcesses(sandbox: string): Set<string>;
  /** Called after each change that had events; the answer ends it. */
  watch(listener: () => void): () => void;
  /** Forgets sandboxes that ended before this instant, and what is too much of the events. */
  forget(endedBefore: number): void;
}

/**
 * @param path file, created when missing; `:memory:` for tests
 * @param now epoch milliseconds
 */
export function openSandboxStore(path: string, now: () => number): SandboxStore {
  const db = new DatabaseSync(path);
  db.exec(schema);
  const statements = {
    putSandbox: db.prepare(
      'INSERT INTO sandboxes (id, state, ended_at, record) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, ended_at = excluded.ended_at, record = excluded.record',
    ),
    putSnapshot: db.prepare(
      'INSERT INTO snapshots (id, name, sandbox, record) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name, record = excluded.record',
    ),
    removeSnapshot: db.prepare('DELETE FROM snapshots WHERE id = ?'),
    addEvent: db.prepare('INSERT INTO events (at, sandbox, type, data) VALUES (?, ?, ?, ?)'),
    sandbox: db.prepare('SELECT record FROM sandboxes WHERE id = ?'),
    sandboxes: db.prepare('SELECT record FROM sandboxes ORDER BY id'),
    snapshot: db.prepare('SELECT record FROM snapshots WHERE id = ?'),
    named: db.prepare('SELECT record FROM snapshots WHERE name = ?'),
    snapshots: db.prepare('SELECT record FROM snapshots ORDER BY id'),
    events: db.prepare(`SELECT * FROM events WHERE sequence > ? ORDER BY sequence LIMIT ${eventsPerRead}`),
    eventsOf: db.prepare(
      `SELECT * FROM events WHERE sandbox = ? AND sequence > ? ORDER BY sequence LIMIT ${eventsPerRead}`,
    ),
    endsOf: db.prepare("SELECT data FROM events WHERE sandbox = ? AND type = 'process_ended'"),
    last: db.prepare('SELECT max(sequence) AS last FROM events'),
    forget: db.prepare("DELETE FROM sandboxes WHERE state = 'ended' AND ended_at < ?"),
    trim: db.prepare('DELETE FROM events WHERE sequence <= ?'),
  };
  const watchers = new Set<() => void>();
  const record = (row: unknown) => JSON.parse((row as { record: string }).record) as unknown;
  const sandboxOf = (row: unknown) =>
    row === undefined ? undefined : sandboxRecordSchema.parse(record(row));
  const snapshotOf = (row: unknown) =>
    row === undefined ? undefined : snapshotRecordSchema.parse(record(row));
  const lastSequence = () => Number((statements.last.get() as { last: number | null }).last ?? 0);

  function write({ sandboxes = [], snapshots = [], removedSnapshots = [], events = [] }: Change): void {
    for (const id of removedSnapshots) statements.removeSnapshot.run(id);
    for (const one of sandboxes)
      statements.putSandbox.run(one.id, one.state, one.termination?.at ?? null, JSON.stringify(one));
    for (const one of snapshots)
      statements.putSnapshot.run(one.id, one.name, one.sandbox, JSON.stringify(one));
    for (const { sandbox, type, data } of events)
      statements.addEvent.run(now(), sandbox, type, JSON.stringify(data));
  }

  return {
    apply(change) {
      db.exec('BEGIN IMMEDIATE');
      try {
        write(change);
        db.exec('COMMIT');
      } catch (error) {
        if (db.isTransaction) db.exec('ROLLBACK');
        throw toStoreError(error);
      }
      if ((change.events ?? []).length > 0) for (const watcher of [...watchers]) watcher();
    },
    sandbox: (id) => sandboxOf(statements.sandbox.get(id)),
    sandboxes: () => statements.sandboxes.all().map((row) => sandboxRecordSchema.parse(record(row))),
    snapshot: (id) => snapshotOf(statements.snapshot.get(id)),
    snapshotByName: (name) => snapshotOf(statements.named.get(name)),
    snapshots: () => statements.snapshots.all().map((row) => snapshotRecordSchema.parse(record(row))),
    events(since, sandbox) {
      const rows =
        sandbox === undefined ? statements.events.all(since) : statements.eventsOf.all(sandbox, since);
      return rows.map((row) => sandboxEventSchema.parse({ ...row, data: JSON.parse(String(row.data)) }));
    },
    lastSequence,
    endedProcesses: (sandbox) =>
      new Set(
        statements.endsOf.all(sandbox).map((row) => {
          const { process, pid } = JSON.parse(String(row.data)) as { process: string; pid: number };
          return processKey({ id: process, pid });
        }),
      ),
    watch(listener) {
      watchers.add(listener);
      return () => watchers.delete(listener);
    },
    forget(endedBefore) {
      statements.forget.run(endedBefore);
      statements.trim.run(lastSequence() - maxEvents);
    },
    [Symbol.dispose]() {
      if (db.isOpen) db.close();
    },
  };
}

function toStoreError(cause: unknown): unknown {
  const message = cause instanceof Error ? cause.message : '';
  const details = { component: 'edge', cause } as const;
  if (/UNIQUE constraint failed: snapshots.name/.test(message))
    return new GatewayError('conflict', 'a snapshot of this name exists', { ...details, field: 'name' });
  if (/database or disk is full/.test(message))
    return new GatewayError('disk_full', 'the records of sandboxes can not be written', details);
  return cause;
}
