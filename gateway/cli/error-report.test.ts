import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ErrorCode, errorCodes, GatewayError } from '../../sdk/index.ts';
import { errorReport, toCliError } from './error-report.ts';

const quiet = { isVerbose: false };

test('every error code has a remediation, and the report of each shows code, message and remediation', () => {
  const codes = Object.keys(errorCodes) as ErrorCode[];
  assert.ok(codes.length > 20);
  for (const code of codes) {
    const { remediation } = errorCodes[code];
    assert.match(remediation, /^\S.{10,}[.]$/s, `${code} says what to do, in a sentence`);
    assert.equal(
      errorReport(new GatewayError(code, 'what happened', { component: 'edge' }), quiet).split('\n')[0],
      `error[${code}]: what happened`,
    );
    assert.ok(
      errorReport(new GatewayError(code, 'x', { component: 'edge' }), quiet).endsWith(`→ ${remediation}\n`),
    );
  }
});

test('a report names the field and the time to wait', () => {
  const error = new GatewayError('queue_full', 'full', { field: 'pool.max', retryAfterSeconds: 3 });
  const lines = errorReport(error, quiet).split('\n');
  assert.deepEqual(lines.slice(1, 3), ['  field: pool.max', '  retry after: 3 s']);
});

test('a failure of the system names its request, by which the log of the gateway tells the rest', () => {
  const details = { extra: { requestId: 'r1\n' } };
  assert.match(errorReport(new GatewayError('internal', 'x', details), quiet), /^ {2}request id: r1\\n$/m);
  const missing = new GatewayError('template_not_found', 'x', details);
  assert.ok(!errorReport(missing, quiet).includes('r1'));
  assert.match(errorReport(missing, { isVerbose: true }), /request id: r1/);
});

test('the cause is shown only with --verbose', () => {
  const error = new GatewayError('vmm_failed', 'the VMM ended', { cause: new Error('spawn EACCES') });
  assert.ok(!errorReport(error, quiet).includes('EACCES'));
  assert.match(errorReport(error, { isVerbose: true }), /cause:\n {2}\| Error: spawn EACCES/);
});

test('a defect points to --verbose, since its message alone rarely helps', () => {
  const error = toCliError(new TypeError('x is undefined'));
  assert.equal(error.code, 'internal');
  assert.match(errorReport(error, quiet), /--verbose/);
});

test('nothing in a report can move the cursor or pose as another line', () => {
  const error = new GatewayError('build_failed', 'bad\x1b[2J', {
    field: 'run.0\n→ do this',
    output: 'line one\r\nerror[internal]: forged\x07\n',
  });
  assert.equal(
    errorReport(error, quiet),
    [
      'error[build_failed]: bad\\e[2J',
      '  field: run.0\\n→ do this',
      '  output:',
      '  | line one',
      '  | error[internal]: forged\\x07',
      `→ ${errorCodes.build_failed.remediation}`,
      '',
    ].join('\n'),
  );
});

test('errors of the system get a code of their own', () => {
  const errno = (code: string) => Object.assign(new Error(code), { code });
  assert.equal(toCliError(errno('ENOSPC')).code, 'disk_full');
  assert.equal(toCliError(errno('ENOENT')).code, 'invalid_request');
  assert.equal(toCliError(errno('EIO')).code, 'internal');
  assert.equal(toCliError('text').code, 'internal');
});
