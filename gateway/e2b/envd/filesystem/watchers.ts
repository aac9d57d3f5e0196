/** Watches of clients that come back to ask what happened. */
import { Code, ConnectError } from '@connectrpc/connect';
import { type Clock, randomName } from '../../../../sdk/index.ts';
import type { FilesystemEvent } from '../../proto/gen/filesystem/filesystem_pb.js';
import type { EnvdCall } from '../call.ts';
import { toConnectError } from '../errors.ts';
import { type WatchWish, watchDirectory } from './watch.ts';

export interface Watchers extends Disposable {
  /** Resolves with its name once it watches. @throws ConnectError as {@link watchDirectory}, `ResourceExhausted` */
  create(call: EnvdCall, wish: WatchWish): Promise<string>;
  /** What happened since it was last asked. @throws ConnectError `NotFound`, or what ended the watch */
  take(call: EnvdCall, watcher: string): FilesystemEvent[];
  /** Idempotent. */
  remove(call: EnvdCall, watcher: string): void;
}

interface Watcher {
  readonly sandbox: string;
  readonly stop: AbortController;
  events: FilesystemEvent[];
  failure: ConnectError | null;
  takenAt: number;
}

const maxWatchers = 1024;
const maxPerSandbox = 64;
const maxEvents = 10_000;
/** A client that does not come back has gone. */
const forgottenMs = 3_600_000;

/** Owns the watches and one timer while there are any; disposing ends them. */
export function createWatchers(deps: { readonly clock: Clock }): Watchers {
  const { clock } = deps;
  const watchers = new Map<string, Watcher>();
  let cancelSweep: (() => void) | null = null;

  const drop = (name: string) => {
    watchers.get(name)?.stop.abort();
    watchers.delete(name);
  };
  const sweep = () => {
    cancelSweep = null;
    for (const [name, { takenAt }] of watchers) if (clock.monotonic() - takenAt > forgottenMs) drop(name);
    if (watchers.size > 0) cancelSweep = clock.schedule(forgottenMs / 4, sweep);
  };
  const find = ({ id }: EnvdCall, name: string): Watcher => {
    const found = watchers.get(name);
    if (found?.sandbox === id) return found;
    throw new ConnectError('there is no such watcher', Code.NotFound);
  };
  const collect = async (watcher: Watcher, source: AsyncIterable<FilesystemEvent | null>) => {
    try {
      for await (const event of source) {
        if (event === null) continue;
        if (watcher.events.length >= maxEvents) {
          throw new ConnectError(`more than ${maxEvents} events were not asked for`, Code.DataLoss);
        }
        watcher.events.push(event);
      }
      throw new ConnectError('the directory is gone', Code.NotFound);
    } catch (error) {
      watcher.failure = toConnectError(error);
      watcher.stop.abort();
    }
  };

  return {
    async create(call, wish) {
      const own = [...watchers.values()].filter(({ sandbox }) => sandbox === call.id);
      if (own.length >= maxPerSandbox || watchers.size >= maxWatchers) {
        throw new ConnectError('there are too many watchers; remove some', Code.ResourceExhausted);
      }
      const stop = new AbortController();
      const watcher: Watcher = {
        sandbox: call.id,
        stop,
        events: [],
        failure: null,
        takenAt: clock.monotonic(),
      };
      const source = watchDirectory(call, wish, stop.signal);
      await source.next();
      const name = randomName(20);
      watchers.set(name, watcher);
      void collect(watcher, source);
      cancelSweep ??= clock.schedule(forgottenMs / 4, sweep);
      return name;
    },
    take(call, name) {
      const watcher = find(call, name);
      watcher.takenAt = clock.monotonic();
      const { events, failure } = watcher;
      watcher.events = [];
      if (events.length > 0 || failure === null) return events;
      drop(name);
      throw failure;
    },
    remove(call, name) {
      if (watchers.get(name)?.sandbox === call.id) drop(name);
    },
    [Symbol.dispose]() {
      cancelSweep?.();
      for (const name of [...watchers.keys()]) drop(name);
    },
  };
}
