"""Keeps state in memory and on disk, so that tests can tell what a copy of the machine has and has not."""
import hashlib, http.server, json, os, random, time, uuid

counter = 0
is_hook_broken = False
blob = bytearray()
journal = open('/root/journal', 'ab', buffering=0)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_POST(self):
        self.rfile.read(int(self.headers.get('Content-Length', 0)))
        self.do_GET()

    def do_GET(self):
        global counter, blob, is_hook_broken
        path, _, query = self.path.partition('?')
        answer = {}
        if path == '/restored':
            if is_hook_broken:
                return self.send_error(500, 'no randomness')
            random.seed(os.urandom(32))
        elif path == '/break-hook':
            is_hook_broken = True
        elif path == '/count':
            counter += 1
            # Not synced: it is in the page cache of the guest, and nowhere else yet.
            journal.write(b'%d\n' % counter)
        elif path == '/fill':
            blob = bytearray(os.urandom(int(query) * 2**20))
        elif path == '/sleep':
            time.sleep(float(query))
        answer = {
            'counter': counter,
            'journal': open('/root/journal', 'rb').read().decode().split()[-1:],
            'lines': sum(1 for _ in open('/root/journal', 'rb')),
            'blob': hashlib.sha256(blob).hexdigest(),
            'random': random.random(),
            'uuid': str(uuid.uuid4()),
            'urandom': os.urandom(16).hex(),
            'kernelUuid': open('/proc/sys/kernel/random/uuid').read().strip(),
            'hostname': os.uname().nodename,
            'machineId': open('/etc/machine-id').read().strip(),
            'now': time.time(),
        }
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(('0.0.0.0', 8000), Handler).serve_forever()
