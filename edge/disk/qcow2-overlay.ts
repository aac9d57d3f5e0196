/**
 * Writes an empty qcow2 overlay without starting `qemu-img` (17 ms a process on the development machine, on the path of
 * every clone; this takes well under 1 ms). An empty overlay is a header, the name of its backing file and four
 * bookkeeping clusters; the format is QEMU's `docs/interop/qcow2.txt`, and the tests have `qemu-img check` judge it.
 */
import { open } from 'node:fs/promises';
import { GatewayError } from '../../sdk/index.ts';

const clusterBits = 16;
const clusterBytes = 1 << clusterBits;
/** One level-2 table maps this many bytes of the disk. */
const bytesPerL2 = (clusterBytes / 8) * clusterBytes;
const headerBytes = 104;
const backingFormatExtension = 0xe2792aca;
/** QEMU's own limit for the name of a backing file. */
const maxBackingNameBytes = 1023;
const sectorBytes = 512;

export interface OverlayOptions {
  /** File to create; fails when it exists. */
  readonly path: string;
  /** Absolute path, stored as it is; without one the image names no backing file, and who opens it says what is below. */
  readonly backingPath?: string;
  /** Default `qcow2`; without a path nothing is stored. */
  readonly backingFormat?: 'raw' | 'qcow2';
  /** Size the guest sees, MiB; at most 4 TiB. */
  readonly virtualMiB: number;
  /** Default 0600. */
  readonly mode?: number;
}

/** Clusters of an empty image, in file order. */
const cluster = { header: 0, refcountTable: 1, refcountBlock: 2, l1Table: 3, count: 4 } as const;

/** The first cluster: header, extensions, backing name. Pure. */
export function overlayHeader(options: Omit<OverlayOptions, 'path' | 'mode'>): Buffer {
  const virtualBytes = options.virtualMiB * 2 ** 20;
  const name = Buffer.from(options.backingPath ?? '');
  const format = Buffer.from(name.length === 0 ? '' : (options.backingFormat ?? 'qcow2'));
  const l1Entries = Math.ceil(virtualBytes / bytesPerL2);
  if (name.length > maxBackingNameBytes || l1Entries < 1 || l1Entries > clusterBytes / 8)
    throw new GatewayError(
      'invalid_request',
      'a disk of this size or with this backing path is not possible',
      {
        component: 'edge',
      },
    );
  const extensionBytes = format.length === 0 ? 0 : 8 + Math.ceil(format.length / 8) * 8;
  const nameOffset = headerBytes + extensionBytes + 8;
  const header = Buffer.alloc(Math.ceil((nameOffset + name.length) / sectorBytes) * sectorBytes);
  header.write('QFI\xfb', 0, 'latin1');
  header.writeUInt32BE(3, 4);
  header.writeBigUInt64BE(BigInt(name.length === 0 ? 0 : nameOffset), 8);
  header.writeUInt32BE(name.length, 16);
  header.writeUInt32BE(clusterBits, 20);
  header.writeBigUInt64BE(BigInt(virtualBytes), 24);
  header.writeUInt32BE(l1Entries, 36);
  header.writeBigUInt64BE(BigInt(cluster.l1Table * clusterBytes), 40);
  header.writeBigUInt64BE(BigInt(cluster.refcountTable * clusterBytes), 48);
  header.writeUInt32BE(1, 56);
  // Reference counts of 2^4 bits.
  header.writeUInt32BE(4, 96);
  header.writeUInt32BE(headerBytes, 100);
  if (name.length === 0) return header;
  header.writeUInt32BE(backingFormatExtension, headerBytes);
  header.writeUInt32BE(format.length, headerBytes + 4);
  format.copy(header, headerBytes + 8);
  name.copy(header, nameOffset);
  return header;
}

/** Creates the overlay. Throws the system's error (`EEXIST`, `ENOSPC` …), leaving no file that it created. */
export async function createOverlay(options: OverlayOptions): Promise<void> {
  const header = overlayHeader(options);
  const refcountTable = Buffer.alloc(8);
  refcountTable.writeBigUInt64BE(BigInt(cluster.refcountBlock * clusterBytes));
  const refcounts = Buffer.alloc(2 * cluster.count);
  for (let index = 0; index < cluster.count; index++) refcounts.writeUInt16BE(1, 2 * index);
  await using file = await open(options.path, 'wx', options.mode ?? 0o600);
  await file.write(header, 0, header.length, 0);
  await file.write(refcountTable, 0, refcountTable.length, cluster.refcountTable * clusterBytes);
  await file.write(refcounts, 0, refcounts.length, cluster.refcountBlock * clusterBytes);
  await file.truncate(cluster.count * clusterBytes);
}
