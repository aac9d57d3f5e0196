import type { ClientHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex, Readable } from 'node:stream';
import { answers } from './answers.ts';
import { begin, type Call, exchange, refuse } from './exchange.ts';
import { fileCalls } from './files.ts';
import { AnswerBody } from './inbound.ts';
import type {
  FileRow,
  GuestMetrics,
  OutputBody,
  OutputOptions,
  OutputStream,
  ProcessSpec,
  ProcessStatus,
  ResumeReport,
  ResumeRequest,
  SandboxChannel,
  WatchEvent,
} from './port.ts';
import { processPath } from './process-path.ts';
import { openTunnel } from './tunnel.ts';

interface Waiting {
  readonly signal: AbortSignal;
}

const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value), 'utf8');

/** The agent's protocol as methods; see port.ts for what each of them promises. */
export class Channel implements SandboxChannel {
  readonly closed: Promise<void>;
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #files: ReturnType<typeof fileCalls>;

  /** Takes over both. */
  constructor(session: ClientHttp2Session, socket: Socket) {
    this.#session = session;
    this.#socket = socket;
    this.#files = fileCalls(session);
    this.closed = socket.destroyed
      ? Promise.resolve()
      : new Promise((resolve) => {
          socket.once('close', () => resolve());
        });
    // A peer that says goodbye takes no more requests: without this, Node would keep the session for its open streams.
    session.on('goaway', () => session.destroy());
  }

  #call(call: Call): Promise<unknown> {
    return exchange(this.#session, call);
  }

  async ping({ signal }: Waiting) {
    const { version, protocol } = answers.ping(
      await this.#call({ method: 'GET', target: '/v1/ping', subject: 'machine', signal }),
    );
    return { version, protocol };
  }

  async resume(request: ResumeRequest, { signal }: Waiting): Promise<ResumeReport> {
    const body = json({ ...request, entropy: Buffer.from(request.entropy).toString('hex') });
    const sentAt = Date.now();
    const report = answers.resume(
      await this.#call({ method: 'POST', target: '/v1/resume', subject: 'machine', body, signal }),
    );
    // The guest read its clock at some moment in between: of the two extremes, the worse one is reported.
    const behind = report.wallClockMs - Date.now();
    const ahead = report.wallClockMs - sentAt;
    return { clockSkewMs: Math.abs(behind) > Math.abs(ahead) ? behind : ahead };
  }

  tunnel(port: number, { signal }: Waiting): Promise<Duplex> {
    return openTunnel(this.#session, port, signal);
  }

  async startProcess(spec: ProcessSpec, { signal }: Waiting): Promise<ProcessStatus> {
    const body = json(spec);
    // A missing command is a missing file, hence the subject.
    return answers.status(
      await this.#call({ method: 'POST', target: '/v1/processes', subject: 'file', body, signal }),
    );
  }

  async listProcesses({ signal }: Waiting): Promise<ProcessStatus[]> {
    return answers.statuses(
      await this.#call({ method: 'GET', target: '/v1/processes', subject: 'process', signal }),
    );
  }

  async processStatus(id: string, { signal }: Waiting): Promise<ProcessStatus> {
    return answers.status(
      await this.#call({ method: 'GET', target: processPath(id), subject: 'process', signal }),
    );
  }

  async waitProcess(id: string, { signal }: Waiting): Promise<ProcessStatus> {
    return answers.status(
      await this.#call({ method: 'GET', target: `${processPath(id)}/wait`, subject: 'process', signal }),
    );
  }

  async processOutput(id: string, stream: OutputStream, options: OutputOptions): Promise<OutputBody> {
    const query = `offset=${options.offset ?? 0}&follow=${options.follow === true ? 1 : 0}`;
    const target = `${processPath(id)}/output/${stream}?${query}`;
    const call = { method: 'GET', target, subject: 'process', signal: options.signal } as const;
    const answer = await begin(this.#session, call);
    await refuse(answer, call);
    const body = new AnswerBody(answer.stream, options.signal);
    try {
      const offset = answers.outputOffset(answer.headers['x-agent-offset'], options.offset ?? 0);
      return Object.assign(body, { offset });
    } catch (error) {
      body.destroy();
      throw error;
    }
  }

  async writeStdin(
    id: string,
    body: Uint8Array,
    options: Waiting & { readonly offset: number; readonly isLast?: boolean },
  ): Promise<{ readonly offset: number }> {
    const query = `offset=${options.offset}${options.isLast === true ? '&close=1' : ''}`;
    const target = `${processPath(id)}/stdin?${query}`;
    return answers.stdin(
      await this.#call({ method: 'PUT', target, subject: 'process', body, signal: options.signal }),
    );
  }

  async signalProcess(id: string, signalNumber: number, { signal }: Waiting): Promise<void> {
    const body = json({ signal: signalNumber });
    await this.#call({
      method: 'POST',
      target: `${processPath(id)}/signal`,
      subject: 'process',
      body,
      signal,
    });
  }

  async resizeTerminal(
    id: string,
    size: { readonly cols: number; readonly rows: number },
    { signal }: Waiting,
  ): Promise<void> {
    const body = json({ cols: size.cols, rows: size.rows });
    await this.#call({
      method: 'POST',
      target: `${processPath(id)}/resize`,
      subject: 'process',
      body,
      signal,
    });
  }

  async deleteProcess(id: string, { signal }: Waiting): Promise<void> {
    await this.#call({ method: 'DELETE', target: processPath(id), subject: 'process', signal });
  }

  writeFile(
    path: string,
    body: Readable | Uint8Array,
    options: Parameters<SandboxChannel['writeFile']>[2],
  ): Promise<void> {
    return this.#files.write(path, body, options);
  }

  readFile(
    path: string,
    options: Waiting & { readonly offset?: number; readonly length?: number; readonly user?: string },
  ): Promise<Readable> {
    return this.#files.read(path, options);
  }

  statFile(path: string, options: Parameters<SandboxChannel['statFile']>[1]): Promise<FileRow> {
    return this.#files.stat(path, options);
  }

  listFiles(
    path: string,
    options: Parameters<SandboxChannel['listFiles']>[1],
  ): Promise<AsyncIterable<FileRow>> {
    return this.#files.list(path, options);
  }

  makeDirectory(
    path: string,
    options: Waiting & { readonly mode?: number; readonly user?: string },
  ): Promise<void> {
    return this.#files.makeDirectory(path, options);
  }

  moveFile(from: string, to: string, options: Waiting & { readonly user?: string }): Promise<void> {
    return this.#files.move(from, to, options);
  }

  deleteFile(
    path: string,
    options: Waiting & { readonly isRecursive?: boolean; readonly user?: string },
  ): Promise<void> {
    return this.#files.remove(path, options);
  }

  watchFiles(
    path: string,
    options: Waiting & { readonly isRecursive?: boolean; readonly user?: string },
  ): Promise<AsyncIterable<WatchEvent>> {
    return this.#files.watch(path, options);
  }

  async metrics({ signal }: Waiting): Promise<GuestMetrics> {
    return answers.metrics(
      await this.#call({ method: 'GET', target: '/v1/metrics', subject: 'machine', signal }),
    );
  }

  async sync({ signal }: Waiting): Promise<void> {
    await this.#call({ method: 'POST', target: '/v1/sync', subject: 'machine', signal });
  }

  close(): void {
    if (!this.#session.destroyed) this.#session.destroy();
    // Not left to the session: it would first wait for a guest that may be paused to take what is still queued.
    this.#socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    await this.closed;
  }
}
