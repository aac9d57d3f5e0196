import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type GatewayError, isGatewayError } from '../../sdk/index.ts';
import { parseDefinition, parseDefinitionText } from './parse.ts';
import { templateJsonSchema } from './schema.ts';

function refusal(input: unknown): GatewayError {
  try {
    parseDefinition(input);
  } catch (error) {
    assert.ok(isGatewayError(error));
    return error;
  }
  assert.fail('the definition was accepted');
}

const minimal = { name: 'hello' };
const start = { command: ['serve'], port: 8000 };

test('a definition with only a name gets every default', () => {
  const definition = parseDefinition(minimal);
  assert.deepEqual(definition.image, { debian: 'bookworm', packages: [] });
  assert.deepEqual(definition.pool, { ready: 2, blank: 1, max: 8 });
  assert.deepEqual(definition.ttl, { idleMs: 60_000, lifetimeMs: 3_600_000, invocationMs: 30_000 });
  assert.equal(definition.limits.bodyBytes, 32 * 1024 * 1024);
  assert.equal(definition.reuse, 'always');
  assert.equal(definition.start, undefined);
});

test('parsing is idempotent: a parsed definition parses to itself', () => {
  const definition = parseDefinition({ ...minimal, start, warmup: [{ path: '/' }] });
  assert.deepEqual(parseDefinition(JSON.parse(JSON.stringify(definition))), definition);
});

test('the example of the design is accepted but for what is not supported yet', () => {
  const example = {
    name: 'hello-python',
    image: { debian: 'bookworm', packages: ['python3'] },
    copy: [{ from: 'app', to: '/app' }],
    run: ['python3 -m compileall -q /app'],
    env: { GREETING: 'hello' },
    start: {
      command: ['python3', '/app/main.py'],
      user: 'user',
      port: 8000,
      ready: { http: '/healthz', timeoutMs: 120_000 },
    },
    warmup: [{ path: '/', count: 20 }],
    hooks: { beforeSnapshot: null, afterRestore: { http: '/_snapgate/restored' } },
    resources: { vcpus: 1, memoryMiB: 256, diskMiB: 1024 },
    pool: { ready: 2, blank: 1, max: 8 },
    reuse: 'always',
    admission: { concurrency: 1, queue: { depth: 64, timeoutMs: 5000 }, ratePerSecond: null },
    ttl: { idleMs: 60_000, lifetimeMs: 3_600_000, invocationMs: 30_000 },
    public: false,
  };
  assert.equal(parseDefinition(example).hooks.afterRestore?.method, 'POST');
  const network = { pypi: true, 'github.com:443': true, '10.1.0.0/16:5432': true };
  assert.deepEqual(parseDefinition({ ...example, network }).network, network);
});

for (const [field, extra] of [
  ['image.oci', { image: { oci: 'docker.io/library/alpine:3' } }],
  ['secrets', { secrets: ['API_TOKEN'] }],
] as const) {
  test(`${field} is refused as not supported yet instead of being ignored`, () => {
    const error = refusal({ ...minimal, ...extra });
    assert.equal(error.code, 'not_supported_yet');
    assert.equal(error.details.field, field);
  });
}

