/** Changes below a directory as E2B's events. */
import { posix } from 'node:path';
import { create } from '@bufbuild/protobuf';
import { Code, ConnectError } from '@connectrpc/connect';
import { type FileWatchEvent, isGatewayError } from '../../../../sdk/index.ts';
import { watchFiles } from '../../../sandboxes/file-watch.ts';
import { withUse } from '../../../sandboxes/held.ts';
import { observe } from '../../../sandboxes/observe.ts';
import {
  EventType,
  type FilesystemEvent,
  FilesystemEventSchema,
} from '../../proto/gen/filesystem/filesystem_pb.js';
import type { EnvdCall } from '../call.ts';
import { entryOf } from './entry.ts';

export interface WatchWish {
  readonly path: string;
  readonly recursive: boolean;
  readonly includeEntry: boolean;
}

const types: Partial<Record<FileWatchEvent['type'], EventType>> = {
  create: EventType.CREATE,
  write: EventType.WRITE,
  remove: EventType.REMOVE,
  rename: EventType.RENAME,
  chmod: EventType.CHMOD,
};

/**
 * Null first, when what happens from now on is seen; then the events. Ends when the directory is gone.
 * @throws ConnectError `InvalidArgument` for what is no directory, `NotFound`, `DataLoss` when events were lost
 */
export async function* watchDirectory(
  call: EnvdCall,
  wish: WatchWish,
  signal: AbortSignal,
): AsyncGenerator<FilesystemEvent | null> {
  const where = { edge: call.edge, id: call.id, signal };
  const path = await observe(where, (channel) => call.homes.resolve(wish.path, { ...call, channel, signal }));
  const events = withoutUploads(watchFiles({ ...where, path, isRecursive: wish.recursive, user: call.user }));
  for await (const event of events) {
    if (event.type === 'started') yield null;
    else if (event.type === 'overflow') {
      throw new ConnectError('events were lost; look at the directory and watch it again', Code.DataLoss);
    } else yield await told(call, wish, path, event, signal);
  }
}

/** The agent writes an upload beside its place and renames it. */
const uploading = /(?:^|\/)\.snapgate-[0-9a-f]{16}$/;

/** Shows uploads as what they are for their clients: a file that appears and is written. */
async function* withoutUploads(events: AsyncIterable<FileWatchEvent>): AsyncGenerator<FileWatchEvent> {
  let isInPlace = false;
  for await (const event of events) {
    if (uploading.test(event.path)) {
      isInPlace = event.type === 'rename';
      continue;
    }
    yield event;
    if (isInPlace && event.type === 'create') yield { type: 'write', path: event.path };
    isInPlace = false;
  }
}

async function told(
  call: EnvdCall,
  wish: WatchWish,
  root: string,
  event: FileWatchEvent,
  signal: AbortSignal,
): Promise<FilesystemEvent> {
  const entry = wish.includeEntry ? await entryAt(call, event.path, signal) : undefined;
  return create(FilesystemEventSchema, {
    name: posix.relative(root, event.path),
    type: types[event.type] ?? EventType.UNSPECIFIED,
    ...(entry === undefined ? {} : { entry }),
  });
}

/** Undefined when nothing is there any more. */
async function entryAt(call: EnvdCall, path: string, signal: AbortSignal) {
  try {
    return await withUse({ edge: call.edge, id: call.id, signal }, async ({ channel }, until) =>
      entryOf(await channel.statFile(path, { signal: until, user: call.user, withAttributes: true })),
    );
  } catch (error) {
    if (isGatewayError(error, 'file_not_found', 'forbidden', 'conflict')) return undefined;
    throw error;
  }
}
