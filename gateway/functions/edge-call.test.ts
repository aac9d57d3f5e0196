import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../sdk/index.ts';
import { startHarness } from '../testing/harness.ts';
import { createStubEdge, fixedAnswer, type StubEdge } from '../testing/stub-edge.ts';

const refusing = (
  code: 'node_at_capacity' | 'draining' | 'edge_unreachable' | 'queue_full' | 'edge_lost',
) => {
  const edge = createStubEdge();
  edge.behaviour.invoke = async () => {
    throw new GatewayError(code, 'not here', { component: 'edge' });
  };
  return edge;
};

const answering = () => {
  const edge = createStubEdge();
  edge.behaviour.invoke = async (request) => {
    let size = 0;
    if (request.body !== null) for await (const chunk of request.body) size += chunk.length;
    return fixedAnswer(request, Buffer.from(`took ${size}`));
  };
  return edge;
};

const startWith = (edges: StubEdge[]) =>
  startHarness({ placement: { candidates: () => edges, edges: () => edges } });

test('an edge that refuses for reasons of its own makes the gateway place again (fission/fission#486)', async () => {
  const edges = [
    refusing('node_at_capacity'),
    refusing('draining'),
    refusing('edge_unreachable'),
    answering(),
  ];
  await using h = await startWith(edges);
  const response = await fetch(`${h.url}/fn/open`, { method: 'POST', body: 'hello' });
  assert.equal(await response.text(), 'took 5');
  assert.deepEqual(
    edges.map((edge) => edge.invocations.length),
    [1, 1, 1, 1],
  );
});

test('when every edge refuses, the last one has the word', async () => {
  await using h = await startWith([refusing('draining'), refusing('node_at_capacity')]);
  const response = await fetch(`${h.url}/fn/open`);
  assert.equal(response.headers.get('x-snapgate-error'), 'edge/node_at_capacity');
});

test('other refusals, and a node that may have run the request, are not tried elsewhere', async () => {
  for (const code of ['queue_full', 'edge_lost'] as const) {
    const other = answering();
    await using h = await startWith([refusing(code), other]);
    assert.equal((await fetch(`${h.url}/fn/open`)).headers.get('x-snapgate-error'), `edge/${code}`);
    assert.equal(other.invocations.length, 0);
  }
});

test('a request whose body was touched is not sent again', async () => {
  const greedy = createStubEdge();
  greedy.behaviour.invoke = async (request) => {
    for await (const _ of request.body!) break;
    throw new GatewayError('draining', 'changed my mind', { component: 'edge' });
  };
  const other = answering();
  await using h = await startWith([greedy, other]);
  const response = await fetch(`${h.url}/fn/open`, { method: 'POST', body: 'hello' });
  assert.equal(response.headers.get('x-snapgate-error'), 'edge/draining');
  assert.equal(other.invocations.length, 0);
});
