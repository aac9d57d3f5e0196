import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import type { z } from 'zod';
import {
  type CreatedSandbox,
  createSandboxRequestSchema,
  createSnapshotRequestSchema,
  forkRequestSchema,
  newMachineId,
  newNodeId,
  type ProcessStatusInfo,
  rewindRequestSchema,
  type SnapshotInfo,
  startProcessRequestSchema,
} from '../../sdk/index.ts';

type Files = Map<string, Buffer>;
interface State {
  files: Files;
  isPaused: boolean;
  readonly start: CreatedSandbox['start'];
  readonly outputs: Map<string, string>;
}

/** Ways in which the stub can be wrong, each of which a scenario must notice. */
export interface SandboxFaults {
  /** Every child of a fork has the random bytes of its source. */
  readonly sharesRandomBytes?: boolean;
  /** The guest's clock stands this far behind. */
  readonly clockBehindMs?: number;
  /** A rewind changes nothing. */
  readonly ignoresRewind?: boolean;
  /** Children come without the source's files. */
  readonly losesState?: boolean;
  /** Children have the files of whoever was prepared first. */
  readonly mixesStates?: boolean;
  /** What a command appends is appended twice. */
  readonly runsTwice?: boolean;
}

const digest = `sha256:${'0'.repeat(64)}` as const;

