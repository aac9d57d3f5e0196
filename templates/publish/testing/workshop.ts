/** A place to build in: a template folder, a versions directory and the packed template, all gone after the test. */
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import { systemClock, type VersionDigest } from '../../../sdk/index.ts';
import { parseDefinition } from '../../definition/index.ts';
import { packTemplate } from '../archive/pack.ts';
import type { BuildDeps } from '../build-room.ts';
import type { BuildEvent, BuiltEvent } from '../events.ts';
import { createBuildLane } from '../lane.ts';
import { FakeHost, type FakeHostOptions } from './fake-host.ts';

/** A definition that passes every step of the pipeline. */
export const fullDefinition = {
  name: 'hello',
  copy: [{ from: 'app', to: '/app' }],
  run: ['make things'],
  env: { GREETING: 'hello' },
  start: { command: ['serve'], port: 8000, ready: { http: '/ready', timeoutMs: 5000 } },
  warmup: [{ path: '/warm', count: 2 }],
  hooks: { beforeSnapshot: { http: '/hook' } },
};

export class Workshop implements AsyncDisposable {
  readonly root: string;

  private constructor(root: string) {
    this.root = root;
  }

  static async open(
    files: Readonly<Record<string, string>> = { 'app/main.py': 'print(1)\n' },
  ): Promise<Workshop> {
    const workshop = new Workshop(await mkdtemp(join(tmpdir(), 'snapgate-publish-')));
    for (const name of ['template', 'images', 'versions']) await mkdir(join(workshop.root, name));
    await FakeHost.makeImages(join(workshop.root, 'images'));
    await workshop.write(files);
    return workshop;
  }

  get folder(): string {
    return join(this.root, 'template');
  }
  get versionsDirectory(): string {
    return join(this.root, 'versions');
  }

  /** Puts files into the template folder. */
  async write(files: Readonly<Record<string, string>>): Promise<void> {
    for (const [path, text] of Object.entries(files)) {
      await mkdir(dirname(join(this.folder, path)), { recursive: true });
      await writeFile(join(this.folder, path), text);
    }
  }

  host(options: FakeHostOptions = {}): FakeHost {
    return new FakeHost(join(this.root, 'images'), options);
  }

  deps(host: FakeHost, more: Partial<BuildDeps> = {}): BuildDeps & { readonly host: FakeHost } {
    return {
      versionsDirectory: this.versionsDirectory,
      clock: systemClock,
      lane: createBuildLane(),
      freeBytes: async () => 2 ** 40,
      ...more,
      host,
    };
  }

  pack(definition: unknown = fullDefinition): Promise<Readable> {
    return packTemplate(this.folder, parseDefinition(definition));
  }

  /** Every name below the versions directory, sorted. */
  async listing(): Promise<string[]> {
    return (await readdir(this.versionsDirectory, { recursive: true })).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.root, { recursive: true, force: true });
  }
}

/** Runs a build to its end. @returns all events */
export async function collect(events: AsyncIterable<BuildEvent>): Promise<BuildEvent[]> {
  const all: BuildEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

/** The result of a build that succeeds. */
export async function resultOf(events: AsyncIterable<BuildEvent>): Promise<BuiltEvent> {
  const last = (await collect(events)).at(-1);
  if (last?.type !== 'built') throw new Error(`the last event is ${last?.type}`);
  return last;
}

/** The digest of a result, with its brand. */
export const digestOf = (event: BuiltEvent): VersionDigest => event.facts.digest as VersionDigest;
