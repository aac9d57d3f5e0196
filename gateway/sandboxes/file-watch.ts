import { type FileWatchEvent, isGatewayError } from '../../sdk/index.ts';
import { type Observation, observe } from './observe.ts';

export interface WatchQuery extends Observation {
  readonly path: string;
  readonly isRecursive: boolean;
  readonly user?: string;
}

/**
 * Begins with `started`. What happened between a cut of the channel and the next watch nobody saw, so `overflow` comes in
 * between. Ends when the directory is gone or the signal aborts.
 */
export async function* watchFiles(query: WatchQuery): AsyncGenerator<FileWatchEvent> {
  const { path, isRecursive, user, signal } = query;
  const options = { isRecursive, signal, ...(user === undefined ? {} : { user }) };
  for (let type: 'started' | 'overflow' = 'started'; ; type = 'overflow') {
    const isAgain = type === 'overflow';
    const events = await observe(query, (channel) => channel.watchFiles(path, options), isAgain);
    yield { type, path };
    try {
      yield* events;
      return;
    } catch (error) {
      if (signal.aborted) return;
      if (!isGatewayError(error, 'guest_unreachable')) throw error;
    }
  }
}
