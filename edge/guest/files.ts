import type { ClientHttp2Session } from 'node:http2';
import type { Readable } from 'node:stream';
import { answers } from './answers.ts';
import { begin, type Call, exchange, refuse } from './exchange.ts';
import { AnswerBody } from './inbound.ts';
import { jsonLines } from './lines.ts';
import type { FileRow, SandboxChannel, WatchEvent } from './port.ts';

interface Acting {
  readonly signal: AbortSignal;
  readonly user?: string;
}

type Query = Readonly<Record<string, string | number | undefined>>;

function target(path: string, query: Query): string {
  const pairs = Object.entries(query).filter(([, value]) => value !== undefined);
  return `${path}?${pairs.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join('&')}`;
}

const flag = (value: boolean | undefined) => (value === true ? 1 : undefined);

/** The file half of the protocol, over one session. */
export function fileCalls(session: ClientHttp2Session) {
  const subject = 'file' as const;

  async function streamed(call: Call) {
    const answer = await begin(session, call);
    await refuse(answer, call);
    return new AnswerBody(answer.stream, call.signal);
  }

  async function post(path: string, body: Readonly<Record<string, unknown>>, signal: AbortSignal) {
    await exchange(session, {
      method: 'POST',
      target: path,
      subject,
      signal,
      body: Buffer.from(JSON.stringify(body), 'utf8'),
    });
  }

  return {
    async write(
      path: string,
      body: Readable | Uint8Array,
      options: Parameters<SandboxChannel['writeFile']>[2],
    ) {
      const { signal, user, mode, attributes, ownParents } = options;
      const set = attributes === undefined ? undefined : JSON.stringify(attributes);
      const own = { 'set-attributes': set, 'own-parents': flag(ownParents) };
      const where = target('/v1/files', { path, user, mode, ...own });
      await exchange(session, { method: 'PUT', target: where, subject, signal, body });
    },

    read(
      path: string,
      options: Acting & { readonly offset?: number; readonly length?: number },
    ): Promise<Readable> {
      const { signal, user, offset, length } = options;
      const where = target('/v1/files', { path, user, offset, length });
      return streamed({ method: 'GET', target: where, subject, signal });
    },

    async stat(path: string, options: Acting & { readonly withAttributes?: boolean }): Promise<FileRow> {
      const { signal, user, withAttributes } = options;
      const where = target('/v1/files/stat', { path, user, attributes: flag(withAttributes) });
      return answers.row(await exchange(session, { method: 'GET', target: where, subject, signal }));
    },

    async list(
      path: string,
      options: Acting & { readonly depth?: number; readonly withAttributes?: boolean },
    ): Promise<AsyncIterable<FileRow>> {
      const { signal, user, depth, withAttributes } = options;
      const where = target('/v1/files/list', { path, user, depth, attributes: flag(withAttributes) });
      return jsonLines(await streamed({ method: 'GET', target: where, subject, signal }), answers.row);
    },

    makeDirectory(path: string, { signal, user, mode }: Acting & { readonly mode?: number }): Promise<void> {
      return post('/v1/files/mkdir', { path, user, mode }, signal);
    },

    move(from: string, to: string, { signal, user }: Acting): Promise<void> {
      return post('/v1/files/move', { from, to, user }, signal);
    },

    async remove(path: string, options: Acting & { readonly isRecursive?: boolean }): Promise<void> {
      const { signal, user, isRecursive } = options;
      const where = target('/v1/files', { path, user, recursive: flag(isRecursive) });
      await exchange(session, { method: 'DELETE', target: where, subject, signal });
    },

    async watch(
      path: string,
      options: Acting & { readonly isRecursive?: boolean },
    ): Promise<AsyncIterable<WatchEvent>> {
      const { signal, user, isRecursive } = options;
      const where = target('/v1/files/watch', { path, user, recursive: flag(isRecursive) });
      const stream = await streamed({ method: 'GET', target: where, subject, signal });
      return jsonLines(stream, answers.event);
    },
  };
}
