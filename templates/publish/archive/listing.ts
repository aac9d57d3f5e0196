/**
 * Reads what an uploaded archive claims to hold, without making anything. The archive is hostile: every name, kind and
 * size is checked here, and only then is it extracted.
 */
import { createReadStream } from 'node:fs';
import { Transform, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { Parser, type ReadEntry } from 'tar';
import { GatewayError } from '../../../sdk/index.ts';
import { escapingLink } from './links.ts';
import type { ArchiveLimits, TreeEntry } from './tree.ts';

/** The one way in which this folder refuses an archive. */
export const refuseArchive = (message: string, cause?: unknown): GatewayError =>
  new GatewayError('invalid_request', message, { component: 'templates', cause });

/** Passes at most `bytes` through, then fails with `invalid_request` naming `what`. */
export function atMost(bytes: number, what: string): Transform {
  let seen = 0;
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      seen += chunk.length;
      if (seen > bytes) done(refuseArchive(`${what} is larger than ${bytes} bytes`));
      else done(null, chunk);
    },
  });
}

/** A name for messages: short and without control characters. */
const shown = (path: string): string => JSON.stringify(path.length > 120 ? `${path.slice(0, 120)}…` : path);

function checkedPath(raw: string, limits: ArchiveLimits): string {
  const steps = raw
    .replace(/^(\.\/)+/, '')
    .replace(/\/+$/, '')
    .split('/');
  if (raw.startsWith('/')) throw refuseArchive(`the archive holds an absolute path: ${shown(raw)}`);
  if (raw.includes('\0') || raw.includes('\\'))
    throw refuseArchive(`the archive holds a bad name: ${shown(raw)}`);
  if (steps.some((step) => step === '' || step === '.' || step === '..')) {
    throw refuseArchive(`the archive holds a path that is not plain: ${shown(raw)}`);
  }
  if (steps.length > limits.depth)
    throw refuseArchive(`the archive holds a path of more than ${limits.depth} steps`);
  if (Buffer.byteLength(raw) > limits.pathBytes || steps.some((step) => Buffer.byteLength(step) > 255)) {
    throw refuseArchive(`the archive holds a path that is too long: ${shown(raw)}`);
  }
  return steps.join('/');
}

/** Collects members and refuses the first one that may not be in a template. */
class Listing {
  readonly #entries = new Map<string, TreeEntry>();
  readonly #limits: ArchiveLimits;
  #contentBytes = 0;

  constructor(limits: ArchiveLimits) {
    this.#limits = limits;
  }

  add(member: ReadEntry): void {
    if (member.meta) throw refuseArchive('the archive holds an oversized extended header');
    if (/^(\.\/?)+$/.test(member.path) && member.type === 'Directory') return;
    const path = checkedPath(member.path, this.#limits);
    const entry = this.#entryOf(member, path);
    const known = this.#entries.get(path);
    if (known?.kind === 'directory' && entry.kind === 'directory') return;
    if (known !== undefined) throw refuseArchive(`the archive holds ${shown(path)} twice`);
    this.#addParents(path);
    this.#put(entry);
    if (entry.kind === 'file') this.#contentBytes += entry.size;
    if (this.#contentBytes > this.#limits.contentBytes) {
      throw refuseArchive(`the files of the template are larger than ${this.#limits.contentBytes} bytes`);
    }
  }

  entries(): TreeEntry[] {
    const entries = [...this.#entries.values()];
    const link = escapingLink(entries);
    if (link !== undefined) {
      throw refuseArchive(
        `the archive holds a link that leads out: ${shown(link.path)} to ${shown(link.target)}`,
      );
    }
    return entries;
  }

  #entryOf(member: ReadEntry, path: string): TreeEntry {
    switch (member.type) {
      case 'File':
      case 'OldFile': {
        if (!Number.isSafeInteger(member.size) || member.size < 0) {
          throw refuseArchive(`the archive holds a file of no sensible size: ${shown(path)}`);
        }
        return { kind: 'file', path, size: member.size, isExecutable: ((member.mode ?? 0) & 0o111) !== 0 };
      }
      case 'Directory':
        return { kind: 'directory', path };
      case 'SymbolicLink': {
        const target = member.linkpath ?? '';
        const isPlain =
          target !== '' && !target.includes('\0') && Buffer.byteLength(target) <= this.#limits.pathBytes;
        if (!isPlain) throw refuseArchive(`the archive holds a bad link: ${shown(path)}`);
        return { kind: 'link', path, target };
      }
      default:
        throw refuseArchive(
          `the archive holds a ${member.type} at ${shown(path)}; only files, folders and symbolic links may be in it`,
        );
    }
  }

  #addParents(path: string): void {
    for (let slash = path.indexOf('/'); slash !== -1; slash = path.indexOf('/', slash + 1)) {
      const parent = path.slice(0, slash);
      const known = this.#entries.get(parent);
      if (known === undefined) this.#put({ kind: 'directory', path: parent });
      else if (known.kind !== 'directory')
        throw refuseArchive(`the archive holds ${shown(path)} below a ${known.kind}`);
    }
  }

