import type { FileInfo, FileWatchEvent } from '../wire/index.ts';
import { fileInfoSchema, watchEventSchema } from '../wire/index.ts';
import { errorOfAnswer } from './answer-error.ts';
import { type BodySource, isRepeatable } from './bounded-body.ts';
import { withRetries } from './retry.ts';
import type { Calling, SandboxCalls } from './sandbox-calls.ts';
import { queryOf } from './segment.ts';

export interface FileCalling extends Calling {
  /** Acts with this guest user's rights. Default: root's. */
  readonly user?: string | undefined;
}

/**
 * Files of a sandbox. Paths are absolute and of the guest. Every method rejects with `GatewayError`: `file_not_found`, `forbidden`
 * for what the user may not do, `conflict` for what exists or is a directory, `disk_full`, `sandbox_not_found`.
 */
export class SandboxFiles {
  readonly #calls: SandboxCalls;
  readonly #base: string;

  /** @internal Use `sandbox.files`. */
  constructor(calls: SandboxCalls, sandboxPath: string) {
    this.#calls = calls;
    this.#base = `${sandboxPath}/files`;
  }

  /** All bytes of a file, in memory; for large ones use {@link stream}. */
  async read(path: string, call: FileCalling = {}): Promise<Uint8Array> {
    return withRetries(async () => {
      const response = await this.#open(path, call);
      return new Uint8Array(await response.arrayBuffer());
    }, call);
  }

  /** A file as UTF-8 text. */
  async readText(path: string, call: FileCalling = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, call));
  }

  /**
   * Bytes as they come. The caller reads the stream to its end or cancels it: until then the sandbox is held still.
   * @param call.offset first byte @param call.length how many bytes; default: to the end
   */
  async stream(
    path: string,
    call: FileCalling & { readonly offset?: number; readonly length?: number } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const { offset = 0, length } = call;
    const isPart = offset > 0 || length !== undefined;
    const end = length === undefined ? '' : String(offset + length - 1);
    const response = await this.#open(path, call, isPart ? { range: `bytes=${offset}-${end}` } : {});
    return response.body ?? new Blob([]).stream();
  }

  /**
   * Writes a file as a whole: others see the old or the new one. Parents are made. Repeated after a lost connection unless the
   * data is a stream.
   * @param call.mode permission bits, such as 0o755. Default: those of the file it replaces, else 0o644
   */
  async write(
    path: string,
    data: BodySource,
    call: FileCalling & { readonly mode?: number } = {},
  ): Promise<void> {
    const { user, mode, signal } = call;
    const send = () =>
      this.#calls.transport.done({
        method: 'PUT',
        path: `${this.#base}${queryOf({ path, user, mode: mode?.toString(8) })}`,
        headers: { 'content-type': 'application/octet-stream' },
        body: data,
        // As long as the data takes.
        timeoutMs: 2 ** 31 - 1,
        ...(signal === undefined ? {} : { signal }),
      });
    await (isRepeatable(data) ? withRetries(send, call) : send());
  }

  /** Entries below a directory, a directory before what is in it. @param call.depth levels, 1 to 64. Default 1 */
  async list(path: string, call: FileCalling & { readonly depth?: number } = {}): Promise<FileInfo[]> {
    const { user, depth, signal } = call;
    const send = {
      method: 'GET',
      path: `${this.#base}/list${queryOf({ path, user, depth })}`,
      ...(signal === undefined ? {} : { signal }),
    };
    return withRetries(async () => {
      const rows: FileInfo[] = [];
      for await (const row of this.#calls.transport.lines(fileInfoSchema, send)) rows.push(row);
      return rows;
    }, call);
  }

  /** One entry; of a symbolic link, the link itself. */
  stat(path: string, call: FileCalling = {}): Promise<FileInfo> {
    return this.#calls.get(fileInfoSchema, `${this.#base}/stat${queryOf({ path, user: call.user })}`, call);
  }

  /** Makes a directory and its parents. @throws GatewayError `conflict` when it exists */
  mkdir(path: string, call: FileCalling & { readonly mode?: number } = {}): Promise<void> {
    const { user, mode } = call;
    return this.#calls.tell(`${this.#base}/mkdir`, { path, user, mode }, call);
  }

  /** Renames within one file system; a file at the target is replaced. */
  move(from: string, to: string, call: FileCalling = {}): Promise<void> {
    return this.#calls.tell(`${this.#base}/move`, { from, to, user: call.user }, call);
  }

  /** @param call.recursive also a directory with what is in it */
  remove(path: string, call: FileCalling & { readonly recursive?: boolean } = {}): Promise<void> {
    const { user, recursive, signal } = call;
    return this.#calls.transport.done({
      method: 'DELETE',
      path: `${this.#base}${queryOf({ path, user, recursive })}`,
      ...(signal === undefined ? {} : { signal }),
    });
  }

  /**
   * Changes below a directory, until the iteration ends. The first event is `started`: what happens after it is seen. After
   * an `overflow` some were lost: look again.
   */
  watch(
    path: string,
    call: FileCalling & { readonly recursive?: boolean } = {},
  ): AsyncGenerator<FileWatchEvent> {
    const { user, recursive, signal } = call;
    return this.#calls.transport.lines(watchEventSchema, {
      method: 'GET',
      path: `${this.#base}/watch${queryOf({ path, user, recursive })}`,
      ...(signal === undefined ? {} : { signal }),
    });
  }

  async #open(path: string, call: FileCalling, headers: Record<string, string> = {}): Promise<Response> {
    const target = `${this.#base}${queryOf({ path, user: call.user })}`;
    const response = await this.#calls.transport.raw({
      method: 'GET',
      path: target,
      headers,
      ...(call.signal === undefined ? {} : { signal: call.signal }),
    });
    if (!response.ok) throw await errorOfAnswer(response, `GET ${target}`);
    return response;
  }
}
