/** QMP for benchmarks, apart from the product's client: what is measured against must not share its code. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

type Message = Readonly<Record<string, unknown>>;

const listenMs = 10_000;

/** Connects as soon as somebody listens. */
async function connected(path: string): Promise<Socket> {
  for (const deadline = Date.now() + listenMs; ; ) {
    if (Date.now() > deadline) throw new Error(`nothing listens on ${path}`);
    const socket = connect(path);
    try {
      await once(socket, 'connect');
      return socket;
    } catch {
      await sleep(1);
    }
  }
}

/** A control connection. It ends with its VMM. */
export class Qmp {
  readonly #socket: Socket;
  #text = '';
  #wake = Promise.withResolvers<void>();
  readonly #messages: Message[] = [];

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      this.#text += chunk;
      const lines = this.#text.split('\n');
      this.#text = lines.pop() ?? '';
      this.#messages.push(...lines.filter(Boolean).map((line) => JSON.parse(line)));
      this.#wake.resolve();
      this.#wake = Promise.withResolvers();
    });
    // A VMM that is killed resets its connections.
    socket.on('error', () => {});
  }

  /** Waits for a VMM to listen and greets it. */
  static async open(path: string): Promise<Qmp> {
    const qmp = new Qmp(await connected(path));
    await qmp.next((message) => 'QMP' in message);
    await qmp.execute('qmp_capabilities');
    return qmp;
  }

  /** The first message that is wanted; those before it are gone. */
  async next(isWanted: (message: Message) => boolean): Promise<Message> {
    for (;;) {
      const index = this.#messages.findIndex(isWanted);
      if (index >= 0) return this.#messages.splice(0, index + 1).at(-1)!;
      await this.#wake.promise;
    }
  }

  /** @returns what the command answered; rejects with its error */
  async execute(command: string, args: object = {}): Promise<unknown> {
    this.#socket.write(`${JSON.stringify({ execute: command, arguments: args })}\n`);
    const answer = await this.next((message) => 'return' in message || 'error' in message);
    if ('error' in answer) throw new Error(`${command}: ${JSON.stringify(answer.error)}`);
    return answer.return;
  }
}
