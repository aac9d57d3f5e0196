/** A place to run publishing commands in: streams that remember, and a gateway that is a table of answers. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { TestContext } from 'node:test';
import type { Command } from 'commander';
import type { Alias, PublishEvent, Template, TemplateDetail } from '../../../sdk/index.ts';
import type { CommandDeps, PublishingClient, PublishingContext } from '../port.ts';

/** A folder that goes away with the test. */
export async function temporaryFolder(context: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'snapgate-cli-'));
  context.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** Everything a command did. */
export class Terminal {
  readonly workingDirectory: string;
  readonly isTTY: boolean;
  stdout = '';
  stderr = '';

  constructor(workingDirectory: string, { isTTY = false }: { readonly isTTY?: boolean } = {}) {
    this.workingDirectory = workingDirectory;
    this.isTTY = isTTY;
  }

  /** Runs one command with these words. */
  async run(
    make: (deps: CommandDeps) => Command,
    words: readonly string[],
    client: Partial<PublishingClient> = {},
  ): Promise<void> {
    const deps = { context: this.#context(), client: () => client as PublishingClient };
    await make(deps)
      .exitOverride()
      .parseAsync([...words], { from: 'user' });
  }

  #context(): PublishingContext {
    const stream = (name: 'stdout' | 'stderr') =>
      new Writable({
        write: (chunk, _encoding, done) => {
          this[name] += String(chunk);
          done();
        },
      });
    return {
      workingDirectory: this.workingDirectory,
      stdout: stream('stdout'),
      stderr: Object.assign(stream('stderr'), { isTTY: this.isTTY, columns: 60 }),
      interrupted: new AbortController().signal,
    };
  }
}

/** A gateway whose publish answers `events`, and which remembers what it was asked. */
export class FakeGateway implements PublishingClient {
  readonly asked: string[] = [];
  readonly archives: Buffer[] = [];
  readonly #events: readonly PublishEvent[];
  readonly #detail: TemplateDetail | undefined;

  constructor(events: readonly PublishEvent[] = [], detail?: TemplateDetail) {
    this.#events = events;
    this.#detail = detail;
  }

  async *publish(name: string, archive: Parameters<PublishingClient['publish']>[1]) {
    this.asked.push(`publish ${name}`);
    this.archives.push(await buffer(archive));
    yield* this.#events;
  }

  async templates(): Promise<Template[]> {
    return this.#detail === undefined ? [] : [this.#detail];
  }

  async template(): Promise<TemplateDetail> {
    if (this.#detail === undefined) throw new Error('no template in this test');
    return this.#detail;
  }

  async setAlias(
    template: string,
    alias: string,
    targets: readonly { readonly version: string; readonly weight?: number }[],
  ): Promise<Alias> {
    this.asked.push(`alias ${template}@${alias} ${JSON.stringify(targets)}`);
    return {
      template,
      alias,
      targets: targets.map(({ version, weight = 1 }) => ({ version, weight })),
      updatedAt: 0,
    };
  }

  async removeTemplate(name: string): Promise<void> {
    this.asked.push(`remove ${name}`);
  }

  async removeVersion(name: string, version: string): Promise<void> {
    this.asked.push(`remove ${name}@${version}`);
  }
}
