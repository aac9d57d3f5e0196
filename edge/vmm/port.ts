/** The VMM port: everything the edge asks of a virtual machine monitor, whichever it is. Contract before classes. */
import type { MachineId } from '../../sdk/index.ts';

/** Files of a snapshot on disk. All paths are absolute and are ours; nothing here comes from a guest. */
export interface SnapshotFiles {
  /** The base memory image; sparse, mapped privately by every clone, never written after capture. */
  readonly memoryPath: string;
  /** Device state as the VMM wrote it. */
  readonly statePath: string;
  /** The frozen disk layer (qcow2) which clones use as their backing file. */
  readonly diskPath: string;
}

/** What decides the shape of a virtual machine. Part of the fingerprint: a clone must be started with the same. */
export interface MachineShape {
  readonly vcpus: number;
  readonly memoryMiB: number;
  /** Virtual size of the scratch disk. */
  readonly diskMiB: number;
  /** Read-only root filesystem, shared by all machines of a template. */
  readonly rootPath: string;
  /** Whether it has a network card; each start of such a machine then needs a {@link TapPlace}. Default: none. */
  readonly hasNetworkCard?: boolean | undefined;
}

/** Where frames of a machine's network card go. Whoever gives it keeps it until the VMM ended. */
export interface TapPlace {
  /** Named network namespace. */
  readonly netns: string;
  /** Tap device in it, which nobody else has open. */
  readonly device: string;
}

/** Where a machine keeps its files: owner record, sockets, console, overlay. Mode 0700, owned by one machine. */
export interface MachineDirectory {
  readonly path: string;
}

export interface BootOptions {
  readonly id: MachineId;
  readonly shape: MachineShape;
  readonly kernelPath: string;
  readonly initrdPath: string;
  /** Appended to the driver's own kernel command line. */
  readonly kernelArgs: readonly string[];
  /** Created by the driver as a sparse file of `memoryMiB`, mapped shared: it becomes the base image. */
  readonly memoryPath: string;
  /**
   * Created by the driver as a qcow2 with an empty ext4 of `diskMiB` and no backing file: after `quit()` it is the frozen
   * layer of the snapshot. The caller owns it, as it owns `memoryPath`; dispose() removes neither.
   */
  readonly diskPath: string;
  /** Required where the shape has a network card, else ignored. */
  readonly tap?: TapPlace | undefined;
  /** Any JSON to keep beside the owner record; comes back as {@link Leftover.note}. At most 16 KiB. */
  readonly note?: unknown;
  readonly signal: AbortSignal;
}

export interface BlankOptions {
  readonly id: MachineId;
  readonly shape: MachineShape;
  readonly snapshot: SnapshotFiles;
  /** Required where the shape has a network card, else ignored. */
  readonly tap?: TapPlace | undefined;
  /** Any JSON to keep beside the owner record; comes back as {@link Leftover.note}. At most 16 KiB. */
  readonly note?: unknown;
  readonly signal: AbortSignal;
}

/** Why a VMM is no more. */
export interface VmmExit {
  readonly exitCode: number | null;
  readonly signalName: string | null;
  /** True when we asked for it. */
  readonly isExpected: boolean;
  /** Last lines of the VMM's stderr (at most 4 KiB). */
  readonly stderrTail: string;
  /** Last lines of the guest's console (at most 8 KiB), control characters escaped. */
  readonly consoleTail: string;
}

/** What holds for a VMM in any phase. */
export interface VmmProcess extends AsyncDisposable {
  readonly id: MachineId;
  readonly pid: number;
  readonly directory: MachineDirectory;
  /** Path of the unix socket on which the agent's channel is reachable. */
  readonly agentSocketPath: string;
  /** Random name of this very process; a machine id never gets a second one, but records are compared by it. */
  readonly generation: string;
  /** The memory file which the VMM maps: shared for a boot, privately for a clone. For page statistics and deltas. */
  readonly memoryPath: string;
  /** Settles once, when the process ended. Never rejects. */
  readonly exited: Promise<VmmExit>;
  consoleTail(): Promise<string>;
  /**
   * Files of the machine's disk which no longer change, between the snapshot's disk and the writable layer, bottom first.
   * They lie in the machine's directory and go with it: who wants to keep one links it elsewhere.
   */
  frozenLayers(): Promise<readonly string[]>;
  /** Replaces the note in the owner record, for example when a blank becomes a sandbox. At most 16 KiB of JSON. */
  annotate(note: unknown): Promise<void>;
  /**
   * Lets go without ending it: closes our connections, so that a later edge can {@link Vmm.adopt} it. Afterwards only
   * `id`, `pid` and the paths mean anything; `exited` never settles.
   */
  detach(): Promise<void>;
  /** SIGKILL, wait, remove the directory. Idempotent; bounded by a deadline; reports what it could not remove. */
  dispose(): Promise<void>;
}

