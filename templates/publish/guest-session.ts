/** One machine under construction: every step against it has a deadline and ends when the machine does. */

import { buildFailed } from './build-error.ts';
import type { BuildMachine } from './host-port.ts';
import { escapeOutput, tailOf } from './output-text.ts';

const lastWordsMs = 3000;

export class GuestSession<M extends BuildMachine = BuildMachine> {
  readonly machine: M;
  readonly #signal: AbortSignal;
  readonly #gone = new AbortController();
  #hasService = false;

  /** @param signal of the whole build */
  constructor(machine: M, signal: AbortSignal) {
    this.machine = machine;
    this.#signal = signal;
    void machine.gone.then((text) => {
      this.#gone.abort(buildFailed('the machine ended while it was being built', escapeOutput(text)));
    });
  }

  /** From now on {@link lastWords} asks for the service's output. */
  serviceStarted(): void {
    this.#hasService = true;
  }

  /**
   * Runs `work`, which gets a signal that covers the caller's wish, the deadline and the machine's end.
   * @param what subject of "… did not finish in time"
   * @throws GatewayError `build_failed` when the deadline passed or the machine ended; else what `work` threw
   */
  async step<T>(what: string, timeoutMs: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const deadline = AbortSignal.timeout(timeoutMs);
    const signal = AbortSignal.any([this.#signal, deadline, this.#gone.signal]);
    const aborted = Promise.withResolvers<never>();
    const onAbort = () => aborted.reject(signal.reason);
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      signal.throwIfAborted();
      return await Promise.race([work(signal), aborted.promise]);
    } catch (error) {
      if (this.#signal.aborted) throw this.#signal.reason;
      if (this.#gone.signal.aborted) throw this.#gone.signal.reason;
      if (deadline.aborted) {
        throw buildFailed(
          `${what} did not finish within ${timeoutMs / 1000} s`,
          await this.lastWords(),
          error,
        );
      }
      throw error;
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }

  /** What the service printed last, else the console's last lines; empty when neither can be had within 3 s. Escaped. */
  async lastWords(): Promise<string> {
    const signal = AbortSignal.timeout(lastWordsMs);
    const expired = new Promise<string>((resolve) => {
      signal.addEventListener('abort', () => resolve(''), { once: true });
    });
    const read = async (): Promise<string> => {
      if (!this.#hasService) return this.machine.consoleTail();
      const service = await this.machine.serviceOutput({ signal }).catch(() => '');
      if (service.trim() !== '') return service;
      return `The service printed nothing. The console said:\n${await this.machine.consoleTail()}`;
    };
    const words = await Promise.race([read().catch(() => ''), expired]);
    return tailOf(escapeOutput(words), 16 * 1024);
  }
}
