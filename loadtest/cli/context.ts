import type { Writable } from 'node:stream';
import { isGatewayError } from '../../sdk/index.ts';
import type { PoolSimulator } from '../capacity/simulator-port.ts';

/** What the assembly of the command line passes to `loadtest`. */
export interface LoadtestDeps {
  readonly stdout: Writable & { readonly isTTY?: boolean };
  readonly stderr: Writable & { readonly isTTY?: boolean };
  /** Aborts on Ctrl-C: a run ends, is judged as aborted, and its reports are still written. */
  readonly interrupted: AbortSignal;
  readonly setExitCode: (code: number) => void;
  /** Address and key of the gateway: flags, environment, credentials file. Called inside an action only. */
  readonly connection: () => { readonly url: string; readonly apiKey?: string };
  /** The pool's own code under a virtual clock, loaded when `loadtest plan` asks for it. */
  readonly simulator: () => Promise<PoolSimulator>;
}

/** What `loadtest` ends with: the three that CI needs to tell apart. */
export const loadtestExitCodes = {
  /** Every gate held. */
  passed: 0,
  /** The run could not be done or judged: bad arguments, unknown metric, no server. */
  error: 1,
  /** It ran, and a threshold, a check, the generator's limits or the leak check failed. */
  failed: 99,
} as const;

/**
 * Wraps an action so that its errors are printed and end in exit code 1. The other commands of `snapgate` leave errors
 * to their caller; here 1 and 99 must mean the same whatever went wrong.
 */
export const guarded =
  <Args extends unknown[]>(deps: LoadtestDeps, action: (...args: Args) => Promise<void>) =>
  async (...args: Args): Promise<void> => {
    try {
      await action(...args);
    } catch (error) {
      deps.setExitCode(loadtestExitCodes.error);
      const message = error instanceof Error ? error.message : String(error);
      const code = isGatewayError(error) ? error.code : 'internal';
      deps.stderr.write(`error[${code}]: ${message}\n`);
    }
  };

/** Writes and waits until the stream took it. */
export const print = (stream: Writable, text: string): Promise<void> =>
  new Promise((resolve, reject) => {
    stream.write(text, (error) => (error ? reject(error) : resolve()));
  });
