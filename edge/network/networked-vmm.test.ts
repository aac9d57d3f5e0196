import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { type MachineId, newMachineId, newNodeId } from '../../sdk/index.ts';
import type { BlankOptions, BlankVmm, Vmm, VmmExit } from '../vmm/port.ts';
import { slotOfLeftover, withNetworkCards } from './networked-vmm.ts';

const node = newNodeId();
const shape = { vcpus: 1, memoryMiB: 128, diskMiB: 64, rootPath: '/root' };

/** A VMM whose machines are directories, and networks whose slots are numbers. */
async function scene(failing: { spawn?: boolean; record?: boolean } = {}) {
  const directory = await mkdtemp(join(tmpdir(), 'sg-'));
  const told: string[] = [];
  const exits = new Map<MachineId, (exit: VmmExit) => void>();
  const machineOf = (id: MachineId): BlankVmm => {
    const { promise, resolve } = Promise.withResolvers<VmmExit>();
    exits.set(id, resolve);
    return {
      id,
      directory: { path: join(directory, failing.record ? 'missing' : id) },
      exited: promise,
      dispose: async () => {
        told.push('dispose');
        resolve({} as VmmExit);
      },
    } as BlankVmm;
  };
  const vmm = {
    async spawnBlank({ id, tap }: BlankOptions) {
      told.push(`spawn ${tap?.netns ?? 'without'}`);
      if (failing.spawn) throw new Error('it would not start');
      await mkdir(join(directory, id));
      return machineOf(id);
    },
    adopt: async ({ id }: { id: MachineId }) => machineOf(id),
  } as unknown as Vmm;
  const networks = {
    attach: async () => {
      told.push('attach');
      return { slot: 7, netns: 'slot7', device: 'tap0' };
    },
    takeOver: (_: MachineId, slot: number) => void told.push(`take over ${slot}`),
    detach: async () => void told.push('detach'),
  };
  const onError = (error: unknown, what: string) => assert.fail(`${what}: ${error}`);
  return {
    told,
    directory,
    exits,
    networked: withNetworkCards({ vmm, networks, onError }),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true }),
  };
}

const options = (hasNetworkCard: boolean): BlankOptions => ({
  id: newMachineId(node),
  shape: { ...shape, hasNetworkCard },
  snapshot: { memoryPath: '', statePath: '', diskPath: '' },
  signal: new AbortController().signal,
});

test('a machine with a card gets a slot before it starts, and gives it back when it is no more', async () => {
  await using s = await scene();
  const machine = await s.networked.spawnBlank(options(true));
  assert.deepEqual(s.told, ['attach', 'spawn slot7']);
  const leftover = { id: machine.id, directory: machine.directory, pid: null, note: null };
  assert.equal(await slotOfLeftover(leftover), 7);
  s.exits.get(machine.id)?.({} as VmmExit);
  await new Promise(setImmediate);
  assert.deepEqual(s.told.slice(2), ['detach']);
});

test('a machine without a card is none of its business', async () => {
  await using s = await scene();
  const machine = await s.networked.spawnBlank(options(false));
  assert.deepEqual(s.told, ['spawn without']);
  assert.equal(
    await slotOfLeftover({ id: machine.id, directory: machine.directory, pid: null, note: null }),
    null,
  );
});

test('a start that fails gives the slot back, and one that can not be written down ends the machine', async () => {
  await using first = await scene({ spawn: true });
  await assert.rejects(first.networked.spawnBlank(options(true)), /would not start/);
  assert.deepEqual(first.told, ['attach', 'spawn slot7', 'detach']);
  await using second = await scene({ record: true });
  await assert.rejects(second.networked.spawnBlank(options(true)), /ENOENT/);
  assert.deepEqual(second.told, ['attach', 'spawn slot7', 'dispose', 'detach']);
});

test('an adopted machine keeps the slot that its directory names', async () => {
  await using s = await scene();
  const id = newMachineId(node);
  const path = join(s.directory, id);
  await mkdir(path);
  const leftover = { id, directory: { path }, pid: 1, note: null };
  await s.networked.adopt(leftover);
  assert.deepEqual(s.told, []);
  await writeFile(join(path, 'network.json'), '{"slot": 12}');
  await s.networked.adopt(leftover);
  assert.deepEqual(s.told, ['take over 12']);
  await writeFile(join(path, 'network.json'), '{"slot": -1}');
  assert.equal(await slotOfLeftover(leftover), null);
});
