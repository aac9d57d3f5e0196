import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { GatewayError } from '../../sdk/index.ts';
import { type RunCommand, runCommand, toImageError } from './command.ts';
import { type AptSetting, readAptProxies } from './debian.ts';
import { createImageStore, type StoredImage } from './image-store.ts';
import { buildInitrd, initrdFileName } from './initrd.ts';
import { buildKernel, kernelFileName } from './kernel.ts';
import { readMountPoints } from './mounts.ts';
import { normaliseRecipe, type RootRecipe, recipeKey } from './recipe.ts';
import { buildRoot, rootFileName, rootTask } from './root.ts';
import { ensureSeed, type Seed } from './seed.ts';
import { createSemaphore } from './semaphore.ts';
import { createSingleFlight, type FlightOptions, type OnProgress } from './single-flight.ts';

/** A root file system of a template, read-only and shared by all its machines. */
export interface RootImage {
  /** Absolute path of the EROFS file. */
  readonly rootPath: string;
  /** 64 hex digits over the content. */
  readonly digest: string;
}

/** What a machine boots before it has a root. */
export interface KernelImage {
  readonly vmlinuzPath: string;
  readonly initrdPath: string;
  /** Such as `6.1.0-57-cloud-amd64`. */
  readonly kernelVersion: string;
  /** 64 hex digits over kernel, modules and agent. */
  readonly digest: string;
}

export interface ImageBuilderDeps {
  /** Default: real programs. */
  readonly run?: RunCommand;
  /** Epoch milliseconds. */
  readonly now?: () => number;
}

export interface ImageBuilderOptions {
  /** The data directory; images go to `images/` in it, what can be thrown away to `cache/`. */
  readonly dataPath: string;
  /** The static agent binary; becomes `/init`. */
  readonly agentPath: string;
  /** Debian release of the kernel. Default `bookworm`. */
  readonly kernelSuite?: string;
  /** Base address of a Debian mirror. Default: the public archive with its security updates. */
  readonly mirror?: string;
  /** Default 20 minutes for one image. */
  readonly buildTimeoutMs?: number;
}

/**
 * Makes what machines boot, once per content; callers who want the same at the same time share the work.
 * Both throw `build_failed` with the last lines of the failed program, `disk_full`, `host_not_ready` (a program is
 * missing, or we are not root) or `cancelled`; nothing half-made is left in any case.
 */
export interface ImageBuilder {
  ensureKernel(options: FlightOptions): Promise<KernelImage>;
  /** Throws `invalid_definition` for names that are not Debian's. */
  ensureRoot(recipe: RootRecipe, options: FlightOptions): Promise<RootImage>;
}

/** Two at once keep two cores busy; more would only add memory and disk at the same time. */
const concurrentBuilds = 2;
const defaultBuildTimeoutMs = 20 * 60_000;
const seedMaxAgeMs = 24 * 3_600_000;

/** The builder over a data directory. Several processes may share it. */
export function createImageBuilder(deps: ImageBuilderDeps, options: ImageBuilderOptions): ImageBuilder {
  const run = deps.run ?? runCommand;
  const now = deps.now ?? Date.now;
  const dataPath = resolve(options.dataPath);
  const cachePath = join(dataPath, 'cache');
  const archivesPath = join(cachePath, 'archives');
  const store = createImageStore(join(dataPath, 'images'));
  const kernelSuite = options.kernelSuite ?? 'bookworm';
  const seeds = createSingleFlight<Seed>();
  const images = createSingleFlight<StoredImage>();
  const slots = createSemaphore(concurrentBuilds);
  let proxies: Promise<AptSetting[]> | undefined;
  let isCleared = false;

  async function debian() {
    // Not the caller's signal: the answer is shared. A host whose apt cannot be asked has no proxy to tell of.
    proxies ??= readAptProxies(run, AbortSignal.timeout(10_000)).catch(() => []);
    const mountPoints = await readMountPoints();
    const isChroot = mountPoints.length > 0 && !mountPoints.includes('/');
    return { mirror: options.mirror ?? null, aptProxies: await proxies, isChroot };
  }

  async function clearOnce(): Promise<void> {
    if (isCleared) return;
    isCleared = true;
    await store.clearAbandoned();
  }

  /** Everything slow goes through here: shared by callers, bounded in number and time, errors made ours. */
  async function build(
    key: string,
    doing: string,
    flight: FlightOptions,
    work: (control: { signal: AbortSignal; onProgress: OnProgress }) => Promise<StoredImage>,
  ): Promise<StoredImage> {
    try {
      return await images.run(key, flight, async ({ signal: left, onProgress }) => {
        const found = await store.find(key);
        if (found !== null) return found;
        if (process.getuid?.() !== 0) {
          throw new GatewayError('host_not_ready', `${doing} has to be built by root`, {
            component: 'templates',
          });
        }
        await clearOnce();
        const timeout = AbortSignal.timeout(options.buildTimeoutMs ?? defaultBuildTimeoutMs);
        return await work({ signal: AbortSignal.any([left, timeout]), onProgress });
      });
    } catch (error) {
      throw toImageError(error, `building ${doing}`);
    }
  }

  const seedOf = (suite: string, control: { signal: AbortSignal; onProgress: OnProgress }): Promise<Seed> =>
    seeds.run(suite, control, async (inner) =>
      ensureSeed(
        suite,
        { run, now },
        { cachePath, archivesPath, debian: await debian(), maxAgeMs: seedMaxAgeMs },
        inner,
      ),
    );

  return {
    async ensureKernel(flight) {
      const agent = await readFile(options.agentPath).catch((error: unknown) => {
        throw new GatewayError('host_not_ready', 'the agent is not built; run `make -C templates/agent`', {
          component: 'templates',
          cause: error,
        });
      });
      const kernelKey = recipeKey('kernel', { suite: kernelSuite });
      const kernel = await build(kernelKey, 'the kernel', flight, async (control) => {
        const seed = await seedOf(kernelSuite, control);
        const settings = { debian: await debian() };
        return store.build(kernelKey, 'kernel', (path) =>
          buildKernel(seed, path, { run }, settings, control),
        );
      });
      const agentDigest = createHash('sha256').update(agent).digest('hex');
      const initrdKey = recipeKey('initrd', { kernel: kernel.manifest.digest, agent: agentDigest });
      const initrd = await build(initrdKey, 'the initramfs', flight, () =>
        store.build(initrdKey, 'initrd', (path) => buildInitrd(kernel, agent, path)),
      );
      return {
        vmlinuzPath: join(kernel.path, kernelFileName),
        initrdPath: join(initrd.path, initrdFileName),
        kernelVersion: String(kernel.manifest.facts.kernelVersion),
        digest: createHash('sha256')
          .update(`${kernel.manifest.digest}${initrd.manifest.digest}`)
          .digest('hex'),
      };
    },
    async ensureRoot(wanted, flight) {
      const recipe = normaliseRecipe(wanted);
      const key = recipeKey('root', recipe);
      const image = await build(key, rootTask(recipe), flight, async (control) => {
        const seed = await seedOf(recipe.suite, control);
        using _slot = await slots.acquire({ signal: control.signal });
        const settings = { archivesPath, debian: await debian() };
        // Awaited here, or the slot would be given back before the build has begun.
        return await store.build(key, 'root', (path) =>
          buildRoot(recipe, seed, path, { run }, settings, control),
        );
      });
      return { rootPath: join(image.path, rootFileName), digest: image.manifest.digest };
    },
  };
}
