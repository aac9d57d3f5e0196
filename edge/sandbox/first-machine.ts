/** The machine that a new sandbox begins with. */
import type { Lease } from '../../pool/index.ts';
import { GatewayError, type NetworkChoice, type VersionDigest } from '../../sdk/index.ts';
import type { SandboxOrigin } from '../client/sandbox-port.ts';
import type { Machine } from '../machine/machine.ts';
import { findRamMapping } from '../memory/index.ts';
import type { SandboxContext } from './context.ts';
import { foldDeepDisk } from './layers.ts';
import { lend } from './lending.ts';
import { LiveMachine } from './live-machine.ts';
import { checkChoice } from './network.ts';
import type { SandboxRecord } from './record.ts';
import { findSnapshot } from './snapshots.ts';

/** A fresh machine of a version, held for one sandbox. Throws what the pool throws. */
export type Acquire = (digest: VersionDigest, options: { readonly signal: AbortSignal }) => Promise<Lease>;

/** The caller owns the machine; the rest is part of the record. */
export interface FirstMachine
  extends Pick<SandboxRecord, 'origin' | 'base' | 'parent' | 'basis' | 'start' | 'network'> {
  readonly live: LiveMachine;
}

/**
 * Leased from the pool of a version, or restored from a snapshot. `network`: rules of its own; null: those of its origin. Throws what either throws, and `version_not_found`.
 */
export function firstMachine(
  context: SandboxContext,
  acquire: Acquire,
  origin: SandboxOrigin,
  options: { readonly signal: AbortSignal; readonly network: NetworkChoice | null },
): Promise<FirstMachine> {
  return origin.kind === 'version'
    ? fromVersion(context, acquire, origin, options)
    : fromSnapshot(context, origin.snapshot, options);
}

async function fromVersion(
  { bases, networks }: SandboxContext,
  acquire: Acquire,
  { digest, template, version: name }: SandboxOrigin & { kind: 'version' },
  { signal, network }: { readonly signal: AbortSignal; readonly network: NetworkChoice | null },
): Promise<FirstMachine> {
  const lease = await acquire(digest, { signal });
  try {
    const { version, channel, channelToken, running } = lease.machine as Machine;
    if (running === null)
      throw new GatewayError('restore_failed', 'the machine ended', { component: 'edge' });
    const base = await bases.keep(version.snapshot);
    // A version that was rebuilt under it would be another base; this compares the very files.
    await findRamMapping(running.pid, base.memoryPath);
    const { shape, definition } = version;
    const origin = { template, version: name, digest, shape, definition };
    checkChoice(origin, network);
    await networks.enter(running.id, { id: running.id, origin, network });
    return {
      origin,
      network,
      base: base.id,
      parent: null,
      basis: null,
      start: lease.start === 'reused' ? 'ready' : lease.start,
      live: new LiveMachine({ vmm: running, channel, channelToken, lease }),
    };
  } catch (error) {
    lease.release('discard', 'sandbox_failed');
    throw error;
  }
}

async function fromSnapshot(
  context: SandboxContext,
  text: string,
  options: { readonly signal: AbortSignal; readonly network: NetworkChoice | null },
): Promise<FirstMachine> {
  const { signal } = options;
  const snapshot = findSnapshot(context, text);
  checkChoice(snapshot.origin, options.network);
  const network = options.network ?? snapshot.network;
  await using lent = await lend(context, snapshot.id, signal);
  const live = await context.restorer.restore(lent.files, {
    signal,
    prepare: (machine) => context.networks.enter(machine, { id: machine, origin: snapshot.origin, network }),
  });
  foldDeepDisk(context, live, lent.files.layers.length, 'copied');
  return {
    origin: snapshot.origin,
    network,
    base: lent.files.base,
    parent: { kind: 'snapshot', id: snapshot.id },
    basis: snapshot.id,
    start: 'restored',
    live,
  };
}
