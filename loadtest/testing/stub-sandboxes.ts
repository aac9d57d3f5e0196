import { randomBytes } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { newMachineId, newNodeId } from '../../sdk/index.ts';

/** What a stub sandbox remembers. */
interface State {
  readonly files: Map<string, Buffer>;
  isPaused: boolean;
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
}

/** A stub of the sandbox routes that the scenarios use: sandboxes are maps, and the shell knows just their commands. */
export function createStubSandboxes(faults: SandboxFaults = {}) {
  const node = newNodeId();
  const sandboxes = new Map<string, State>();
  const snapshots = new Map<string, Map<string, Buffer>>();
  let fixedRandom = '';

  const create = (files = new Map<string, Buffer>()): string => {
    const id = newMachineId(node);
    sandboxes.set(id, { files: new Map(files), isPaused: false });
    return id;
  };

  const runShell = (state: State, command: string): string => {
    if (command.startsWith('od -An')) {
      fixedRandom ||= randomBytes(16).toString('hex');
      const hex = faults.sharesRandomBytes ? fixedRandom : randomBytes(16).toString('hex');
      return `${hex}\n${Date.now() - (faults.clockBehindMs ?? 0)}\n`;
    }
    const write = /^echo (\S+) (>>?) ([^\s;]+)/.exec(command);
    if (write !== null) {
      const [, text, how, path] = write;
      const before = how === '>>' ? (state.files.get(path!) ?? Buffer.alloc(0)) : Buffer.alloc(0);
      state.files.set(path!, Buffer.concat([before, Buffer.from(`${text}\n`)]));
      return command.includes('cat /tmp/state') ? `${text}\n` : '';
    }
    if (command.startsWith('cat /tmp/state;')) return `${state.files.get('/tmp/state') ?? ''}alive\n`;
    if (command.startsWith('cat ')) return String(state.files.get(command.slice(4)) ?? '');
    if (command.startsWith('echo ')) return `${command.slice(5)}\n`;
    return '';
  };

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const json = (status: number, value: unknown, headers = {}) =>
      response
        .writeHead(status, { 'content-type': 'application/json', ...headers })
        .end(JSON.stringify(value));
    const url = new URL(request.url ?? '/', 'http://stub');
    const body = await buffer(request);
    const [, , , id, action, more] = url.pathname.split('/');
    if (id === undefined) return void json(201, { id: create() }, { 'x-snapgate-start': 'ready' });
    const state = sandboxes.get(id);
    if (state === undefined) return void json(404, {}, { 'x-snapgate-error': 'edge/sandbox_not_found' });
    const given = <T>() => JSON.parse(body.toString('utf8')) as T;
    switch (`${request.method} ${action ?? ''}${more === undefined ? '' : `/${more}`}`) {
      case 'DELETE ':
        sandboxes.delete(id);
        return void response.writeHead(204).end();
      case 'POST run':
        return void json(200, {
          exitCode: 0,
          stdout: runShell(state, given<{ command: string[] }>().command[2]!),
          stderr: '',
        });
      case 'POST fork': {
        const { count } = given<{ count: number }>();
        const files = faults.losesState ? new Map<string, Buffer>() : state.files;
        return void json(200, { children: Array.from({ length: count }, () => ({ id: create(files) })) });
      }
      case 'POST pause':
      case 'POST resume':
        state.isPaused = action === 'pause';
        return void json(200, {});
      case 'POST snapshot': {
        const name = `s${snapshots.size}`;
        snapshots.set(name, new Map(state.files));
        return void json(200, { snapshot: name });
      }
      case 'POST rewind': {
        const { snapshot } = given<{ snapshot: string }>();
        if (!faults.ignoresRewind)
          sandboxes.set(id, { ...state, files: new Map(snapshots.get(snapshot) ?? []) });
        return void json(200, {});
      }
      case 'PUT files':
        state.files.set(url.searchParams.get('path') ?? '', body);
        return void response.writeHead(204).end();
      case 'GET files':
        return void response.writeHead(200).end(state.files.get(url.searchParams.get('path') ?? ''));
      case 'GET files/list':
        return void json(200, { items: [...state.files.keys()] });
      default:
        return void json(405, {});
    }
  };
  return {
    handle,
    /** Sandboxes that were created and not killed. */
    get alive() {
      return sandboxes.size;
    },
  };
}
