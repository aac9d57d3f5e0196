import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, describe, test } from 'node:test';
import { randomName } from '../../../sdk/index.ts';
import { adoptedHandle, killIfAlive } from './process-handle.ts';
import { isAlive, isMachineProcess, namedProcesses, processStartTime } from './process-table.ts';

describe('the process table', () => {
  let child: ChildProcess | undefined;
  afterEach(async () => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  });
  /** A process with `-name ID` on its command line, and a name of its own that is hard to parse. */
  async function start(name: string) {
    const script = 'process.title = "odd) R (name 1 2"; setInterval(() => {}, 1e6); console.log("up")';
    child = spawn(process.execPath, ['-e', script, '--', '-name', name], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    await once(child.stdout!, 'data');
    const pid = child.pid!;
    return { pid, startTime: (await processStartTime(pid))! };
  }

  test('knows a live process by its start time, and not another of the same pid', async () => {
    const identity = await start(randomName(20));
    assert.ok(await isAlive(identity));
    assert.equal(await isAlive({ ...identity, startTime: identity.startTime + 1 }), false);
    assert.equal(await processStartTime(2 ** 22 + 1), null);
  });

  test('takes a zombie for dead', async () => {
    const parent = spawn('/bin/sh', ['-c', '/bin/true & echo $!; exec sleep 60'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    child = parent;
    const [line] = await once(parent.stdout, 'data');
    const zombie = Number(String(line));
    while ((await processStartTime(zombie)) !== null) await new Promise(setImmediate);
    assert.equal(process.kill(zombie, 0), true);
  });

  test('finds nobody for a machine that has no process', async () => {
    assert.equal((await namedProcesses()).get(randomName(20)), undefined);
    assert.equal(
      await isMachineProcess({ pid: process.pid, startTime: (await processStartTime(process.pid))! }, 'x'),
      false,
    );
  });

  test('an adopted process is noticed to end, and killing it again does nothing', async () => {
    const identity = await start(randomName(20));
    const handle = adoptedHandle(identity);
    handle.kill();
    handle.check();
    assert.deepEqual(await handle.ended, { exitCode: null, signalName: null });
    handle.kill();
    assert.equal(killIfAlive({ pid: 2 ** 22 + 1, startTime: 1 }), false);
  });
});
