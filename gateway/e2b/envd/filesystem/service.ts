/** `filesystem.Filesystem`: entries, directories and their changes; bytes of files go over plain HTTP. */
import { create } from '@bufbuild/protobuf';
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from '@connectrpc/connect';
import type { SandboxUse } from '../../../../edge/client/index.ts';
import { isGatewayError } from '../../../../sdk/index.ts';
import { withUse } from '../../../sandboxes/held.ts';
import {
  type EntryInfo,
  type Filesystem,
  type WatchDirResponse,
  WatchDirResponseSchema,
} from '../../proto/gen/filesystem/filesystem_pb.js';
import { callKey, type EnvdCall } from '../call.ts';
import { merge } from '../merge.ts';
import { entryOf } from './entry.ts';
import { watchDirectory } from './watch.ts';
import type { Watchers } from './watchers.ts';

type Channel = SandboxUse['channel'];

/** What a handler does its work with. */
interface Acting {
  readonly channel: Channel;
  readonly user: string;
  readonly signal: AbortSignal;
  /** An absolute path of a client's. */
  readonly resolve: (path: string) => Promise<string>;
}

/** Deepest listing. */
const maxDepth = 64;

function callOf(context: HandlerContext): EnvdCall {
  const call = context.values.get(callKey);
  if (call === undefined) throw new ConnectError('no sandbox is named', Code.Internal);
  return call;
}

async function acting<T>(context: HandlerContext, work: (acting: Acting) => Promise<T>): Promise<T> {
  const call = callOf(context);
  const { edge, id, user } = call;
  return withUse({ edge, id, signal: context.signal }, ({ channel }, signal) =>
    work({
      channel,
      user,
      signal,
      resolve: (path) => call.homes.resolve(path, { ...call, channel, signal }),
    }),
  );
}

const entryAt = async ({ channel, user, signal }: Acting, path: string): Promise<EntryInfo> =>
  entryOf(await channel.statFile(path, { user, signal, withAttributes: true }));

/** @param watchers shared by all calls of the gateway */
export function filesystemService(watchers: Watchers): ServiceImpl<typeof Filesystem> {
  return {
    stat: (request, context) =>
      acting(context, async (as) => ({ entry: await entryAt(as, await as.resolve(request.path)) })),

    makeDir: (request, context) =>
      acting(context, async (as) => {
        const { channel, user, signal } = as;
        const path = await as.resolve(request.path);
        try {
          await channel.makeDirectory(path, { user, signal });
        } catch (error) {
          if (!isGatewayError(error, 'conflict')) throw error;
          const { type } = await channel.statFile(path, { user, signal });
          const isThere = type === 'directory';
          throw new ConnectError(
            isThere ? `directory already exists: ${path}` : `${path} exists and is no directory`,
            isThere ? Code.AlreadyExists : Code.InvalidArgument,
          );
        }
        return { entry: await entryAt(as, path) };
      }),

    move: (request, context) =>
      acting(context, async (as) => {
        const { channel, user, signal } = as;
        const [from, to] = [await as.resolve(request.source), await as.resolve(request.destination)];
        await channel.moveFile(from, to, { user, signal });
        return { entry: await entryAt(as, to) };
      }),

    listDir: (request, context) =>
      acting(context, async (as) => {
        const { channel, user, signal } = as;
        const { depth } = request;
        if (depth < 1) throw new ConnectError('"depth" is at least 1', Code.InvalidArgument);
        const path = await as.resolve(request.path);
        const rows = await channel.listFiles(path, {
          user,
          signal,
          depth: Math.min(depth, maxDepth),
          withAttributes: true,
        });
        const entries: EntryInfo[] = [];
        for await (const row of rows) entries.push(entryOf(row));
        entries.sort((one, other) => (one.path < other.path ? -1 : one.path > other.path ? 1 : 0));
        return { entries };
      }),

    remove: (request, context) =>
      acting(context, async (as) => {
        const { channel, user, signal } = as;
        const path = await as.resolve(request.path);
        try {
          await channel.deleteFile(path, { user, signal, isRecursive: true });
        } catch (error) {
          if (!isGatewayError(error, 'file_not_found')) throw error;
        }
        return {};
      }),

    async *watchDir(request, context) {
      const call = callOf(context);
      const answers = async function* (): AsyncGenerator<WatchDirResponse> {
        for await (const event of watchDirectory(call, request, context.signal)) {
          yield create(WatchDirResponseSchema, {
            event: event === null ? { case: 'start', value: {} } : { case: 'filesystem', value: event },
          });
        }
      };
      yield* merge([answers()], {
        clock: call.clock,
        keepAliveMs: call.keepAliveMs,
        keepAlive: () => create(WatchDirResponseSchema, { event: { case: 'keepalive', value: {} } }),
      });
    },

    createWatcher: async (request, context) => ({
      watcherId: await watchers.create(callOf(context), request),
    }),
    getWatcherEvents: (request, context) => ({ events: watchers.take(callOf(context), request.watcherId) }),
    removeWatcher(request, context) {
      watchers.remove(callOf(context), request.watcherId);
      return {};
    },
  };
}
