import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { isGatewayError } from '../../sdk/index.ts';
import { buildVersion } from './pipeline.ts';
import { collect, resultOf, Workshop } from './testing/workshop.ts';

const options = { signal: new AbortController().signal };

/** A workshop whose versions directory is a filesystem of 512 KiB; undefined where this process may not mount. */
async function smallWorkshop(stack: AsyncDisposableStack): Promise<Workshop | undefined> {
  const workshop = stack.use(await Workshop.open());
  const { versionsDirectory } = workshop;
  const { status } = spawnSync('mount', [
    '-t',
    'tmpfs',
    '-o',
    'size=512k',
    'snapgate-test',
    versionsDirectory,
  ]);
  if (status !== 0) return undefined;
  stack.defer(() => assert.equal(spawnSync('umount', [versionsDirectory]).status, 0));
  return workshop;
}

for (const [when, files, ballastBytes] of [
  ['while the upload is kept', { 'app/data': 600_000 }, 0],
  ['while the archive is unpacked', { 'app/data': 300_000 }, 0],
  ['while the machine is captured', { 'app/data': 1000 }, 1000],
] as const) {
  test(`a real disk that runs full ${when} is disk_full, and all space is given back`, async (context) => {
    await using stack = new AsyncDisposableStack();
    const workshop = await smallWorkshop(stack);
    if (workshop === undefined) return context.skip('this process may not mount');
    const { versionsDirectory } = workshop;
    for (const [path, bytes] of Object.entries(files)) {
      await writeFile(join(workshop.folder, path), randomBytes(bytes));
    }
    // The ballast is what another tenant of the disk writes at the worst moment.
    const fill = async () => {
      if (ballastBytes === 0) return;
      const ballast = join(versionsDirectory, '.building-ballast');
      await mkdir(ballast);
      await writeFile(join(ballast, 'x'), randomBytes(2 ** 20)).catch(() => undefined);
    };
    const deps = workshop.deps(
      workshop.host({ onPoint: (point) => (point === 'capture' ? fill() : undefined) }),
    );
    await assert.rejects(collect(buildVersion(deps, await workshop.pack(), options)), (error) =>
      isGatewayError(error, 'disk_full'),
    );
    assert.deepEqual(
      (await readdir(versionsDirectory)).filter((name) => name !== '.building-ballast'),
      [],
    );
    assert.equal(deps.host.alive.size, 0);
  });
}

test('a small template fits on the small disk, so the disk is what the others fail at', async (context) => {
  await using stack = new AsyncDisposableStack();
  const workshop = await smallWorkshop(stack);
  if (workshop === undefined) return context.skip('this process may not mount');
  await resultOf(buildVersion(workshop.deps(workshop.host()), await workshop.pack(), options));
});
