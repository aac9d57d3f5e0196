import assert from 'node:assert/strict';
import { Writable } from 'node:stream';
import { test } from 'node:test';
import type { DoctorReport } from '../doctor/index.ts';
import { doctorCommand, type ExamineOptions, renderReport } from './doctor.ts';

const broken: DoctorReport = {
  status: 'fail',
  checks: [
    { id: 'node', title: 'Node', status: 'ok', detail: 'v24.21.0' },
    { id: 'cgroups', title: 'Control groups', status: 'warn', detail: 'version 1' },
    { id: 'qemu', title: 'QEMU', status: 'fail', detail: 'not installed', fix: 'apt-get install qemu' },
  ],
};

async function run(report: DoctorReport, words: string[]) {
  const asked: ExamineOptions[] = [];
  let stdout = '';
  let exitCode = 0;
  const command = doctorCommand({
    context: {
      workingDirectory: '/work',
      stdout: new Writable({
        write(chunk, _, done) {
          stdout += String(chunk);
          done();
        },
      }),
      interrupted: new AbortController().signal,
    },
    dataDirectory: '/default',
    setExitCode: (code) => {
      exitCode = code;
    },
    examine: async (options) => {
      asked.push(options);
      return report;
    },
  });
  await command.parseAsync(words, { from: 'user' });
  return { stdout, exitCode, asked: asked[0] };
}

test('each check is one line, with the command that fixes it below', () => {
  assert.equal(
    renderReport(broken),
    [
      '✔ Node            v24.21.0',
      '! Control groups  version 1',
      '✘ QEMU            not installed',
      '                  → apt-get install qemu',
      '',
      '1 thing must be fixed before machines can run here.',
      '',
    ].join('\n'),
  );
});

test('what a program printed about itself cannot steer the terminal', () => {
  const detail = 'version \u001b[2J7\nforged line';
  const report = renderReport({ status: 'ok', checks: [{ id: 'x', title: 'X', status: 'ok', detail }] });
  assert.ok(report.startsWith('✔ X  version \\e[2J7\\nforged line\n'));
});

test('something that must be fixed is exit code 1; what could be better is not', async () => {
  assert.equal((await run(broken, [])).exitCode, 1);
  const fair: DoctorReport = { status: 'warn', checks: broken.checks.slice(0, 2) };
  const { exitCode, stdout } = await run(fair, []);
  assert.equal(exitCode, 0);
  assert.match(stdout, /1 thing could be better\.\n$/);
});

test('--json prints the report as it is, with the same exit code', async () => {
  const { stdout, exitCode } = await run(broken, ['--json']);
  assert.deepEqual(JSON.parse(stdout), broken);
  assert.equal(exitCode, 1);
});

test('the data directory is the default or the one that was named, and a probe is only forced on demand', async () => {
  const plain = await run(broken, []);
  assert.equal(plain.asked?.dataDirectory, '/default');
  assert.equal(plain.asked?.isProbeForced, false);
  const named = await run(broken, ['--data', 'here', '--probe']);
  assert.equal(named.asked?.dataDirectory, '/work/here');
  assert.equal(named.asked?.isProbeForced, true);
});
