/** How long each part of a build may take, milliseconds. Generous: software emulation is slow, hanging is what they end. */
export interface BuildDeadlines {
  /** Image building installs packages from a mirror. */
  readonly imageMs: number;
  readonly bootMs: number;
  /** Each `copy` rule. */
  readonly copyMs: number;
  /** Each `run` line. */
  readonly runMs: number;
  readonly captureMs: number;
  readonly checksumMs: number;
  readonly restoreMs: number;
}

export const defaultDeadlines: BuildDeadlines = {
  imageMs: 30 * 60_000,
  bootMs: 3 * 60_000,
  copyMs: 10 * 60_000,
  runMs: 20 * 60_000,
  captureMs: 5 * 60_000,
  checksumMs: 10 * 60_000,
  restoreMs: 2 * 60_000,
};
