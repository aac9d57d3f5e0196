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
  /** Which requests are sent again once they were answered. The second exchange is in no figure. */
  readonly repeats: {
    isDue(sequence: number): boolean;
    compare(first: Exchange, again: Exchange): void;
  } | null;
}): ClosableLauncher {
  const counter = createInFlightCounter();
  const settled = (exchange: Exchange) => {
    deps.record(exchange);
    counter.leave();
  };
  const { repeats } = deps;
  const send = (arrival: LaunchedArrival, onSettled: (exchange: Exchange) => void) => {
    const { sequence, target, intendedMs, sentMs } = arrival;
    const start = { sequence, target, intendedMs, sentMs, keepsBody: deps.keepsBody };
    deps.transport.send(deps.requestFor(arrival), new Exchange(start, deps.now, onSettled));
  };
  const sendTwice = (arrival: LaunchedArrival, compare: (first: Exchange, again: Exchange) => void) =>
    send(arrival, (first) => {
      deps.record(first);
      if (first.outcome !== 'ok') return counter.leave();
      const nowMs = deps.now();
      send({ ...arrival, intendedMs: nowMs, sentMs: nowMs }, (again) => {
        compare(first, again);
        counter.leave();
      });
    });
  return {
    get inFlight() {
      return counter.inFlight;
    },
    idle: counter.idle,
    onSettled: counter.onLeave,
    launch(arrival) {
      counter.enter();
      if (repeats?.isDue(arrival.sequence)) sendTwice(arrival, repeats.compare);
      else send(arrival, settled);
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
