/** Progress of a publish as lines: one per task when it ends, its output indented; on a terminal the running task shows. */
import { type PublishEvent, visibleText } from '../../sdk/index.ts';
import { type PublishingContext, write } from './port.ts';
import { formatDuration } from './table.ts';

const marks = { done: '✔', failed: '✖', skipped: '-' } as const;
const clearLine = '\r\u001b[2K';

type Shown = Extract<PublishEvent, { type: 'task' | 'output' }>;

/** Writes to stderr, so that stdout stays for the result. */
export class TaskLines {
  readonly #context: PublishingContext;
  readonly #isTerminal: boolean;
  #running: string | undefined;
  /** Output of a task ended without a newline. */
  #isMidLine = false;
  /** The same at the last print, when no status line was put below. */
  #wasMidLine = false;

  constructor(context: PublishingContext) {
    this.#context = context;
    this.#isTerminal = context.stderr.isTTY === true;
  }

  async show(event: Shown): Promise<void> {
    if (event.type === 'output') return this.#output(event.text);
    const title = visibleText(event.title, { lines: 'one' });
    if (event.state === 'started') {
      this.#running = title;
      await this.#print('');
      return;
    }
    this.#running = undefined;
    const took = event.ms === undefined ? '' : ` (${formatDuration(event.ms)})`;
    await this.#print(`${this.#endOfOutput()}${marks[event.state]} ${title}${took}\n`);
  }

  /** Leaves the cursor on a line of its own, whatever was going on. */
  async end(): Promise<void> {
    this.#running = undefined;
    await this.#print(this.#endOfOutput());
  }

  async #output(text: string): Promise<void> {
    const lines = visibleText(text).split('\n');
    const last = lines.pop() ?? '';
    let printed = '';
    for (const line of lines) {
      printed += `${this.#isMidLine ? '' : '  │ '}${line}\n`;
      this.#isMidLine = false;
    }
    if (last !== '') {
      printed += `${this.#isMidLine ? '' : '  │ '}${last}`;
      this.#isMidLine = true;
    }
    await this.#print(printed);
  }

  #endOfOutput(): string {
    const text = this.#isMidLine ? '\n' : '';
    this.#isMidLine = false;
    return text;
  }

  /** On a terminal the last line belongs to the running task; it is taken away before and put back after each text. */
  async #print(text: string): Promise<void> {
    const before = this.#isTerminal && !this.#wasMidLine ? clearLine : '';
    this.#wasMidLine = this.#isMidLine;
    const status = this.#isTerminal && this.#running !== undefined && !this.#isMidLine ? this.#status() : '';
    if (before + text + status !== '') await write(this.#context.stderr, before + text + status);
  }

  #status(): string {
    const width = Math.max(20, (this.#context.stderr.columns ?? 80) - 1);
    return `… ${this.#running}`.slice(0, width);
  }
}
