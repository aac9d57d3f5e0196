import { Exchange } from './exchange.ts';
import type { LaunchedArrival, Launcher } from './open-loop.ts';
import type { OutgoingRequest, Transport } from './transport.ts';

/** A launcher that can also say when a slot became free, for the closed loop. */
export interface ClosableLauncher extends Launcher {
  onSettled(callback: () => void): void;
}

/** Launches one HTTP request per arrival. */
export function createHttpLauncher(deps: {
  readonly transport: Transport;
  readonly now: () => number;
  /** The request of an arrival. Called on the hot path: prepare what can be prepared. */
  readonly requestFor: (arrival: LaunchedArrival) => OutgoingRequest;
  readonly keepsBody: boolean;
  /** Told once per exchange, when it settled. */
  readonly record: (exchange: Exchange) => void;
}): ClosableLauncher {
  const counter = createInFlightCounter();
  const settled = (exchange: Exchange) => {
    deps.record(exchange);
    counter.leave();
  };
  return {
    get inFlight() {
      return counter.inFlight;
    },
    idle: counter.idle,
    onSettled: counter.onLeave,
    launch(arrival) {
      counter.enter();
      const exchange = new Exchange(
        {
          sequence: arrival.sequence,
          target: arrival.target,
          intendedMs: arrival.intendedMs,
          sentMs: arrival.sentMs,
          keepsBody: deps.keepsBody,
        },
        deps.now,
        settled,
      );
      deps.transport.send(deps.requestFor(arrival), exchange);
    },
  };
}

/** Counts what is in flight and tells when it changes. */
export function createInFlightCounter() {
  let inFlight = 0;
  let waiters: (() => void)[] = [];
  let leaveCallback: () => void = () => undefined;
  return {
    get inFlight() {
      return inFlight;
    },
    enter() {
      inFlight += 1;
    },
    leave() {
      inFlight -= 1;
      leaveCallback();
      if (inFlight > 0) return;
      const woken = waiters;
      waiters = [];
      for (const wake of woken) wake();
    },
    onLeave(callback: () => void) {
      leaveCallback = callback;
    },
    idle: (): Promise<void> =>
      inFlight === 0 ? Promise.resolve() : new Promise((wake) => waiters.push(wake)),
  };
}