  #put(entry: TreeEntry): void {
    if (this.#entries.size >= this.#limits.entries) {
      throw refuseArchive(`the archive holds more than ${this.#limits.entries} entries`);
    }
    this.#entries.set(entry.path, entry);
  }
}

/** A stream that feeds the parser; whatever the parser or a check throws becomes the stream's error. */
function feed(parser: Parser): Writable {
  let isFirst = true;
  const failures: unknown[] = [];
  parser.on('error', (error: unknown) => failures.push(error));
  const attempt = (action: () => void, done: (error?: Error | null) => void) => {
    try {
      action();
      done(failures.length > 0 ? (failures[0] as Error) : null);
    } catch (error) {
      done(error as Error);
    }
  };
  return new Writable({
    write(chunk: Buffer, _encoding, done) {
      // The parser would unzip once more; a bomb in a bomb is not worth supporting.
      if (isFirst && chunk[0] === 0x1f) return done(refuseArchive('the archive is compressed twice'));
      isFirst = false;
      attempt(() => parser.write(chunk), done);
    },
    final: (done) => attempt(() => parser.end(), done),
  });
}

/**
 * @returns every entry of the gzipped tar at `archivePath`, parents included, in the archive's order
 * @throws GatewayError `invalid_request` for anything that is not a plain template within `limits`
 */
export async function listArchive(
  archivePath: string,
  limits: ArchiveLimits,
  { signal }: { readonly signal: AbortSignal },
): Promise<TreeEntry[]> {
  const listing = new Listing(limits);
  // Members which a filter refuses are announced at once and never queued, so that a throw here ends the feeding.
  const parser = new Parser({ strict: true, zstd: false, maxMetaEntrySize: 64 * 1024, filter: () => false });
  parser.on('ignoredEntry', (member: ReadEntry) => listing.add(member));
  // Names and padding count as well: a tar of a million empty members is small when compressed.
  const tarBytes = limits.contentBytes + limits.entries * 4096 + 1024 * 1024;
  try {
    await pipeline(
      createReadStream(archivePath),
      createGunzip(),
      atMost(tarBytes, 'the unpacked template'),
      feed(parser),
      { signal },
    );
  } catch (error) {
    throw asRefusal(error);
  }
  return listing.entries();
}

/** What zlib and the tar parser complain about is the caller's archive; our own disk's errors are not. */
function asRefusal(error: unknown): unknown {
  const { code, tarCode } = error as { code?: string; tarCode?: string };
  if (tarCode !== undefined || code?.startsWith('Z_') || code === 'ERR_STREAM_PREMATURE_CLOSE') {
    return refuseArchive(`the archive is not a readable gzipped tar: ${(error as Error).message}`, error);
  }
  return error;
}
