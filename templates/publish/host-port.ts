/**
 * What the publish pipeline needs from a host that can run machines. The edge implements it (`edge/build/`); the
 * composition root passes it in. Tests of the pipeline use an in-memory peer.
 */
import type { Readable } from 'node:stream';
import type { TemplateDefinition } from '../definition/index.ts';

/** Files of a snapshot inside its version directory; names are fixed so that a manifest needs no paths. */
export const snapshotFileNames = {
  memory: 'memory.img',
  state: 'device.state',
  disk: 'disk.qcow2',
  manifest: 'manifest.json',
  /** The packed template folder as it was uploaded; a rebuild starts from it. */
  source: 'source.tar.gz',
} as const;

export interface GuestImage {
  readonly kernelPath: string;
  readonly initrdPath: string;
  readonly kernelDigest: string;
  /** `sha256:…` of the initrd; it carries the agent, so a changed agent makes another version. */
  readonly initrdDigest: string;
  readonly rootPath: string;
  readonly rootDigest: string;
}

export interface GuestRunOptions {
  readonly user?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Called with output as it comes; text is guest-made and not yet escaped. */
  readonly onOutput?: (text: string) => void;
  readonly stdin?: Readable;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

export interface GuestExit {
  readonly exitCode: number | null;
  readonly signal: number | null;
  readonly isTimedOut: boolean;
}

export interface GuestHttpAnswer {
  readonly status: number;
  /** At most 64 KiB; longer answers are cut. */
  readonly body: string;
}

/** A machine under construction, or the restored one that verifies it. Disposing ends it and removes its files. */
export interface BuildMachine extends AsyncDisposable {
  readonly id: string;
  /** Settles when the VMM ended; the text says why and has its last lines. Never rejects. */
  readonly gone: Promise<string>;
  run(argv: readonly string[], options: GuestRunOptions): Promise<GuestExit>;
  /** Starts the service of the template in the background, as process id `service`. */
  startService(
    argv: readonly string[],
    options: Pick<GuestRunOptions, 'user' | 'env' | 'cwd' | 'signal'>,
  ): Promise<void>;
  /** Null while it runs. */
  serviceExit(options: { readonly signal: AbortSignal }): Promise<GuestExit | null>;
  /** Last output of the service, stdout and stderr together, at most 16 KiB. */
  serviceOutput(options: { readonly signal: AbortSignal }): Promise<string>;
  http(
    port: number,
    request: { readonly method: string; readonly path: string; readonly body?: string },
    options: { readonly signal: AbortSignal },
  ): Promise<GuestHttpAnswer>;
  /** Last lines of the console, control characters escaped. */
  consoleTail(): Promise<string>;
}

export interface BootedTemplate extends BuildMachine {
  /**
   * Syncs the guest's disk, stops the machine, writes device state, ends the VMM and leaves memory, state and disk layer
   * under {@link snapshotFileNames} in the directory given at boot. The machine is gone afterwards.
   */
  capture(options: { readonly signal: AbortSignal }): Promise<void>;
}

/** Text parts of the fingerprint a snapshot depends on; any difference means rebuild. */
export type HostFingerprint = Readonly<Record<string, string>>;

export interface SnapshotHost {
  readonly fingerprint: HostFingerprint;
  readonly accelerator: 'kvm' | 'tcg';
  /** Kernel and root for a definition; builds them when they are not cached. */
  image(
    definition: TemplateDefinition,
    options: { readonly onOutput: (text: string) => void; readonly signal: AbortSignal },
  ): Promise<GuestImage>;
  /** Boots a fresh machine whose memory file and disk are made in `directory`; resolves when the agent answers. */
  boot(
    definition: TemplateDefinition,
    image: GuestImage,
    directory: string,
    options: { readonly signal: AbortSignal },
  ): Promise<BootedTemplate>;
  /**
   * Restores a machine from the snapshot files in `directory`, awake and resumed as for a live invocation (clock, entropy,
   * identity, `afterRestore`).
   * @returns the machine and how long it took from loading state to the agent's first answer, milliseconds
   */
  restore(
    definition: TemplateDefinition,
    image: GuestImage,
    directory: string,
    options: { readonly signal: AbortSignal },
  ): Promise<{ readonly machine: BuildMachine; readonly restoreMs: number }>;
  /** sha256 of each snapshot file in `directory`, by file name; holes are read as zeroes. */
  checksums(
    directory: string,
    options: { readonly signal: AbortSignal },
  ): Promise<Readonly<Record<string, string>>>;
}