/** A stub of the sandbox routes that the scenarios use: sandboxes are maps, and the shell knows just their commands. */
export function createStubSandboxes(faults: SandboxFaults = {}) {
  const node = newNodeId();
  const sandboxes = new Map<string, State>();
  const snapshots = new Map<string, Files>();
  let fixedRandom = '';
  let firstState: Buffer | undefined;

  const infoOf = (id: string): Omit<CreatedSandbox, 'token'> => {
    const state = sandboxes.get(id);
    return {
      ...{
        id,
        node,
        template: 'hello',
        version: 'v1',
        digest,
        metadata: {},
        env: {},
        parent: null,
        basis: null,
      },
      ...{
        createdAt: 0,
        startedAt: 0,
        deadlineAt: 0,
        generation: 0,
        vcpus: 1,
        memoryMiB: 256,
        diskMiB: 1024,
      },
      ...{ onTimeout: 'kill', autoResume: false, termination: null },
      state: state === undefined ? 'ended' : state.isPaused ? 'paused' : 'running',
      start: state?.start ?? 'ready',
    };
  };
  const create = (files: Files, start: State['start']): CreatedSandbox => {
    const id = newMachineId(node);
    sandboxes.set(id, { files: new Map(files), isPaused: false, start, outputs: new Map() });
    return { ...infoOf(id), token: 'token' };
  };

  const append = (state: State, path: string, text: string) => {
    const added = faults.runsTwice ? text + text : text;
    state.files.set(path, Buffer.concat([state.files.get(path) ?? Buffer.alloc(0), Buffer.from(added)]));
  };
  const runShell = (state: State, command: string): string => {
    if (command.startsWith('od -An')) {
      fixedRandom ||= randomBytes(16).toString('hex');
      const hex = faults.sharesRandomBytes ? fixedRandom : randomBytes(16).toString('hex');
      return `${hex}\n${Date.now() - (faults.clockBehindMs ?? 0)}\n`;
    }
    const [, text, how, path] = /^echo (\S+) (>|>>|\| tee -a) ([^\s;]+)/.exec(command) ?? [];
    if (how === '>') state.files.set(path!, Buffer.from(`${text}\n`));
    else if (how !== undefined) append(state, path!, `${text}\n`);
    if (path === '/tmp/state') firstState ??= state.files.get(path);
    if (how !== undefined) return how.startsWith('|') ? `${text}\n` : '';
    if (command.startsWith('cat /tmp/state;')) return `${state.files.get('/tmp/state') ?? ''}alive\n`;
    const [, read] = /cat (\S+)$/.exec(command) ?? [];
    return String(state.files.get(read ?? '') ?? '');
  };

  const filesOfChild = (state: State): Files => {
    if (faults.losesState) return new Map();
    return faults.mixesStates ? new Map([['/tmp/state', firstState!]]) : state.files;
  };
  const exited = (id: string): ProcessStatusInfo => ({
    ...{ id, pid: 1, state: 'exited', exitCode: 0, signal: null, isTimedOut: false, isOutOfMemory: false },
    ...{ stdoutBytes: 0, stderrBytes: 0, stdinBytes: 0, termination: null },
  });
  const snapshotOf = (sandbox: string, files: Files): SnapshotInfo => {
    const id = newMachineId(node);
    snapshots.set(id, new Map(files));
    return {
      ...{ id, sandbox, name: null, template: 'hello', version: 'v1', digest, parent: null },
      ...{ createdAt: 0, isPinned: false, bytes: 0 },
    };
  };

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const json = (status: number, value: unknown, headers = {}) =>
      void response
        .writeHead(status, { 'content-type': 'application/json', ...headers })
        .end(JSON.stringify(value));
    const url = new URL(request.url ?? '/', 'http://stub');
    const body = await buffer(request);
    // The gateway parses with the same schemas, so a field that it would refuse is refused here.
    const given = <T extends z.ZodType>(schema: T) => schema.parse(JSON.parse(body.toString('utf8')));
    const [, , kind, id, action, name, ...rest] = url.pathname.split('/');
    if (kind === 'snapshots') {
      snapshots.delete(id!);
      return void response.writeHead(204).end();
    }
    if (id === undefined) {
      given(createSandboxRequestSchema);
      return json(201, create(new Map(), 'ready'));
    }
    const state = sandboxes.get(id);
    if (state === undefined) return json(404, {}, { 'x-snapgate-error': 'edge/sandbox_not_found' });
    const path = url.searchParams.get('path') ?? '';
    switch (`${request.method} ${action ?? ''}${rest.length > 0 ? `/${rest[0]}` : ''}`) {
      case 'DELETE ':
        sandboxes.delete(id);
        return json(200, infoOf(id));
      case 'POST processes': {
        const process = randomBytes(4).toString('hex');
        state.outputs.set(process, runShell(state, given(startProcessRequestSchema).argv?.[2] ?? ''));
        return json(201, exited(process));
      }
      case 'GET processes/wait':
        return json(200, exited(name!));
      case 'GET processes/output':
        return void response.writeHead(200).end(rest[1] === 'stdout' ? state.outputs.get(name!) : '');
      case 'POST fork': {
        const { count } = given(forkRequestSchema);
        return json(201, {
          children: Array.from({ length: count }, () => ({ sandbox: create(filesOfChild(state), 'forked') })),
          notInherited: [],
          timing: { stoppedMs: 0, stateMs: 0, pagesMs: 0, diskMs: 0, dirtyBytes: 0 },
        });
      }
      case 'POST pause':
        state.isPaused = true;
        return json(200, infoOf(id));
      case 'POST resume':
        state.isPaused = false;
        return json(200, { ...infoOf(id), token: 'token' });
      case 'POST snapshots':
        given(createSnapshotRequestSchema);
        return json(201, snapshotOf(id, state.files));
      case 'POST rewind': {
        const kept = snapshots.get(given(rewindRequestSchema).snapshot);
        if (!faults.ignoresRewind) state.files = new Map(kept);
        return json(200, infoOf(id));
      }
      case 'PUT files':
        state.files.set(path, body);
        return void response.writeHead(204).end();
      case 'GET files':
        // `GET files/list` differs by its name only, and nobody looks at what it lists.
        return void response.writeHead(200).end(name === 'list' ? '' : state.files.get(path));
      default:
        return json(405, {});
    }
  };
  return {
    handle,
    /** Sandboxes that were created and not killed, and snapshots that were not removed. */
    get alive() {
      return sandboxes.size + snapshots.size;
    },
  };
}
