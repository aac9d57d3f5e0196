import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { GatewayError, isGatewayError, type TemplateName } from '../../sdk/index.ts';
import { all, bytes, digest, fails, machine, type OpenPair, scripted } from './contract-peers.ts';
import type { BuildEvent } from './port.ts';

/** Builds, logs, declarations and listings. */
export function testControl(open: OpenPair): void {
  test('a build reads its archive, tells its progress and ends with the version', async () => {
    const definition = { name: 'x', nested: { list: [1, 'two'] } };
    const built: BuildEvent = {
      type: 'built',
      template: 'x' as TemplateName,
      definition,
      unchanged: false,
      facts,
    };
    let size = 0;
    const edge = scripted({
      async *build(archive) {
        size = (await text(archive)).length;
        yield { type: 'task', id: 'boot', title: 'Boot', state: 'started' };
        yield { type: 'task', id: 'boot', title: 'Boot', state: 'done', ms: 12.5 };
        yield { type: 'output', id: 'run', text: 'line\n\u2028' };
        yield built;
      },
    });
    await using pair = await open(edge);
    const events = await all(
      pair.client.build(bytes(Buffer.alloc(1_000_000)), { signal: new AbortController().signal }),
    );
    assert.equal(size, 1_000_000);
    assert.deepEqual(
      events.map((event) => event.type),
      ['task', 'task', 'output', 'built'],
    );
    assert.deepEqual(events[0], { type: 'task', id: 'boot', title: 'Boot', state: 'started' });
    assert.deepEqual(events.at(-1), built);
  });

  test('a build that refuses its archive midway says why', async () => {
    const edge = scripted({
      // biome-ignore lint/correctness/useYield: it fails before it has anything to tell
      async *build(archive) {
        await once(archive, 'readable');
        archive.destroy();
        throw new GatewayError('invalid_definition', 'no template.json', {
          component: 'templates',
          field: 'name',
          output: 'text',
        });
      },
    });
    await using pair = await open(edge);
    const endless = new Readable({ read: () => void endless.push(Buffer.alloc(16_384)) });
    const error = await fails(all(pair.client.build(endless, { signal: new AbortController().signal })));
    assert.deepEqual(
      [error.code, error.details.field, error.details.output],
      ['invalid_definition', 'name', 'text'],
    );
    endless.destroy();
  });

  test('ending the iteration of a build or of logs ends them at the edge', async () => {
    const ended: string[] = [];
    const wait = async (signal: AbortSignal, what: string) => {
      if (!signal.aborted) await once(signal, 'abort');
      ended.push(what);
    };
    const edge = scripted({
      async *build(_archive, { signal }) {
        yield { type: 'output', id: 'run', text: 'x' };
        await wait(signal, 'build');
      },
      async *logs({ signal }) {
        yield { at: 1, machine, stream: 'stdout', text: 'x' };
        await wait(signal, 'logs');
      },
    });
    await using pair = await open(edge);
    const stop = new AbortController();
    const { signal } = stop;
    const build = pair.client.build(bytes(), { signal })[Symbol.asyncIterator]();
    await build.next();
    const logs = pair.client
      .logs({ digests: [digest], streams: ['stdout'], tail: 1, follow: true, signal })
      [Symbol.asyncIterator]();
    await logs.next();
    stop.abort(new GatewayError('cancelled', 'gone'));
    await Promise.allSettled([build.next(), logs.next()]);
    while (ended.length < 2) await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(ended.sort(), ['build', 'logs']);
  });

  test('declarations, listings and metrics cross unchanged', async () => {
    const node = {
      id: 'node',
      isReady: true,
      isDraining: false,
      accelerator: 'tcg',
      acceleratorReason: 'no /dev/kvm',
      isTenantBoundary: false,
      machines: 1,
      maxMachines: 8,
      versions: 1,
      startedAt: 5,
    } as const;
    const versions = [{ digest, template: 'x' as TemplateName, version: 'v1' }];
    const edge = scripted({
      node: async () => node,
      machines: async () => [],
      pools: async () => [],
      metrics: async () => '# HELP a\na{b="c"} 1\n',
      setServing: async (declared) => {
        assert.deepEqual(declared, versions);
        return [{ digest, error: 'no memory' }];
      },
      removeVersion: async () => {
        throw new GatewayError('conflict', 'it serves', { component: 'edge' });
      },
    });
    await using pair = await open(edge);
    assert.deepEqual(await pair.client.node(), node);
    assert.deepEqual(await pair.client.machines(), []);
    assert.deepEqual(await pair.client.pools(), []);
    assert.equal(await pair.client.metrics(), '# HELP a\na{b="c"} 1\n');
    assert.deepEqual(await pair.client.setServing(versions), [{ digest, error: 'no memory' }]);
    assert.ok(isGatewayError(await fails(pair.client.removeVersion(digest)), 'conflict'));
  });
}

const facts = {
  digest,
  builtAt: 1,
  buildMs: 2,
  memoryBytes: 3,
  stateBytes: 4,
  diskBytes: 5,
  accelerator: 'tcg',
  verifyRestoreMs: 6,
  verifyFirstResponseMs: null,
} as const;
