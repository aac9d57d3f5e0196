/** Builds of templates as E2B's clients ask for them: begun, watched, and published like any other. */
import { randomUUID } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, GatewayError, isTemplateName, toProblem } from '../../../sdk/index.ts';
import { packTemplate, parseDefinition, type TemplateRegistry } from '../../../templates/index.ts';
import { toGatewayError } from '../../errors.ts';
import type { Publisher } from '../../publish.ts';
import { parseTemplateName } from '../template-name.ts';
import { createRecipes, type Recipe } from './recipes.ts';
import { type BuildRequest, type BuildStart, baseOf } from './schemas.ts';
import { firstState, scriptStep, startScript } from './script.ts';
import { createUploads, type Uploads } from './uploads.ts';

export interface BuildLog {
  readonly timestamp: string;
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly message: string;
  readonly step?: string;
}

export interface BuildRecord {
  readonly buildID: string;
  readonly template: string;
  readonly tags: readonly string[];
  readonly request: BuildRequest;
  status: 'waiting' | 'building' | 'ready' | 'error';
  /** Bounded; the oldest make room. */
  readonly logs: BuildLog[];
  reason?: { readonly message: string; readonly step?: string };
  /** Once it is ready. */
  version?: string;
}

export interface Builds {
  readonly uploads: Uploads;
  /** @throws GatewayError `invalid_request` for a name that can't be one, `queue_full` */
  request(request: BuildRequest): BuildRecord;
  /** @throws GatewayError `version_not_found` */
  find(template: string, buildID: string): BuildRecord;
  /** Goes on in the background. @throws GatewayError `conflict` when it has begun, `not_supported_yet`, `invalid_request` */
  start(record: BuildRecord, wanted: BuildStart): Promise<void>;
  /** Ends those that run. Idempotent. */
  close(): Promise<void>;
}

const maxRecords = 1000;
const maxLogs = 10_000;
const basePackages = [
  'bash',
  'ca-certificates',
  'curl',
  'git',
  'procps',
  'python3',
  'python-is-python3',
  'sudo',
];

interface Deps {
  readonly registry: TemplateRegistry;
  readonly publisher: Publisher;
  readonly clock: Clock;
  /** Called with a version that is published and the tags it shall get. */
  readonly tag: (template: string, version: string, tags: readonly string[]) => void;
}

