"""
The probe of the load-test harness: answers with what shows whether a clone is sound. Publish this folder and run
`snapgate loadtest run --template loadtest-probe --probe`. The answer's form is described in `loadtest/check/probe.ts`.
"""

import json
import os
import random
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PORT = int(os.environ.get("PORT", "8000"))
MAX_WORK_MS = 60_000


class State:
    """In memory, so that it is in the snapshot: counts go on from there, and forgotten canaries would show."""

    def __init__(self):
        self.lock = threading.Lock()
        self.count = 0
        # What earlier callers sent. A machine serves one tenant, so all of these must be the caller's own.
        self.canaries = deque(maxlen=8)
        # What ran here lately, so that a run whose answer reached nobody shows in the next answer.
        self.recent = deque(maxlen=32)

    def probe(self, probe_id, canary):
        with self.lock:
            recent = list(self.recent)
            self.count += 1
            self.recent.append((self.count, probe_id))
            if canary and canary not in self.canaries:
                self.canaries.append(canary)
            return self.count, recent, list(self.canaries)


STATE = State()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 64 * 1024

    def do_GET(self):
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        if "probe" in query:
            self.probe(query)
        else:
            self.answer({"status": "ok"})

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        # Python's own generator is memory like any other: without this every clone would draw the same numbers.
        random.seed(os.urandom(32))
        self.answer({"status": "reseeded"})

    def probe(self, query):
        work_ms = min(MAX_WORK_MS, float(query.get("workMs", ["0"])[0]))
        if work_ms > 0:
            time.sleep(work_ms / 1000)
        probe_id = query["probe"][0][:200]
        count, recent, canaries = STATE.probe(probe_id, self.headers.get("x-loadtest-canary"))
        self.answer(
            {
                "id": probe_id,
                "random": os.urandom(16).hex(),
                "runtimeRandom": f"{random.getrandbits(128):032x}",
                "clockMs": time.time() * 1000,
                "count": count,
                "recent": recent,
                "canaries": canaries,
            }
        )

    def answer(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        """One line per request would be the largest part of what this function does."""


ThreadingHTTPServer(("", PORT), Handler).serve_forever()