for (const [field, found, input] of [
  ['(root)', 'expected object, found null', null],
  ['name', 'expected string, found nothing', {}],
  ['name', 'found "Hello"', { name: 'Hello' }],
  ['colour', 'is not a field', { ...minimal, colour: 'red' }],
  ['start.prot', 'is not a field', { ...minimal, start: { ...start, prot: 1 } }],
  ['start.port', 'expected number, found "80"', { ...minimal, start: { ...start, port: '80' } }],
  ['start.command', 'expected at least 1 items, found []', { ...minimal, start: { ...start, command: [] } }],
  ['start.command.1', 'NUL', { ...minimal, start: { ...start, command: ['a', 'b\0c'] } }],
  ['start.cwd', 'must not contain ..', { ...minimal, start: { ...start, cwd: '/app/../etc' } }],
  ['copy.0.from', 'inside the template folder', { ...minimal, copy: [{ from: '../secret', to: '/a' }] }],
  ['copy.0.from', 'inside the template folder', { ...minimal, copy: [{ from: '/etc/passwd', to: '/a' }] }],
  ['copy.0.to', 'absolute path', { ...minimal, copy: [{ from: 'a', to: 'app' }] }],
  ['copy.0.to', 'must not be under', { ...minimal, copy: [{ from: 'a', to: '/proc/x' }] }],
  ['env.1A', 'bad key', { ...minimal, env: { '1A': 'x' } }],
  ['env', 'at most 32768 characters in all', { ...minimal, env: big() }],
  ['image.packages.0', 'Debian package name', { ...minimal, image: { packages: ['python3; rm'] } }],
  ['image.debian', 'expected "bookworm", found "sid"', { ...minimal, image: { debian: 'sid' } }],
  [
    'pool.ready',
    'must not be above pool.max (2), found 3',
    { ...minimal, pool: { ready: 3, blank: 0, max: 2 } },
  ],
  [
    'pool.windows.0.ready',
    'must not be above pool.max (2)',
    { ...minimal, pool: { ready: 1, blank: 1, max: 2, windows: [{ from: '08:00', to: '18:00', ready: 3 }] } },
  ],
  [
    'pool.windows.0.from',
    'HH:MM',
    { ...minimal, pool: { windows: [{ from: '8:00', to: '18:00', ready: 3 }] } },
  ],
  [
    'pool.blank',
    'must not be above pool.max (2), found 9',
    { ...minimal, pool: { ready: 1, blank: 9, max: 2 } },
  ],
  ['resources.memoryMiB', 'expected at least 64, found 1', { ...minimal, resources: { memoryMiB: 1 } }],
  ['resources.vcpus', 'expected int, found 1.5', { ...minimal, resources: { vcpus: 1.5 } }],
  ['warmup', 'needs `start`', { ...minimal, warmup: [{ path: '/' }] }],
  ['warmup.0.path', 'must start with /', { ...minimal, start, warmup: [{ path: '/a b' }] }],
  ['hooks.afterRestore', 'needs `start`', { ...minimal, hooks: { afterRestore: { http: '/' } } }],
  ['reuse', 'expected "never" or "session" or "always"', { ...minimal, reuse: 'sometimes' }],
  ['network.bad rule', 'bad key', { ...minimal, network: { 'bad rule': true } }],
  ['network.pypi', 'expected boolean, found "yes"', { ...minimal, network: { pypi: 'yes' } }],
] as const) {
  test(`${field} is named with what was expected and found: ${found}`, () => {
    const error = refusal(input);
    assert.equal(error.code, 'invalid_definition');
    assert.equal(error.details.field, field);
    assert.ok(error.message.startsWith(`${field}: `), error.message);
    assert.ok(error.message.includes(found), error.message);
  });
}

function big(): Record<string, string> {
  return Object.fromEntries(['A', 'B', 'C'].map((name) => [name, 'x'.repeat(16_000)]));
}

test('all problems are in the message, at most twenty of them', () => {
  const error = refusal({ name: 'A', reuse: 'x', public: 'no' });
  assert.equal(error.message.split('\n').length, 3);
  const many = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`field${index}`, 1]));
  const lines = refusal({ ...minimal, ...many }).message.split('\n');
  assert.equal(lines.length, 21);
  assert.equal(lines.at(-1), 'and 30 more');
});

test('whatever is thrown at it, the parser answers with a definition or one of its two codes', () => {
  const key = fc.oneof(
    fc.constantFrom(...Object.keys(parseDefinition(minimal)), 'start', 'network'),
    fc.string(),
  );
  const input = fc.oneof(fc.anything(), fc.dictionary(key, fc.jsonValue()));
  fc.assert(
    fc.property(input, (value) => {
      try {
        parseDefinition(value);
      } catch (error) {
        assert.ok(isGatewayError(error, 'invalid_definition', 'not_supported_yet'), String(error));
        assert.ok(error.message.length < 10_000);
      }
    }),
  );
});

test('template.json is plain JSON: a byte order mark is fine, a comment is refused with a hint', () => {
  assert.equal(parseDefinitionText('\ufeff{"name": "hello"}').name, 'hello');
  const refused = (text: string) => {
    try {
      parseDefinitionText(text);
    } catch (error) {
      assert.ok(isGatewayError(error, 'invalid_definition'));
      return error.message;
    }
    assert.fail('it was accepted');
  };
  assert.match(refused('{"name": "hello", // my function\n}'), /comments are not accepted/);
  assert.match(refused('{"name": "hello"'), /template.json is not JSON: .*$/);
  assert.doesNotMatch(refused('{"name": "http://x"'), /comments/);
});

test('the JSON Schema describes what an author writes: only the name is required, and nothing else may be added', () => {
  const schema = templateJsonSchema();
  assert.deepEqual(schema.required, ['name']);
  assert.equal(schema.additionalProperties, false);
  const properties = schema.properties as Record<string, { description?: string }>;
  assert.deepEqual(
    Object.keys(properties).sort(),
    [...new Set([...Object.keys(parseDefinition(minimal)), 'start', 'network', 'maxInvocations'])].sort(),
  );
});
