// A plain Node server: runs in the guest, and on the host as the warm server that it is compared with.
import { createServer } from 'node:http';
import { answer } from './hello.mjs';

const server = createServer((request, response) => {
  request.resume();
  const body = answer();
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
  response.end(body);
});
server.keepAliveTimeout = 0;
server.listen(Number(process.env.PORT ?? 8000), '127.0.0.1', () => console.log(server.address().port));
