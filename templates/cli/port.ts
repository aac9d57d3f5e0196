/** What the publishing commands need of the program they are part of, and of a gateway. */
import type { Readable, Writable } from 'node:stream';
import type { Alias, PublishEvent, Template, TemplateDetail } from '../../sdk/index.ts';

/** Where a command runs and speaks. */
export interface PublishingContext {
  /** Absolute; relative arguments are seen from here. */
  readonly workingDirectory: string;
  /** Results, for people and pipes. */
  readonly stdout: Writable;
  /** Progress. */
  readonly stderr: Writable & { readonly isTTY?: boolean; readonly columns?: number };
  /** Aborts when the user interrupts the command. */
  readonly interrupted: AbortSignal;
}

interface CallOptions {
  readonly signal?: AbortSignal;
}

/** The part of a gateway's admin API that publishing uses; `createAdminClient` of the SDK provides it. */
export interface PublishingClient {
  publish(name: string, archive: Readable, options?: CallOptions): AsyncIterable<PublishEvent>;
  templates(options?: CallOptions): Promise<Template[]>;
  template(name: string, options?: CallOptions): Promise<TemplateDetail>;
  setAlias(
    name: string,
    alias: string,
    targets: readonly { readonly version: string; readonly weight?: number }[],
    options?: CallOptions,
  ): Promise<Alias>;
  removeTemplate(name: string, options?: CallOptions): Promise<void>;
  removeVersion(name: string, version: string, options?: CallOptions): Promise<void>;
}

/** Collaborators of a command. The client is made when it is first needed, so that help needs no gateway. */
export interface CommandDeps {
  readonly context: PublishingContext;
  readonly client: () => PublishingClient;
}

/** Writes and waits until the stream took it. */
export function write(stream: Writable, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

/** One JSON document and a newline, for `--json`. */
export const writeJson = (context: PublishingContext, value: unknown): Promise<void> =>
  write(context.stdout, `${JSON.stringify(value, null, 2)}\n`);
