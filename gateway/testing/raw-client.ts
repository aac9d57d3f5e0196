/** A client that sends exactly the bytes it is told to, and keeps exactly those it gets. For tests. */
import { connect, type Socket } from 'node:net';

/** One answer as it was on the wire. */
export interface RawAnswer {
  readonly status: number;
  /** Pairs in their order, case kept. */
  readonly headers: readonly (readonly [string, string])[];
  /** First value of a header; name in lower case. */
  header(name: string): string | undefined;
  /** Everything behind the head: chunk framing included. */
  readonly rest: Buffer;
}

export interface RawClient extends Disposable {
  readonly socket: Socket;
  /** Everything received so far. */
  received(): string;
  write(data: string | Buffer): void;
  /** Resolves once what was received matches; rejects when the connection ends before. */
  until(pattern: RegExp): Promise<string>;
  /** Resolves with how the connection ended: closed by the peer in order, or reset. */
  ended(): Promise<'closed' | 'reset'>;
}

export async function rawConnect(port: number): Promise<RawClient> {
  const socket = connect(port, '127.0.0.1');
  const chunks: Buffer[] = [];
  let text = '';
  let end: 'closed' | 'reset' | undefined;
  let waiters: (() => void)[] = [];
  const wake = () => {
    const current = waiters;
    waiters = [];
    for (const waiter of current) waiter();
  };
  socket
    .on('data', (chunk) => {
      chunks.push(chunk);
      text += chunk.toString('latin1');
      wake();
    })
    .on('error', () => {
      end ??= 'reset';
    })
    .on('end', () => {
      end ??= 'closed';
      wake();
    })
    .on('close', () => {
      end ??= 'closed';
      wake();
    });
  await new Promise<void>((resolve, reject) => socket.once('connect', resolve).once('error', reject));
  const change = () => new Promise<void>((resolve) => waiters.push(resolve));
  return {
    socket,
    received: () => text,
    write: (data) => void socket.write(data, 'latin1' as BufferEncoding),
    async until(pattern) {
      for (;;) {
        if (pattern.test(text)) return text;
        if (end !== undefined)
          throw new Error(`the connection was ${end} after ${JSON.stringify(text.slice(0, 2000))}`);
        await change();
      }
    },
    async ended() {
      while (end === undefined) await change();
      return end;
    },
    [Symbol.dispose]: () => socket.destroy(),
  };
}

/** Sends `data` and reads until the peer closes, so the request must ask for that. */
export async function rawExchange(port: number, data: string | Buffer): Promise<RawAnswer> {
  using client = await rawConnect(port);
  client.write(data);
  await client.ended();
  return parseAnswer(client.received());
}

/** Splits the first answer from what was received. */
export function parseAnswer(text: string): RawAnswer {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) throw new Error(`no complete head in ${JSON.stringify(text.slice(0, 500))}`);
  const [statusLine = '', ...lines] = text.slice(0, end).split('\r\n');
  const headers = lines.map((line): [string, string] => {
    const colon = line.indexOf(':');
    return [line.slice(0, colon), line.slice(colon + 1).trim()];
  });
  return {
    status: Number(statusLine.split(' ')[1]),
    headers,
    header: (name) => headers.find(([own]) => own.toLowerCase() === name)?.[1],
    rest: Buffer.from(text.slice(end + 4), 'latin1'),
  };
}
