import { randomBytes } from 'node:crypto';
import { open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { type Clock, GatewayError, type NodeId, newMachineId, type VersionDigest } from '../../sdk/index.ts';
import {
  type BootedTemplate,
  type GuestImage,
  type SnapshotHost,
  snapshotFileNames,
  type TemplateDefinition,
} from '../../templates/index.ts';
import type { ConnectOptions, SandboxChannel } from '../guest/index.ts';
import type { Machine } from '../machine/machine.ts';
import type { RestorableVersion } from '../machine/restorable-version.ts';
import { createMachineSource } from '../machine/source.ts';
import { admitNetwork, versionNetworks } from '../machine/version-network.ts';
import type { MachineNetworks } from '../network/index.ts';
import type { MachineShape, RunningVmm, Vmm } from '../vmm/port.ts';
import { ChannelBuildMachine } from './build-machine.ts';

/** What the edge keeps beside a snapshot and nobody else needs: how to reach the agent inside it. Mode 0600. */
const channelFileName = 'channel.json';
const channelFileSchema = z.strictObject({ token: z.string().regex(/^[0-9a-f]{64}$/) });

export interface SnapshotHostDeps {
  readonly vmm: Vmm;
  readonly node: NodeId;
  readonly clock: Clock;
  readonly connectGuest: (options: ConnectOptions) => Promise<SandboxChannel>;
  readonly image: SnapshotHost['image'];
  readonly checksums: SnapshotHost['checksums'];
  readonly networks: MachineNetworks;
}

const bootTimeoutMs = 120_000;
/**
 * How far a template's wall clock lags while it is built. OpenSSL keeps its generators in process memory, where no clone's kernel
 * can reach them, and reseeds them from the kernel when an hour has passed by the wall clock. In a clone, whose clock is stepped to
 * the present, more than that has passed; otherwise all clones would draw the same "random" bytes (measured with Node 18).
 */
const buildClockLagSeconds = 2 * 3600;

const shapeOf = (definition: TemplateDefinition, image: Pick<GuestImage, 'rootPath'>): MachineShape => ({
  ...definition.resources,
  rootPath: image.rootPath,
  ...(definition.network === undefined ? {} : { hasNetworkCard: true }),
});

const filesIn = (directory: string) => ({
  memoryPath: join(directory, snapshotFileNames.memory),
  statePath: join(directory, snapshotFileNames.state),
  diskPath: join(directory, snapshotFileNames.disk),
});

/** A manifest may only name files that survive a power cut. */
async function makeDurable(path: string): Promise<void> {
  await using file = await open(path, 'r+');
  await file.chmod(0o600);
  await file.datasync();
}

/** What a machine source needs to know of a snapshot in `directory`. Throws `snapshot_corrupt` when its channel file is damaged. */
export async function readRestorable(
  digest: VersionDigest,
  definition: TemplateDefinition,
  image: Pick<GuestImage, 'rootPath'>,
  directory: string,
): Promise<RestorableVersion> {
  try {
    const { token } = channelFileSchema.parse(
      JSON.parse(await readFile(join(directory, channelFileName), 'utf8')),
    );
    return {
      digest,
      definition,
      shape: shapeOf(definition, image),
      snapshot: filesIn(directory),
      channelToken: token,
    };
  } catch (cause) {
    throw new GatewayError('snapshot_corrupt', `${channelFileName} of ${definition.name} can't be read`, {
      component: 'edge',
      cause,
    });
  }
}

class BootedMachine extends ChannelBuildMachine implements BootedTemplate {
  readonly #running: RunningVmm;
  readonly #directory: string;

  constructor(vmm: RunningVmm, channel: SandboxChannel, directory: string) {
    super(vmm, channel);
    this.#running = vmm;
    this.#directory = directory;
  }

  async capture({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const files = filesIn(this.#directory);
    await this.closeConnections(signal);
    await this.channel.sync({ signal });
    const paused = await this.#running.pause();
    await (await paused.saveState()).moveTo(files.statePath);
    // From here on the memory file is the base image: this machine must never run again.
    await paused.quit();
    await this[Symbol.asyncDispose]();
    await Promise.all(Object.values(files).map(makeDurable));
  }
}

/** The edge's side of publishing: boots, captures and restores machines for the pipeline in `templates/publish`. */
export function createSnapshotHost(deps: SnapshotHostDeps): SnapshotHost {
  const { vmm } = deps;
  return {
    fingerprint: { ...vmm.fingerprint },
    accelerator: vmm.verdict.accelerator,
    image(definition, options) {
      admitNetwork(deps.networks, definition, options.onOutput);
      return deps.image(definition, options);
    },
    checksums: deps.checksums,

    async boot(definition, image, directory, { signal }) {
      const token = randomBytes(32).toString('hex');
      await writeFile(join(directory, channelFileName), JSON.stringify({ token }), { mode: 0o600 });
      const bootSignal = AbortSignal.any([signal, AbortSignal.timeout(bootTimeoutMs)]);
      const id = newMachineId(deps.node);
      const files = filesIn(directory);
      const running = await vmm.boot({
        id,
        shape: shapeOf(definition, image),
        kernelPath: image.kernelPath,
        initrdPath: image.initrdPath,
        // Not by a `resume` of the agent: that would read the kernel's boot id, which is made at its first reading, for all clones.
        kernelArgs: [`snapgate.token=${token}`, `snapgate.clock-lag=${buildClockLagSeconds}`],
        memoryPath: files.memoryPath,
        diskPath: files.diskPath,
        signal: bootSignal,
      });
      try {
        const lost = running.exited.then((exit): never => {
          throw new Error(`the virtual machine ended while booting (${exit.signalName ?? exit.exitCode})`);
        });
        lost.catch(() => {});
        const channel = await Promise.race([
          deps.connectGuest({ socketPath: running.agentSocketPath, token, signal: bootSignal }),
          lost,
        ]);
        await channel.ping({ signal: bootSignal });
        return new BootedMachine(running, channel, directory);
      } catch (cause) {
        const output = await running.consoleTail().catch(() => '');
        await running.dispose();
        signal.throwIfAborted();
        throw new GatewayError(
          'build_failed',
          `${definition.name} did not boot within ${bootTimeoutMs / 1000} s`,
          { component: 'edge', cause, output },
        );
      }
    },

    async restore(definition, image, directory, { signal }) {
      const version = await readRestorable(
        `sha256:${'0'.repeat(64)}` as VersionDigest,
        definition,
        image,
        directory,
      );
      const source = createMachineSource({ ...deps, enterNetwork: versionNetworks(deps.networks) }, version);
      const blank = await source.spawnBlank({ signal });
      const startedAt = deps.clock.monotonic();
      const machine = (await source.restore(blank, { signal, awake: true })) as Machine;
      const restoreMs = deps.clock.monotonic() - startedAt;
      return { machine: new ChannelBuildMachine(machine.vmm, machine.channel), restoreMs };
    },
  };
}
