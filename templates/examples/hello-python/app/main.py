"""An HTTP service that does its slow work once, before the snapshot: every machine wakes up with it done."""

import json
import os
import random
import socket
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 8000
GREETING = os.environ.get("GREETING", "hello")
STARTED_AT = time.time()

# Stands for whatever takes long to load: a model, an index, a parsed rule set.
TABLE = {f"word-{number}": number * number for number in range(50_000)}


class State:
    """What changes while the service runs. Part of the snapshot like all memory, so it goes on from there."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counter = 0
        self.instance = str(uuid.uuid4())

    def count(self):
        with self.lock:
            self.counter += 1
            return self.counter

    def become_unique(self):
        """
        Called after every restore. All machines of a template wake up with the same memory, so Python's `random` would
        give the same numbers in each of them, and an id drawn before the snapshot belongs to all. The kernel's generator
        (`os.urandom`, `secrets`, `uuid.uuid4`) is reseeded by Snapgate and needs no help.
        """
        random.seed(os.urandom(32))
        self.instance = str(uuid.uuid4())


STATE = State()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open; every answer therefore says how long it is
    wbufsize = 64 * 1024  # head and body leave in one piece instead of two packets that wait for each other

    def do_GET(self):
        path = self.path.partition("?")[0]
        if not self.skip_body():
            return
        if path == "/healthz":
            self.answer(200, {"status": "ok"})
        elif path == "/":
            self.hello()
        else:
            self.answer(404, {"error": f"nothing at {path}"})

    do_HEAD = do_GET

    def do_POST(self):
        if self.path != "/_snapgate/restored":
            self.do_GET()
        elif self.skip_body():
            STATE.become_unique()
            self.answer(200, {"instance": STATE.instance})

    def hello(self):
        count = STATE.count()
        print(f"request {count} in {STATE.instance}", flush=True)
        self.answer(
            200,
            {
                "message": f"{GREETING} from Python",
                "counter": count,
                "tableSize": len(TABLE),
                "startedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(STARTED_AT)),
                "host": socket.gethostname(),
                "instance": STATE.instance,
                "random": random.random(),
                "uuid": str(uuid.uuid4()),
            },
        )

    def skip_body(self):
        """Reads a body nobody asked for, so that the next request on this connection starts where it should."""
        if "transfer-encoding" in self.headers:
            self.close_connection = True
            self.answer(411, {"error": "send a Content-Length"})
            return False
        left = int(self.headers.get("content-length") or 0)
        while left > 0:
            chunk = self.rfile.read(min(left, 64 * 1024))
            if not chunk:
                self.close_connection = True
                return False
            left -= len(chunk)
        return True

    def answer(self, status, value):
        body = (json.dumps(value) + "\n").encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format, *args):
        """The service prints its own lines."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


print(f"listening on {PORT} with {len(TABLE)} entries", flush=True)
Server(("127.0.0.1", PORT), Handler).serve_forever()
