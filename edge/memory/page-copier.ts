/** Takes a stopped guest's dirty pages, and puts them into another VMM, by the native helper `edge/native/page-copy.c`. */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Readable, Writable } from 'node:stream';
import { GatewayError } from '../../sdk/index.ts';
import type { RamMapping } from './ram-mapping.ts';

/** What a capture found and how long its parts took. */
export interface CopiedPages {
  readonly runs: number;
  readonly pages: number;
  readonly scanMs: number;
  readonly copyMs: number;
}

export interface Capture {
  /** When this settles the guest may run again. */
  readonly copied: Promise<CopiedPages>;
  /** When this settles the delta is written (not synced). Rejects with `copied`. On failure there is no file. */
  readonly written: Promise<CopiedPages>;
}

/** Both throw `disk_full`, `snapshot_corrupt` (malformed delta) or `vmm_failed`. */
export interface PageCopier extends AsyncDisposable {
  /** Copies the private pages of a mapping to a new file; the process must stand still until `copied`. */
  capture(pid: number, mapping: RamMapping, deltaPath: string): Capture;
  /** Writes a delta into the mapping of a VMM that waits for state. */
  apply(pid: number, mapping: RamMapping, deltaPath: string): Promise<void>;
}

export interface PageCopierOptions {
  /** `edge/native/build/page-copy`. */
  readonly toolPath: string;
  /** Helpers, each with one copy at a time; started when first needed. Default 2. */
  readonly helpers?: number;
}

/** A copy of tens of GiB to a slow disk takes minutes; a helper that is silent for longer is ended. */
const silenceMs = 10 * 60_000;
const copiedPattern = /^copied (\d{1,15}) (\d{1,15}) (\d{1,15}) (\d{1,15})$/;

interface Job {
  readonly request: string;
  readonly onCopied: (pages: CopiedPages) => void;
  readonly resolve: () => void;
  readonly reject: (error: GatewayError) => void;
}

/** The helpers are children of this process without any privileges of their own; disposing ends them. */
export function createPageCopier(options: PageCopierOptions): PageCopier {
  const helpers = Array.from({ length: options.helpers ?? 2 }, () => new Helper(options.toolPath));
  const submit = (request: string, onCopied: (pages: CopiedPages) => void) =>
    new Promise<void>((resolve, reject) => {
      const [idlest] = [...helpers].sort((a, b) => a.load - b.load);
      idlest?.run({ request, onCopied, resolve, reject });
    });
  return {
    capture(pid, mapping, deltaPath) {
      const copied = Promise.withResolvers<CopiedPages>();
      const written = submit(requestLine('capture', pid, mapping, deltaPath), copied.resolve).then(
        () => copied.promise,
        (error: unknown) => {
          copied.reject(error);
          throw error;
        },
      );
      // Either may be the only one that a caller looks at.
      written.catch(() => {});
      copied.promise.catch(() => {});
      return { copied: copied.promise, written };
    },
    apply: (pid, mapping, deltaPath) => submit(requestLine('apply', pid, mapping, deltaPath), () => {}),
    async [Symbol.asyncDispose]() {
      await Promise.all(helpers.map((helper) => helper.end()));
    },
  };
}

function requestLine(verb: string, pid: number, { start, bytes }: RamMapping, path: string): string {
  if (/[\n\r\0]/.test(path))
    throw new GatewayError('invalid_request', 'a path with line breaks can not be used', {
      component: 'edge',
    });
  return `${verb} ${pid} ${start} ${bytes} ${path}\n`;
}

type Child = ChildProcessByStdio<Writable, Readable, null>;

/** One helper process with its queue; started again after it died. */
class Helper {
  readonly #toolPath: string;
  readonly #queue: Job[] = [];
  #child: Child | null = null;
  #silence: NodeJS.Timeout | undefined;

  constructor(toolPath: string) {
    this.#toolPath = toolPath;
  }

  get load(): number {
    return this.#queue.length;
  }

  run(job: Job): void {
    this.#queue.push(job);
    if (this.#queue.length === 1) this.#send(job);
  }

  async end(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
    // Whoever waits for its end wants to hear of it, even when nothing else keeps the process alive.
    child.ref();
    child.kill('SIGKILL');
    await ended;
  }

  #send(job: Job): void {
    this.#child ??= this.#start();
    this.#silence = setTimeout(() => this.#child?.kill('SIGKILL'), silenceMs);
    this.#silence.unref();
    this.#child.stdin.write(job.request);
  }

  #start(): Child {
    const child = spawn(this.#toolPath, [], { stdio: ['pipe', 'pipe', 'ignore'], env: {}, cwd: '/' });
    const lost = (cause?: unknown) => {
      if (this.#child !== child) return;
      this.#child = null;
      this.#settle(new GatewayError('vmm_failed', 'the page copier ended', { component: 'edge', cause }));
    };
    child.on('error', lost);
    child.on('close', () => lost());
    child.stdin.on('error', () => {});
    createInterface({ input: child.stdout }).on('line', (line) => this.#take(line));
    // It must not keep the edge's process alive.
    child.unref();
    for (const stream of [child.stdin, child.stdout]) (stream as { unref?: () => void }).unref?.();
    return child;
  }

  #take(line: string): void {
    const copied = copiedPattern.exec(line);
    if (copied !== null) {
      const [runs = 0, pages = 0, scanUs = 0, copyUs = 0] = copied.slice(1).map(Number);
      this.#queue[0]?.onCopied({ runs, pages, scanMs: scanUs / 1000, copyMs: copyUs / 1000 });
    } else this.#settle(line === 'ok' ? null : toError(line));
  }

  #settle(error: GatewayError | null): void {
    clearTimeout(this.#silence);
    const job = this.#queue.shift();
    const next = this.#queue[0];
    if (next !== undefined) this.#send(next);
    if (error === null) job?.resolve();
    else job?.reject(error);
  }
}

function toError(line: string): GatewayError {
  const text = line.replace(/^error /, '').slice(0, 300);
  const details = { component: 'edge' } as const;
  if (/No space left|File too large|quota exceeded/i.test(text))
    return new GatewayError('disk_full', `pages could not be kept: ${text}`, details);
  if (/delta (is|has)|delta's|not a delta/.test(text))
    return new GatewayError('snapshot_corrupt', text, details);
  return new GatewayError('vmm_failed', `pages could not be copied: ${text}`, details);
}