/** @param directory of uploads and recipes; made when it is first needed */
export function createBuilds(deps: Deps, directory: string): Builds {
  const { registry, publisher, clock } = deps;
  const uploads = createUploads(join(directory, 'uploads'));
  const recipes = createRecipes(join(directory, 'recipes'));
  const records = new Map<string, BuildRecord>();
  const running = new Set<Promise<void>>();
  const stop = new AbortController();

  const say = (record: BuildRecord, message: string, level: BuildLog['level'] = 'info', step?: string) => {
    record.logs.push({
      timestamp: new Date(clock.now()).toISOString(),
      level,
      message,
      ...(step === undefined ? {} : { step }),
    });
    if (record.logs.length > maxLogs) record.logs.shift();
  };

  /** What the new template goes on from. */
  const begin = async (wanted: BuildStart, folder: string): Promise<Recipe> => {
    const base = baseOf(wanted);
    const bare = { state: firstState, startCmd: null, readyCmd: null };
    if (base.kind === 'debian') {
      return { ...bare, definition: { image: { debian: 'bookworm', packages: basePackages }, run: [] } };
    }
    const { name, reference } = parseTemplateName(base.template);
    const { digest, definition } = registry.resolve(name, reference);
    const recipe = await recipes.find(digest);
    if (recipe !== undefined) {
      await recipes.copyFiles(digest, folder);
      return recipe;
    }
    const { copy, start, image, run, env } = definition;
    if (copy.length > 0 || start !== undefined) {
      const message = `template ${name} has files or a service of its own folder; only templates without, or built through this API, can be built upon`;
      throw new GatewayError('not_supported_yet', message, { field: 'fromTemplate' });
    }
    return {
      ...bare,
      state: { ...firstState, env },
      definition: { image, run, resources: definition.resources },
    };
  };

  /** Puts the steps into the folder. @returns the definition to publish, and what others go on from */
  const compose = async (record: BuildRecord, wanted: BuildStart, folder: string) => {
    const from = await begin(wanted, folder);
    const own = record.buildID.slice(0, 8);
    const guest = `/.build/${own}`;
    await mkdir(join(folder, own));
    let { state } = from;
    const run = [...((from.definition.run as string[] | undefined) ?? [])];
    const copy = [...((from.definition.copy as object[] | undefined) ?? []), { from: own, to: guest }];
    const firstRun = run.length;
    for (const [at, step] of wanted.steps.entries()) {
      const scripted = scriptStep(step, state, at, guest);
      ({ state } = scripted);
      if (scripted.files !== null) await uploads.copyTo(scripted.files, join(folder, own, `${at}.tar`));
      await writeFile(join(folder, own, `${at}.sh`), `set -e\n${scripted.script}\n`);
      run.push(`bash ${guest}/${at}.sh`);
    }
    const startCmd = wanted.startCmd ?? from.startCmd;
    const readyCmd = wanted.readyCmd ?? from.readyCmd;
    await writeFile(join(folder, own, 'start.sh'), `${startScript(state, startCmd, readyCmd)}\n`);
    const { cpuCount, memoryMB, minFreeDiskMb } = record.request;
    const sizes = (from.definition.resources ?? {}) as Record<string, number>;
    const definition = {
      ...from.definition,
      name: record.template,
      copy,
      run,
      resources: {
        vcpus: cpuCount ?? sizes.vcpus ?? 1,
        memoryMiB: memoryMB ?? sizes.memoryMiB ?? 512,
        diskMiB: Math.max(4096, minFreeDiskMb ?? 0, sizes.diskMiB ?? 0),
      },
      pool: { ready: 1, blank: 1, max: 64 },
      // As long as clients wait for a sandbox.
      admission: { queue: { depth: 256, timeoutMs: 60_000 } },
      reuse: 'never',
    };
    const env = {
      ...state.env,
      ...(state.user === firstState.user ? {} : { E2B_DEFAULT_USER: state.user }),
      ...(state.workdir === null ? {} : { E2B_DEFAULT_WORKDIR: state.workdir }),
    };
    return {
      firstRun,
      published: parseDefinition({ ...definition, env, run: [...run, `bash ${guest}/start.sh`] }),
      recipe: { definition, state, startCmd, readyCmd } satisfies Recipe,
    };
  };

  const work = async (record: BuildRecord, wanted: BuildStart): Promise<void> => {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const folder = await mkdtemp(join(directory, 'build-'));
    let step: string | undefined;
    try {
      const { firstRun, published, recipe } = await compose(record, wanted, folder);
      const archive = await packTemplate(folder, published);
      for await (const event of publisher.publish(record.template, archive, { signal: stop.signal })) {
        if (event.type === 'task') {
          const at = /^run\.(\d+)$/.exec(event.id)?.[1];
          const number = at === undefined ? undefined : Number(at) - firstRun;
          const mine = number !== undefined && number >= 0 ? wanted.steps[number] : undefined;
          if (event.state === 'started') {
            step = mine === undefined ? (number === undefined ? 'base' : 'finalize') : String(number! + 1);
            const title =
              mine === undefined ? event.title : `${mine.type} ${mine.args.join(' ')}`.trim().slice(0, 500);
            say(record, title, 'info', step);
          }
        } else if (event.type === 'output') {
          for (const line of event.text.split('\n')) if (line !== '') say(record, line, 'info', step);
        } else if (event.type === 'result') {
          await recipes.keep(event.digest, recipe, folder);
          deps.tag(record.template, event.version, record.tags);
          record.version = event.version;
          say(record, `Build finished: ${record.template} ${event.version}`);
          record.status = 'ready';
        }
      }
    } catch (thrown) {
      const error = toGatewayError(thrown);
      const { detail } = toProblem(error);
      say(record, detail, 'error', step);
      record.reason = { message: detail, ...(step === undefined ? {} : { step }) };
      record.status = 'error';
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  };

  return {
    uploads,
    request(request) {
      const { name: template, reference } = parseTemplateName(request.name ?? request.alias ?? '');
      if (!isTemplateName(template)) {
        throw new GatewayError('invalid_request', 'a template is named by 1 to 63 of a-z, 0-9 and -', {
          field: 'name',
        });
      }
      if (running.size >= maxRecords) throw new GatewayError('queue_full', 'too many builds are under way');
      const tags = [...new Set([...(request.tags ?? []), ...(reference === undefined ? [] : [reference])])];
      const record: BuildRecord = {
        buildID: randomUUID(),
        template,
        tags,
        request,
        status: 'waiting',
        logs: [],
      };
      records.set(record.buildID, record);
      for (const [id, { status }] of records) {
        if (records.size <= maxRecords) break;
        if (status !== 'building') records.delete(id);
      }
      return record;
    },
    find(template, buildID) {
      const found = records.get(buildID);
      if (found !== undefined && found.template === parseTemplateName(template).name) return found;
      throw new GatewayError('version_not_found', `there is no build ${buildID.slice(0, 80)} of ${template}`);
    },
    async start(record, wanted) {
      if (record.status !== 'waiting') throw new GatewayError('conflict', 'this build has begun already');
      const base = baseOf(wanted);
      if (base.kind === 'template') {
        const { name, reference } = parseTemplateName(base.template);
        registry.resolve(name, reference);
      }
      let state = firstState;
      for (const [at, step] of wanted.steps.entries()) {
        const scripted = scriptStep(step, state, at, '/');
        ({ state } = scripted);
        if (scripted.files !== null && !(await uploads.has(scripted.files))) {
          throw new GatewayError('invalid_request', `step ${at + 1}: its files were not uploaded`, {
            field: `steps.${at}`,
          });
        }
      }
      record.status = 'building';
      say(record, `Building ${record.template}`);
      const job = work(record, wanted).finally(() => running.delete(job));
      running.add(job);
    },
    async close() {
      stop.abort(new GatewayError('draining', 'the gateway is stopping'));
      await Promise.allSettled(running);
    },
  };
}
