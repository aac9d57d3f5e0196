// An HTTP service that does its slow work once, before the snapshot: every machine wakes up with it done.
import { randomBytes, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { hostname } from 'node:os';
import { reseed, useKernelRandomness } from './randomness.mjs';

// Before anything is drawn: see there why `node:crypto` alone would repeat itself.
useKernelRandomness();

const port = 8000;
const greeting = process.env.GREETING ?? 'hello';
const startedAt = new Date();

// Stands for whatever takes long to load: a model, an index, a parsed rule set.
const table = new Map();
for (let number = 0; number < 50_000; number += 1) table.set(`word-${number}`, number * number);

// What changes while the service runs. Part of the snapshot like all memory, so it goes on from there.
let counter = 0;
let instance = randomUUID();

// Called after every restore and in every fork: all machines of a template wake up with the same memory, so whatever was drawn before the
// snapshot, and every generator seeded before it, is the same in each of them.
function becomeUnique() {
  instance = randomUUID();
  reseed();
}

function hello() {
  counter += 1;
  console.log(`request ${counter} in ${instance}`);
  return {
    message: `${greeting} from Node`,
    counter,
    tableSize: table.size,
    startedAt: startedAt.toISOString(),
    host: hostname(),
    instance,
    random: Math.random(),
    uuid: randomUUID(),
    bytes: randomBytes(16).toString('hex'),
  };
}

const routes = {
  '/': () => [200, hello()],
  '/healthz': () => [200, { status: 'ok' }],
  '/_snapgate/restored': () => {
    becomeUnique();
    return [200, { instance }];
  },
};

const server = createServer((request, response) => {
  request.resume(); // a body nobody asked for must not hold up the next request
  const path = request.url.split('?', 1)[0];
  const [status, value] = Object.hasOwn(routes, path) ? routes[path]() : [404, { error: `nothing at ${path}` }];
  const body = `${JSON.stringify(value)}\n`;
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
  response.end(body);
});
// The gateway decides when a connection ends; closing idle ones here would race with its next request.
server.keepAliveTimeout = 0;
server.listen(port, '127.0.0.1', () => console.log(`listening on ${port} with ${table.size} entries`));
