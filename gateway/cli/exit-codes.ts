import { type GatewayError, isUnreachable } from '../../sdk/index.ts';

/** What the process ends with; scripts may rely on it. Shown by `snapgate --help`. */
export const exitCodes = {
  ok: { code: 0, meaning: 'done' },
  failed: { code: 1, meaning: 'it failed; the error says why' },
  usage: { code: 2, meaning: 'the command line or the input is wrong' },
  unreachable: { code: 3, meaning: 'no gateway answers at the address' },
  unauthorised: { code: 4, meaning: 'the key is missing, unknown or may not do this' },
  tryAgain: { code: 5, meaning: 'refused or failed for now; the same call may work later' },
  interrupted: { code: 130, meaning: 'interrupted by Ctrl-C' },
} as const;

/** The exit code of an error. */
export function exitCodeOf(error: GatewayError): number {
  if (isUnreachable(error)) return exitCodes.unreachable.code;
  if (error.code === 'cancelled') return exitCodes.interrupted.code;
  if (error.status === 401 || error.status === 403) return exitCodes.unauthorised.code;
  if (error.status === 400) return exitCodes.usage.code;
  return error.isRetryable ? exitCodes.tryAgain.code : exitCodes.failed.code;
}
