"""A function that misbehaves on request. Runs as root, so that it can take its whole kernel down."""
import base64, hashlib, http.server, json, os, random, signal, ssl, sys, threading, time, uuid

counter = 0
restored = 0
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self, body, status=200, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(data)

    def read_body(self):
        if 'chunked' in self.headers.get('Transfer-Encoding', ''):
            data = b''
            while size := int(self.rfile.readline().split(b';')[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data
        return self.rfile.read(int(self.headers.get('Content-Length', 0)))

    def handle_any(self):
        global counter, restored
        path = self.path.split('?')[0]
        body = self.read_body() if path != '/early' else b''
        if path == '/healthz':
            return self.answer({'ok': True})
        if path == '/restored':
            restored += 1
            random.seed(os.urandom(32))
            return self.answer({})
        if path == '/crash':
            os._exit(7)
        if path == '/abort':
            os.kill(os.getpid(), signal.SIGABRT)
        if path == '/panic':
            open('/proc/sys/kernel/sysrq', 'w').write('1')
            open('/proc/sysrq-trigger', 'w').write('c')
        if path == '/hang':
            time.sleep(3600)
        if path == '/slow':
            time.sleep(2)
        if path == '/malformed':
            self.wfile.write(b'this is not HTTP\r\n\r\n')
            self.close_connection = True
            return
        if path == '/half':
            self.send_response(200)
            self.send_header('Content-Length', '1000')
            self.end_headers()
            self.wfile.write(b'x' * 10)
            self.wfile.flush()
            os._exit(8)
        if path == '/print':
            print('printed by the function \x1b[31mred', flush=True)
            print('to stderr', file=sys.stderr, flush=True)
        if path == '/flood':
            for _ in range(20000):
                print('x' * 200)
            sys.stdout.flush()
        if path == '/echo':
            return self.answer(body, headers=[('Content-Type', 'application/octet-stream'), ('X-Sha256', hashlib.sha256(body).hexdigest())])
        if path == '/stream':
            self.send_response(200)
            self.send_header('Content-Type', 'text/event-stream')
            self.send_header('Transfer-Encoding', 'chunked')
            self.end_headers()
            for part in range(4):
                data = f'data: {part}\n\n'.encode()
                self.wfile.write(b'%x\r\n%s\r\n' % (len(data), data))
                self.wfile.flush()
                time.sleep(0.3)
            self.wfile.write(b'0\r\n\r\n')
            return
        if path == '/websocket':
            key = self.headers['Sec-WebSocket-Key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
            self.send_response(101)
            self.send_header('Upgrade', 'websocket')
            self.send_header('Connection', 'Upgrade')
            self.send_header('Sec-WebSocket-Accept', base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
            self.end_headers()
            self.wfile.flush()
            while True:  # echoes small masked text frames
                head = self.rfile.read(2)
                if len(head) < 2 or head[0] & 15 == 8:
                    break
                mask, size = self.rfile.read(4), head[1] & 127
                text = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
                self.wfile.write(bytes([0x81, len(text)]) + text)
                self.wfile.flush()
            self.close_connection = True
            return
        with lock:
            counter += 1
            count = counter
        self.answer({
            'counter': count, 'restored': restored, 'method': self.command, 'target': self.path, 'now': time.time(),
            'random': random.random(), 'uuid': str(uuid.uuid4()), 'urandom': os.urandom(16).hex(), 'openssl': ssl.RAND_bytes(16).hex(),
            'hostname': os.uname().nodename, 'machineId': open('/etc/machine-id').read().strip(),
            'bootId': open('/proc/sys/kernel/random/boot_id').read().strip() if path == '/slow' else None,
            'headers': self.headers.items(), 'marker': os.environ.get('MARKER'),
        })

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_OPTIONS = handle_any

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


Server(('0.0.0.0', 8000), Handler).serve_forever()
