/**
 * A child process that answers every request with the same bytes, so that what is measured against it is the generator.
 * It reads no HTTP: a request is a packet that arrives, which holds for a client without pipelining and bodies. Sends its
 * port to its parent and ends with it.
 */

import type { AddressInfo } from 'node:net';
import { createServer } from 'node:net';
import { nullAnswer } from './prime.ts';

const server = createServer({ noDelay: true }, (socket) => {
  socket.on('data', () => socket.write(nullAnswer));
  socket.on('error', () => socket.destroy());
});
server.listen(0, '127.0.0.1', () => process.send?.((server.address() as AddressInfo).port));
process.on('disconnect', () => process.exit());
