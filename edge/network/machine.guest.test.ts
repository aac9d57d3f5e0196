import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { isGatewayError, type NetworkChoice, type NodeId, type SandboxId } from '../../sdk/index.ts';
import { slotLayout } from './slot/layout.ts';
import { anyTime, type NetworkedNode, openNetworkedNode, worldHosts } from './testing/networked-node.ts';
import { cannotRun } from './testing/world.ts';

const { shared, other, shared6, metadata } = worldHosts;
const native = (rules: Record<string, boolean>): NetworkChoice => ({ kind: 'native', rules });
const hostOfWorld = '192.0.2.1';

/** A step and how it ends. */
type Expectation = readonly [step: Record<string, unknown>, outcome: unknown];

describe('network rules around real guests', { skip: cannotRun }, () => {
  let node: NetworkedNode;
  let id = '';
  const expect = async (sandbox: string, rows: readonly Expectation[]) => {
    const found = await node.probe(
      sandbox,
      rows.map(([step]) => step),
    );
    assert.deepEqual(
      rows.map(([step], index) => [step, found[index]]),
      rows,
    );
  };
  const under = async (choice: NetworkChoice | null, rows: readonly Expectation[]) => {
    await node.edge.sandboxes.setNetwork(id as SandboxId, choice);
    await expect(id, rows);
  };

  before(async () => {
    node = await openNetworkedNode({ network: { 'a.example.com': true } });
    for (const [name, ...addresses] of [
      ['a.example.com', shared, shared6],
      ['b.example.com', shared, shared6],
      ['c.example.com', other],
      ['x.y.example.org', other],
      ['example.org', other],
      ['rebind.example.org', metadata, '10.1.2.3', '127.0.0.1', 'fe80::1'],
    ] as const)
      node.zone.set(name, { addresses, ttl: 60 });
    for (const address of [shared, other, shared6]) {
      await node.serve('tls', address, 443);
      await node.serve('http', address, 80);
      await node.serve('tcp', address, 22);
      await node.serve('udp', address, 443);
      await node.serve('udp', address, 4000);
    }
    for (const address of [metadata, worldHosts.private, worldHosts.otherPrivate]) {
      await node.serve('http', address, 80);
      await node.serve('tcp', address, 5432);
    }
    ({ id } = await node.create());
  });
  after(() => node?.[Symbol.asyncDispose]());

  test('a host rule opens its own site, and no other behind the same address', async () => {
    await expect(id, [
      [{ do: 'resolve', name: 'a.example.com' }, [shared6, shared]],
      [{ do: 'tls', address: shared, port: 443, sni: 'a.example.com' }, `hi a.example.com at ${shared}`],
      [{ do: 'tls', address: shared6, port: 443, sni: 'a.example.com' }, `hi a.example.com at ${shared6}`],
      [
        { do: 'web', address: shared, port: 80, hosts: ['a.example.com', 'b.example.com'] },
        [`hi a.example.com at ${shared}`, 'ECONNRESET'],
      ],
      [{ do: 'tls', address: shared, port: 443, sni: 'b.example.com' }, 'ECONNRESET'],
      [{ do: 'tls', address: shared6, port: 443, sni: 'b.example.com' }, 'ECONNRESET'],
      [{ do: 'tls', address: shared, port: 443 }, 'ECONNRESET'],
      [{ do: 'tcp', address: shared, port: 443 }, 'ECONNRESET'],
      [{ do: 'tls', address: other, port: 443, sni: 'a.example.com' }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: shared, port: 22 }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: shared6, port: 22 }, 'ECONNREFUSED'],
      [{ do: 'udp', address: shared, port: 443 }, 'EHOSTUNREACH'],
      [{ do: 'udp', address: shared6, port: 443 }, 'EACCES'],
      [{ do: 'udp', address: shared, port: 4000 }, 'EHOSTUNREACH'],
      [{ do: 'fetch', url: 'https://b.example.com/' }, 'unresolved'],
    ]);
  });

  test('names carry nothing out: only addresses of allowed names are asked for, here and nowhere else', async () => {
    const before = node.asked.length;
    await expect(id, [
      [{ do: 'dns', name: 'secret.a.example.com' }, 'unknown'],
      [{ do: 'dns', name: 'secret.evil.example.net', over: 'tcp' }, 'unknown'],
      [{ do: 'dns', name: 'a.example.com', over: 'tcp' }, 'ok'],
      [{ do: 'dns', name: 'a.example.com', type: 'TXT' }, 'refused'],
      [{ do: 'dns', name: 'a.example.com', type: 'NULL', over: 'tcp' }, 'refused'],
      [{ do: 'dns', name: 'a.example.com', type: 'ANY' }, 'refused'],
      [{ do: 'dns', name: 'a.example.com', server: shared }, 'EHOSTUNREACH'],
      [{ do: 'dns', name: 'a.example.com', server: shared6 }, 'EACCES'],
      [{ do: 'dns', name: 'a.example.com', server: shared, over: 'tcp' }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: shared, port: 853 }, 'ECONNREFUSED'],
    ]);
    assert.deepEqual(node.asked.slice(before), []);
  });

  test('what was refused is told with name, address, port, rules and reason', async () => {
    const { refusals } = await node.edge.sandboxes.network(id as SandboxId);
    const has = (wanted: Record<string, unknown>) =>
      assert.ok(
        refusals.some((one) =>
          Object.entries(wanted).every(([key, value]) => one[key as keyof typeof one] === value),
        ),
        `${JSON.stringify(wanted)} in ${JSON.stringify(refusals, null, 1)}`,
      );
    const ruleSet = 'template networked';
    has({ kind: 'name', name: 'b.example.com', ruleSet, reason: 'no rule allows this name', sandbox: id });
    has({ kind: 'connection', name: 'b.example.com', address: shared, port: 443, protocol: 'tcp' });
    has({ kind: 'connection', address: shared, port: 22, protocol: 'tcp', reason: 'no rule allows it' });
    has({ kind: 'connection', address: shared6, port: 443, protocol: 'udp' });
    const lines = [];
    for await (const line of node.edge.logs({
      digests: [node.origin.digest],
      streams: ['network'],
      tail: 100,
      follow: false,
      signal: anyTime(),
    }))
      lines.push(line);
    assert.ok(lines.some(({ text }) => text.startsWith('refused name b.example.com: no rule allows')));
    assert.equal(lines.length, refusals.length);
  });

  test('each kind of rule allows what it names', async () => {
    await under(native({ '*.example.org': true }), [
      [{ do: 'fetch', url: 'http://x.y.example.org/' }, `hi x.y.example.org at ${other}`],
      [{ do: 'fetch', url: 'http://example.org/' }, 'unresolved'],
      [{ do: 'fetch', url: 'http://a.example.com/' }, 'unresolved'],
    ]);
    await under(native({ 'c.example.com:22': true, 'c.example.com:4000': true }), [
      [{ do: 'resolve', name: 'c.example.com' }, [other]],
      [{ do: 'tcp', address: other, port: 22 }, `hi from ${other}`],
      [{ do: 'udp', address: other, port: 4000 }, `hi from ${other}`],
      [{ do: 'tls', address: other, port: 443, sni: 'c.example.com' }, 'ECONNREFUSED'],
    ]);
    await under(native({ '93.184.216.34/32': true, '10.0.0.0/8:5432': true, '10.1.0.0/16:5432': true }), [
      [{ do: 'tcp', address: shared, port: 22 }, `hi from ${shared}`],
      [{ do: 'udp', address: shared, port: 443 }, `hi from ${shared}`],
      [{ do: 'tls', address: shared, port: 443 }, `hi false at ${shared}`],
      [{ do: 'tcp', address: other, port: 22 }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: shared6, port: 22 }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: worldHosts.private, port: 5432 }, `hi from ${worldHosts.private}`],
      [{ do: 'tcp', address: worldHosts.private, port: 80 }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: worldHosts.otherPrivate, port: 5432 }, 'ECONNREFUSED'],
    ]);
    await under(native({ '[2606:4700::/32]:22': true, '[2606:4700::/32]:4000': true }), [
      [{ do: 'tcp', address: shared6, port: 22 }, `hi from ${shared6}`],
      [{ do: 'udp', address: shared6, port: 4000 }, `hi from ${shared6}`],
      [{ do: 'tcp', address: shared6, port: 80 }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: shared, port: 22 }, 'ECONNREFUSED'],
    ]);
    await under(native({}), [
      [{ do: 'dns', name: 'a.example.com' }, 'unknown'],
      [{ do: 'tcp', address: shared, port: 80 }, 'ECONNREFUSED'],
    ]);
  });

  test('everything but: false subtracts, and the floor stays shut whatever is allowed', async () => {
    const refused = (address: string, port: number): Expectation => [
      { do: 'tcp', address, port },
      'ECONNREFUSED',
    ];
    const { id: nodeId } = await node.edge.node();
    const uplinks = [0, 1, 2, 3].flatMap((index) =>
      Object.values(slotLayout(nodeId as NodeId, index).uplink),
    );
    await under(
      native({ '*': true, 'b.example.com': false, '93.184.216.35:22': false, '10.2.0.0/16': true }),
      [
        [{ do: 'fetch', url: 'https://c.example.com/' }, `hi c.example.com at ${other}`],
        [{ do: 'fetch', url: 'https://b.example.com/' }, 'unresolved'],
        [{ do: 'tls', address: shared, port: 443, sni: 'b.example.com' }, 'ECONNRESET'],
        [{ do: 'tcp', address: shared, port: 22 }, `hi from ${shared}`],
        [{ do: 'tcp', address: shared6, port: 22 }, `hi from ${shared6}`],
        refused(other, 22),
        refused(metadata, 80),
        refused(`::ffff:${metadata}`, 80),
        refused(worldHosts.private, 5432),
        refused(worldHosts.otherPrivate, 5432),
        refused('100.64.1.1', 80),
        refused('192.168.1.1', 80),
        refused('fd00:ec2::254', 80),
        // The host, by its own address and by its end of the uplink; the gateway that the guest sees; another machine.
        refused(hostOfWorld, 22),
        ...uplinks.map((address) => refused(address, 22)),
        refused('172.31.255.1', 15_001),
        [{ do: 'dns', name: 'rebind.example.org' }, 'ok'],
        [{ do: 'resolve', name: 'rebind.example.org' }, 'unresolved'],
      ],
    );
    const { refusals } = await node.edge.sandboxes.network(id as SandboxId);
    assert.ok(refusals.some(({ name, address }) => name === 'rebind.example.org' && address === metadata));
    assert.ok(refusals.some(({ address, reason }) => address === metadata && /metadata/.test(reason)));
  });

  test('a forged source gets nothing out', async () => {
    node.heard.splice(0);
    await under(native({ '93.184.216.34/32': true }), [
      [{ do: 'spoof', source: '172.31.255.9', address: shared, port: 4000 }, 'sent'],
      [{ do: 'spoof', source: shared, address: shared, port: 4000 }, 'sent'],
      [{ do: 'udp', address: shared, port: 4000 }, `hi from ${shared}`],
    ]);
    assert.deepEqual(node.heard, ['hello']);
  });

  test('the fields of E2B mean what they mean there', async () => {
    const e2b = (fields: Record<string, unknown>) => ({ kind: 'e2b', ...fields }) as NetworkChoice;
    await under(e2b({ allowOut: ['a.example.com', `${other}/32`], denyOut: ['0.0.0.0/0'] }), [
      [{ do: 'fetch', url: 'https://a.example.com/' }, `hi a.example.com at ${shared}`],
      [{ do: 'fetch', url: 'https://b.example.com/' }, 'unresolved'],
      [{ do: 'tcp', address: other, port: 22 }, `hi from ${other}`],
      [{ do: 'tcp', address: shared, port: 22 }, 'ECONNREFUSED'],
    ]);
    await under(e2b({ denyOut: [other] }), [
      [{ do: 'tcp', address: other, port: 22 }, 'ECONNREFUSED'],
      [{ do: 'tcp', address: shared, port: 22 }, `hi from ${shared}`],
      [{ do: 'tcp', address: metadata, port: 80 }, 'ECONNREFUSED'],
    ]);
    await under(e2b({ allowInternetAccess: false }), [
      [{ do: 'tcp', address: shared, port: 22 }, 'ECONNREFUSED'],
    ]);
    await assert.rejects(
      node.edge.sandboxes.setNetwork(id as SandboxId, e2b({ allowOut: ['a.example.com'] })),
      (error) => isGatewayError(error, 'invalid_request'),
    );
    assert.equal((await node.edge.sandboxes.get(id as SandboxId)).network?.kind, 'e2b');
  });

  test('apt, pip and npm find what they need under the rules named after them, and nothing else', async () => {
    for (const name of ['pypi.org', 'files.pythonhosted.org', 'registry.npmjs.org', 'deb.debian.org'])
      node.zone.set(name, { addresses: ['151.101.0.223'], ttl: 60 });
    await node.world.run(['ip', 'addr', 'add', '151.101.0.223', 'dev', 'lo']);
    const files = await debianMirror('deb.debian.org');
    files.set('pypi.org/simple/demo/', 'https://files.pythonhosted.org/demo-1.whl');
    files.set('files.pythonhosted.org/demo-1.whl', 'a wheel');
    files.set('registry.npmjs.org/demo', 'https://registry.npmjs.org/demo/-/demo-1.tgz');
    files.set('registry.npmjs.org/demo/-/demo-1.tgz', 'a tarball');
    await node.serve('http', '151.101.0.223', 80, files);
    await node.serve('tls', '151.101.0.223', 443, files);
    const fetch = (path: string, outcome: unknown): Expectation => [
      { do: 'fetch', url: `https://${path}` },
      outcome,
    ];
    await under(native({ pypi: true, npm: true, debian: true }), [
      fetch('pypi.org/simple/demo/', 'https://files.pythonhosted.org/demo-1.whl'),
      fetch('files.pythonhosted.org/demo-1.whl', 'a wheel'),
      fetch('registry.npmjs.org/demo', 'https://registry.npmjs.org/demo/-/demo-1.tgz'),
      fetch('registry.npmjs.org/demo/-/demo-1.tgz', 'a tarball'),
      fetch('a.example.com/', 'unresolved'),
    ]);
    const apt = `echo 'deb [trusted=yes] http://deb.debian.org/debian ./' > /etc/apt/sources.list; rm -rf /etc/apt/sources.list.d;
      apt-get -q update && apt-get -qy install snapgate-demo && cat /usr/share/snapgate-demo`;
    const [installed] = await node.probe(id, [{ do: 'run', argv: ['sh', '-c', apt] }]);
    assert.match(String((installed as unknown[])[1]), /it was installed/);
    await under(native({ npm: true }), [fetch('pypi.org/simple/demo/', 'unresolved')]);
  });

  test('replacing rules cuts a stream that is no longer allowed, and leaves one that is', async () => {
    await under(native({ '93.184.216.34': true, '93.184.216.35': true }), []);
    const stream = (address: string) => ({ do: 'stream', address, port: 22, seconds: 3 });
    const running = Promise.all([shared, other].map((address) => node.probe(id, [stream(address)])));
    while (!['stream 93.184.216.34', 'stream 93.184.216.35'].every((one) => node.heard.includes(one)))
      await sleep(20);
    await node.edge.sandboxes.setNetwork(id as SandboxId, native({ '93.184.216.35': true }));
    const [[cut], [kept]] = (await running) as [[[string, number]], [[string, number]]];
    // It was open, since the server heard of it; how far it came before the cut is chance.
    assert.equal(cut[0], 'ECONNRESET');
    assert.equal(kept[0], 'went on');
  });

  test('forks, resumes and snapshots have the rules of what they came from', async () => {
    await under(native({ 'c.example.com': true }), []);
    const rows: Expectation[] = [
      [{ do: 'fetch', url: 'https://c.example.com/' }, `hi c.example.com at ${other}`],
      [{ do: 'fetch', url: 'https://a.example.com/' }, 'unresolved'],
    ];
    const options = { signal: anyTime() };
    const { children } = await node.edge.sandboxes.fork(id as SandboxId, { count: 2 }, options);
    for (const child of children) {
      assert.ok('sandbox' in child, JSON.stringify(child));
      await expect(child.sandbox.id, rows);
      await node.edge.sandboxes.kill(child.sandbox.id as SandboxId);
    }
    const snapshot = await node.edge.sandboxes.snapshot(id as SandboxId, { isPinned: false }, options);
    await node.edge.sandboxes.pause(id as SandboxId, options);
    const made = await node.edge.sandboxes.create(
      { kind: 'snapshot', snapshot: snapshot.id },
      { deadlineMs: 60_000, onTimeout: 'kill', autoResume: false, metadata: {}, env: {}, secrets: {} },
      options,
    );
    await expect(made.id, rows);
    await node.edge.sandboxes.kill(made.id as SandboxId);
    await node.edge.sandboxes.setNetwork(id as SandboxId, null);
    await node.edge.sandboxes.resume(id as SandboxId, options);
    await expect(id, [
      [{ do: 'fetch', url: 'https://a.example.com/' }, `hi a.example.com at ${shared}`],
      [{ do: 'fetch', url: 'https://c.example.com/' }, 'unresolved'],
    ]);
  });

  test('a later edge takes machines over with their rules, also after a kill, and nothing else is left', async () => {
    const rows: Expectation[] = [
      [{ do: 'fetch', url: 'https://a.example.com/' }, `hi a.example.com at ${shared}`],
      [{ do: 'tls', address: shared, port: 443, sni: 'b.example.com' }, 'ECONNRESET'],
      [{ do: 'tcp', address: shared, port: 22 }, 'ECONNREFUSED'],
    ];
    await node.reopen();
    await expect(id, rows);
    await node.reopen('crash');
    await expect(id, rows);
    // The sandbox's own, those of the machines that the pool holds, and those that are prepared.
    const [pool] = await node.edge.pools();
    const most = 1 + (pool?.blank ?? 0) + (pool?.ready ?? 0) + (pool?.restoring ?? 0) + 2 + 1;
    assert.ok((await node.slots()).length <= most, `${await node.slots()}`);
  });

  test('an address stays open no longer than its name was told', async () => {
    node.zone.set('short.example.com', { addresses: [other], ttl: 1 });
    await under(native({ 'short.example.com:22': true }), [
      [{ do: 'resolve', name: 'short.example.com' }, [other]],
      [{ do: 'tcp', address: other, port: 22 }, `hi from ${other}`],
      // Five seconds are the least that an answer holds, and five more the address.
      [{ do: 'sleep', seconds: 11 }, 'slept'],
      [{ do: 'tcp', address: other, port: 22 }, 'ECONNREFUSED'],
    ]);
  });
});

