import { appendFile, mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock, LogLine, MachineId } from '../../sdk/index.ts';

export interface MachineLogOptions {
  /** Directory of one version's logs. */
  readonly directory: string;
  readonly machine: MachineId;
  /** Bytes kept per machine; the older half is dropped when the newer is full. */
  readonly maxBytes: number;
}

/** A line longer than this is cut into several. */
const maxLineBytes = 8 * 1024;
/** Lines are written together: a function that logs each request must not cost each request a file operation on our thread. */
const gatherMs = 100;
/** Logs of ended machines kept per version, for looking at a crash afterwards. */
const keptLogs = 32;

const suffix = '.ndjson';

/**
 * Output of one machine's function in two bounded files, one line of JSON each, and live to followers. Guest text is kept as it
 * came; whoever shows it escapes it. Writing never fails its caller: a full disk drops lines and counts them.
 */
export class MachineLog {
  readonly #options: MachineLogOptions;
  readonly #clock: Clock;
  readonly #onLine: (line: LogLine) => void;
  readonly #partial = new Map<LogLine['stream'], string>();
  #bytes = 0;
  #queue: Promise<void> = Promise.resolve();
  #pending: string[] = [];
  #cancelFlush: (() => void) | undefined;
  #hasDirectory = false;
  droppedLines = 0;

  constructor(clock: Clock, options: MachineLogOptions, onLine: (line: LogLine) => void) {
    this.#clock = clock;
    this.#options = options;
    this.#onLine = onLine;
  }

  /** Adds a chunk of output as it came from the guest. */
  write(stream: LogLine['stream'], chunk: string): void {
    const text = (this.#partial.get(stream) ?? '') + chunk;
    const lines = text.split('\n');
    let rest = lines.pop() ?? '';
    while (rest.length > maxLineBytes) {
      lines.push(rest.slice(0, maxLineBytes));
      rest = rest.slice(maxLineBytes);
    }
    this.#partial.set(stream, rest);
    for (const line of lines) this.#add(stream, line);
  }

  /** Writes what has no newline yet and waits for the disk. */
  async close(): Promise<void> {
    for (const [stream, rest] of this.#partial) if (rest !== '') this.#add(stream, rest);
    this.#partial.clear();
    await this.flush();
  }

  /** Writes what was gathered, so that a reader of the files finds it, and waits for the disk. Never fails. */
  async flush(): Promise<void> {
    this.#cancelFlush?.();
    this.#cancelFlush = undefined;
    if (this.#pending.length > 0) this.#queue = this.#queue.then(() => this.#append());
    await this.#queue;
  }

  #add(stream: LogLine['stream'], text: string): void {
    const line: LogLine = { at: this.#clock.now(), machine: this.#options.machine, stream, text };
    this.#onLine(line);
    // A guest that prints faster than the disk writes must not fill our memory.
    if (this.#pending.length >= 1_000) {
      this.droppedLines++;
      return;
    }
    this.#pending.push(JSON.stringify(line));
    this.#cancelFlush ??= this.#clock.schedule(gatherMs, () => void this.flush());
  }

  async #append(): Promise<void> {
    const lines = this.#pending;
    if (lines.length === 0) return;
    this.#pending = [];
    const text = `${lines.join('\n')}\n`;
    const path = join(this.#options.directory, `${this.#options.machine}${suffix}`);
    try {
      if (!this.#hasDirectory) await mkdir(this.#options.directory, { recursive: true, mode: 0o700 });
      this.#hasDirectory = true;
      if (this.#bytes + text.length > this.#options.maxBytes / 2) {
        await rename(path, `${path}.1`).catch(() => {});
        this.#bytes = 0;
      }
      await appendFile(path, text, { mode: 0o600 });
      this.#bytes += text.length;
    } catch {
      this.#hasDirectory = false;
      this.droppedLines += lines.length;
    }
  }
}

function parseLine(text: string): LogLine | null {
  try {
    return JSON.parse(text) as LogLine;
  } catch {
    return null; // a line cut by a crash
  }
}

/** What of a version's logs is wanted. */
export interface LogFilter {
  readonly machine?: MachineId;
  readonly streams: readonly LogLine['stream'][];
  /** Lines per machine, the latest; may be 0. */
  readonly tail: number;
}

/** The last `tail` lines of each machine log in a version's directory, in time order. */
export async function readLogs(
  directory: string,
  { machine: only, streams, tail }: LogFilter,
): Promise<LogLine[]> {
  const names = await readdir(directory).catch(() => []);
  const machines = new Set(names.map((name) => name.split('.')[0] as MachineId));
  const lines: LogLine[] = [];
  for (const machine of machines) {
    if (only !== undefined && machine !== only) continue;
    const path = join(directory, `${machine}${suffix}`);
    const parts = await Promise.all(
      [`${path}.1`, path].map((file) => readFile(file, 'utf8').catch(() => '')),
    );
    const wanted = parts
      .join('')
      .split('\n')
      .map(parseLine)
      .filter((line) => line !== null && streams.includes(line.stream)) as LogLine[];
    lines.push(...wanted.slice(Math.max(0, wanted.length - tail)));
  }
  return lines.sort((a, b) => a.at - b.at);
}

/** Removes the oldest logs of machines that are no more, beyond a fixed number. */
export async function pruneLogs(directory: string, isAlive: (machine: MachineId) => boolean): Promise<void> {
  const names = (await readdir(directory).catch(() => [])).filter(
    (name) => !isAlive(name.split('.')[0] as MachineId),
  );
  const aged = await Promise.all(
    names.map(async (name) => ({
      name,
      at: (await stat(join(directory, name)).catch(() => null))?.mtimeMs ?? 0,
    })),
  );
  aged.sort((a, b) => b.at - a.at);
  await Promise.all(aged.slice(keptLogs).map(({ name }) => rm(join(directory, name), { force: true })));
}
