/** Records for tests, whole and valid; each is called by one letter. */
import { parseDefinition } from '../../../templates/index.ts';
import type { SandboxRecord, SnapshotRecord } from '../record.ts';

const origin = {
  template: 'a',
  version: 'v1',
  digest: `sha256:${'0'.repeat(64)}`,
  definition: parseDefinition({ name: 'a', image: {} }),
  shape: { vcpus: 1, memoryMiB: 256, diskMiB: 512, rootPath: '/root' },
};

/** The id of whoever is called by this letter. */
export const idOf = (letter: string): string => letter.repeat(20);

/** A running sandbox without a machine. */
export const sandboxRecord = (letter: string, changes: Partial<SandboxRecord> = {}): SandboxRecord => ({
  ...{ id: idOf(letter), origin, base: '1-2', state: 'running', createdAt: 1, startedAt: 1, deadlineMs: 5 },
  ...{ deadlineAt: 6, generation: 1, onTimeout: 'kill', autoResume: false, metadata: {}, env: {} },
  ...{ secretNames: [], sealedSecrets: null, endedBefore: [], parent: null, basis: null, start: 'ready' },
  ...{ termination: null, machine: null, pausedAs: null, network: null },
  ...changes,
});

/** A snapshot of sandbox `s` of ten bytes. */
export const snapshotRecord = (letter: string, changes: Partial<SnapshotRecord> = {}): SnapshotRecord => ({
  ...{ id: idOf(letter), kind: 'user', name: null, sandbox: idOf('s'), origin, base: '1-2', parent: null },
  ...{ createdAt: 1, isPinned: false, bytes: 10, network: null },
  ...changes,
});
