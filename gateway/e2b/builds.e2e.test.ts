/** Templates built by E2B's SDK, unchanged, and sandboxes of them. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import { Sandbox, Template } from 'e2b';
import { type GuestNode, startGuestNode } from './testing/guest-node.ts';

let node: GuestNode;
let folder: string;
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sg-context-'));
  await mkdir(join(folder, 'app/deep'), { recursive: true });
  await writeFile(join(folder, 'app/deep/data.txt'), 'data');
  await writeFile(join(folder, 'app/one.py'), 'print("one")\n');
  node = await startGuestNode();
  await node.publish('base');
});
after(async () => {
  await node?.[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

it('a template is built step by step, its service started and captured, and others are built upon it', async () => {
  const template = Template({ fileContextPath: folder })
    .fromTemplate('base')
    .setEnvs({ COLOUR: "it's green" })
    .setWorkdir('/srv/site')
    .copy('app', 'copied')
    .copy('app/*.py', 'scripts/', { mode: 0o700 })
    .runCmd('python3 scripts/one.py > said.txt && echo "$COLOUR" >> said.txt && id -un >> said.txt')
    .runCmd('touch /root/made-by-root', { user: 'root' })
    .setStartCmd(
      'echo started >> starts.txt; python3 -m http.server 8000',
      'curl -sf localhost:8000/said.txt',
    );
  const said: string[] = [];
  const built = await Template.build(template, 'site:blue', {
    ...node.options,
    onBuildLogs: ({ message }) => void said.push(message),
  });
  assert.equal(built.templateId, 'site');
  assert.ok(
    said.some((line) => line.startsWith('RUN python3 scripts/one.py')),
    said.join('\n'),
  );
  const sandbox = await Sandbox.create('site:blue', node.options);
  try {
    const ran = await sandbox.commands.run(
      'pwd; cat said.txt copied/deep/data.txt starts.txt; stat -c "%a %U" scripts/one.py',
    );
    assert.equal(ran.stdout, "/srv/site\none\nit's green\nuser\ndatastarted\n700 user\n");
    assert.equal((await sandbox.commands.run('ls /root/made-by-root', { user: 'root' })).exitCode, 0);
    assert.equal((await fetch(`https://${sandbox.getHost(8000)}/said.txt`)).status, 200);
  } finally {
    await sandbox.kill();
  }
  const tags = await Template.getTags('site', node.options);
  assert.deepEqual(tags.map(({ tag }) => tag).sort(), ['blue', 'default']);
  await Template.assignTags('site:blue', ['green'], node.options);
  assert.equal(await Template.exists('site', node.options), true);
  assert.equal(await Template.exists('nowhere', node.options), false);

  const upon = Template().fromTemplate('site:green').runCmd('echo more >> said.txt');
  await Template.build(upon, 'site-more', node.options);
  const more = await Sandbox.create('site-more', node.options);
  try {
    assert.match((await more.commands.run('cat said.txt; echo $COLOUR')).stdout, /more\nit's green\n$/);
    assert.equal((await fetch(`https://${more.getHost(8000)}/said.txt`)).status, 200);
  } finally {
    await more.kill();
  }
});

it('a step that fails is named, an image that cannot be built upon is too, and neither leaves a template', async () => {
  const failing = Template().fromDebianImage('bookworm').runCmd('echo reason >&2; exit 7');
  await assert.rejects(Template.build(failing, 'failing', node.options), /exit(ed)?.*7|7/);
  const foreign = Template().fromImage('ubuntu:22.04').runCmd('true');
  await assert.rejects(
    Template.build(foreign, 'foreign', node.options),
    /"ubuntu:22.04" can't be built upon yet/,
  );
  for (const name of ['failing', 'foreign']) assert.equal(await Template.exists(name, node.options), false);
});
