/** One line of progress of a build. */
export interface BuildProgress {
  /** What is being made, such as `root python3`. */
  readonly task: string;
  readonly message: string;
}
export type OnProgress = (progress: BuildProgress) => void;

export interface FlightOptions {
  /** Leaves the flight; the work is aborted when nobody is left. */
  readonly signal: AbortSignal;
  readonly onProgress?: OnProgress;
}

interface Flight<T> {
  readonly result: Promise<T>;
  readonly controller: AbortController;
  readonly listeners: Set<OnProgress>;
  waiters: number;
}

/** Lets callers who want the same thing at the same time share one piece of work. */
export interface SingleFlight<T> {
  run(
    key: string,
    options: FlightOptions,
    work: (options: { readonly signal: AbortSignal; readonly onProgress: OnProgress }) => Promise<T>,
  ): Promise<T>;
}

/** All callers see all progress from when they joined. A failed flight is forgotten: the next caller starts anew. */
export function createSingleFlight<T>(): SingleFlight<T> {
  const flights = new Map<string, Flight<T>>();
  return {
    async run(key, options, work) {
      options.signal.throwIfAborted();
      let flight = flights.get(key);
      if (flight === undefined || flight.controller.signal.aborted) {
        const controller = new AbortController();
        const listeners = new Set<OnProgress>();
        const onProgress: OnProgress = (progress) => {
          for (const listener of listeners) listener(progress);
        };
        const started: Flight<T> = {
          controller,
          listeners,
          waiters: 0,
          result: work({ signal: controller.signal, onProgress }).finally(() => {
            if (flights.get(key) === started) flights.delete(key);
          }),
        };
        flights.set(key, started);
        flight = started;
      }
      return join(flight, options);
    },
  };
}

async function join<T>(flight: Flight<T>, options: FlightOptions): Promise<T> {
  const { signal, onProgress } = options;
  flight.waiters += 1;
  // Each caller has its own function object, so that two callers with the same callback leave separately.
  const listener: OnProgress = (progress) => onProgress?.(progress);
  flight.listeners.add(listener);
  const left = Promise.withResolvers<never>();
  const leave = (): void => left.reject(signal.reason);
  signal.addEventListener('abort', leave, { once: true });
  try {
    return await Promise.race([flight.result, left.promise]);
  } finally {
    signal.removeEventListener('abort', leave);
    flight.listeners.delete(listener);
    flight.waiters -= 1;
    if (flight.waiters === 0) flight.controller.abort();
  }
}