/** A repository of one package, as files below a host. */
async function debianMirror(host: string): Promise<Map<string, string | Buffer>> {
  const run = promisify(execFile);
  const directory = await mkdtemp(join(tmpdir(), 'snapgate-mirror-'));
  try {
    const root = join(directory, 'package');
    await mkdir(join(root, 'DEBIAN'), { recursive: true });
    await mkdir(join(root, 'usr/share'), { recursive: true });
    const control =
      'Package: snapgate-demo\nVersion: 1\nArchitecture: all\nMaintainer: nobody <n@example.com>\nDescription: demo\n';
    await writeFile(join(root, 'DEBIAN/control'), control);
    await writeFile(join(root, 'usr/share/snapgate-demo'), 'it was installed\n');
    const path = join(directory, 'demo.deb');
    await run('dpkg-deb', ['--build', '--root-owner-group', root, path]);
    const archive = await readFile(path);
    const sum = async (tool: string, file: string) => (await run(tool, [file])).stdout.split(' ')[0] ?? '';
    const packages = `${control}Filename: ./demo.deb\nSize: ${archive.length}\nSHA256: ${await sum('sha256sum', path)}\n`;
    await writeFile(join(directory, 'Packages'), packages);
    const digest = await sum('sha256sum', join(directory, 'Packages'));
    const release = `Date: Sun, 01 Nov 2026 00:00:00 UTC\nSHA256:\n ${digest} ${packages.length} Packages\n`;
    return new Map<string, string | Buffer>([
      [`${host}/debian/./Release`, release],
      [`${host}/debian/./Packages`, packages],
      [`${host}/debian/./demo.deb`, archive],
    ]);
  } finally {
    await rm(directory, { recursive: true });
  }
}