/** Device state can be loaded exactly once. */
export interface BlankVmm extends VmmProcess {
  readonly phase: 'blank';
  /**
   * Puts frozen layers (bottom first, on the same filesystem, linked and not copied) between the snapshot's disk and the
   * machine's own empty layer. At most once.
   */
  stackDisk(layers: readonly string[]): Promise<void>;
  /** Feeds the state; afterwards the machine is paused. On failure the VMM is disposed and the error has its last lines. */
  load(statePath: string, options: { readonly signal: AbortSignal }): Promise<PausedVmm>;
}

export interface RunningVmm extends VmmProcess {
  readonly phase: 'running';
  /** Makes an empty disk layer ready, so that the next {@link PausedVmm.freezeDisk} is short. Throws `disk_full`; the guest runs on. */
  prepareFreeze(): Promise<void>;
  /**
   * Copies what the frozen layers hold into the writable one, so that there are none any more; the guest runs on. Not to be
   * called while the machine is paused or frozen. On failure the layers are as they were.
   */
  foldDisk(): Promise<void>;
  pause(): Promise<PausedVmm>;
}

/** Device state that lies in the machine's directory until it is fetched, the next one is saved, or the machine is disposed. */
export interface SavedState {
  /**
   * Moves it to a path, which must not exist; once, and the machine may run again meanwhile. Nothing is synced to the medium: whoever
   * publishes the file does that. Throws the system's error (`ENOSPC` …), leaving no file.
   * @returns bytes written
   */
  moveTo(path: string): Promise<number>;
}

export interface PausedVmm extends VmmProcess {
  readonly phase: 'paused';
  resume(): Promise<RunningVmm>;
  /**
   * Freezes the writable disk layer and goes on in an empty one; before `saveState`. The frozen one is the last of
   * `frozenLayers` afterwards. Throws `disk_full` or `vmm_failed` with the machine as it was where QEMU refused.
   */
  freezeDisk(): Promise<void>;
  /**
   * Saves device state, without RAM, as often as wanted; the machine stays paused, also when saving failed (`disk_full`): only a VMM
   * that stops answering is disposed.
   */
  saveState(): Promise<SavedState>;
  /** Asks the VMM to flush and end, for the template's own boot: its memory file is then the base image. */
  quit(): Promise<void>;
}

/** What a snapshot depends on beside its own files; a mismatch means rebuild, never "try anyway". */
export interface VmmFingerprint {
  readonly vmm: string;
  readonly vmmVersion: string;
  readonly accelerator: 'kvm' | 'tcg';
  readonly cpuModel: string;
  readonly board: string;
  readonly hostKernel: string;
}

export interface AcceleratorVerdict {
  readonly accelerator: 'kvm' | 'tcg';
  /** A whole sentence for people: why this one. */
  readonly reason: string;
  readonly decidedAt: number;
}

/** A leftover found on disk when an edge starts. */
export interface Leftover {
  readonly id: MachineId;
  readonly directory: MachineDirectory;
  /** Null when the process named by the owner record (pid and start time) is gone. */
  readonly pid: number | null;
  /** Whatever the edge stored beside the owner record when the machine was made; unvalidated JSON. */
  readonly note: unknown;
}

/** A VMM driver. Owns processes and their directories, nothing else. */
export interface Vmm {
  readonly fingerprint: VmmFingerprint;
  readonly verdict: AcceleratorVerdict;
  /** Starts the template's own machine: shared memory file, kernel, initrd. Running when it resolves. */
  boot(options: BootOptions): Promise<RunningVmm>;
  /** Starts a VMM that maps the snapshot's memory privately and waits for state. */
  spawnBlank(options: BlankOptions): Promise<BlankVmm>;
  /** All machine directories below the run directory, whoever made them. */
  leftovers(): Promise<Leftover[]>;
  /** Takes over a live leftover; the phase is read from the VMM. Throws `vmm_failed` when it does not answer. */
  adopt(leftover: Leftover): Promise<RunningVmm | PausedVmm | BlankVmm>;
  /** Kills what is left of it and removes its directory. */
  remove(leftover: Leftover): Promise<void>;
}
