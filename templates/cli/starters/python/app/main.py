"""Everything done before the snapshot is kept in it: every machine wakes up with this table in memory."""

import json
import os
import random
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

SQUARES = {n: n * n for n in range(100_000)}
LOADED_AT = datetime.now(timezone.utc).isoformat()
requests = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        global requests
        url = urlsplit(self.path)
        if url.path == "/healthz":
            return self.answer(b"ok\n", "text/plain")
        requests += 1
        text = parse_qs(url.query).get("n", ["12"])[0]
        n = int(text) if text.isdecimal() else None
        result = {
            "id": f"{random.getrandbits(64):016x}",
            "n": n,
            "square": SQUARES.get(n),
            "requests": requests,
            "loadedAt": LOADED_AT,
        }
        return self.answer(json.dumps(result).encode() + b"\n", "application/json")

    def do_POST(self):
        # Called after every restore. The state of `random` is part of the snapshot, and would be the same in every
        # machine; seed() without an argument draws from the kernel, which was reseeded before.
        self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path != "/_snapgate/restored":
            return self.send_error(404)
        random.seed()
        return self.answer(b"reseeded\n", "text/plain")

    def answer(self, body, content_type):
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Handler).serve_forever()
