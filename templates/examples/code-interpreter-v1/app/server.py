"""Runs cells over HTTP as @e2b/code-interpreter wants it: POST /execute answers one event a line, contexts live below /contexts."""

import base64
import gzip
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = int(os.environ.get("INTERPRETER_PORT", "49999"))
HOME = os.path.expanduser("~")
KERNEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel.py")
MAX_BODY = 16 * 1024 * 1024
MAX_CONTEXTS = 64
# How long a cell that nobody waits for may take to notice its interruption, seconds.
INTERRUPT_S = 3


class Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class Context:
    """One kernel process; cells of it run one after another."""

    def __init__(self, cwd):
        self.id = str(uuid.uuid4())
        self.cwd = cwd
        self.turn = threading.Lock()
        self.must_reseed = False
        self.start()

    def start(self):
        events, theirs = os.pipe()
        self.events = os.fdopen(events, "rb", buffering=0)
        self.process = subprocess.Popen(
            [sys.executable, KERNEL, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs,),
            cwd=self.cwd,
            start_new_session=True,
        )
        os.close(theirs)

    def stop(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        for stream in (self.events, self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()

    def restart(self):
        with self.turn:
            self.stop()
            self.start()

    def execute(self, command, send, reader):
        """Runs one cell; `send` takes each event and raises OSError when its reader, a socket, has gone."""
        with self.turn:
            command["reseed"], self.must_reseed = self.must_reseed, False
            try:
                self.process.stdin.write(json.dumps(command).encode() + b"\n")
                self.process.stdin.flush()
                self.relay(send, reader)
            except Gone:
                self.interrupt()
            except BrokenPipeError:
                self.died(send)

    def relay(self, send, reader=None, until=None):
        """Until the kernel says `done`: what it printed before that is in the pipes by then."""
        outputs = {self.process.stdout.fileno(): Output("stdout"), self.process.stderr.fileno(): Output("stderr")}
        fds = [self.events.fileno(), *outputs]
        pending = b""
        sockets = [] if reader is None else [reader]
        while True:
            ready, _, _ = select.select(fds + sockets, [], [], 0.1 if until is not None else None)
            # A reader that says more than its request has nothing to say yet.
            if reader in ready and reader.recv(1, socket.MSG_PEEK) != b"":
                sockets = []
            elif reader in ready or (until is not None and time.monotonic() > until):
                raise Gone()
            is_done = False
            held = []
            if self.events.fileno() in ready:
                data = os.read(self.events.fileno(), 1 << 16)
                if data == b"":
                    return self.died(send)
                *lines, pending = (pending + data).split(b"\n")
                held = [json.loads(line) for line in lines]
                is_done = any(event["type"] == "done" for event in held)
                ready = select.select(list(outputs), [], [], 0)[0]
            self.drain(outputs, ready, send, is_done)
            for event in held:
                if event["type"] != "done":
                    deliver(send, event)
            if is_done:
                return deliver(send, {"type": "end_of_execution"})

    def drain(self, outputs, ready, send, to_the_end):
        while ready:
            for fd in ready:
                if fd in outputs:
                    text = outputs[fd].take(os.read(fd, 1 << 16))
                    if text:
                        deliver(send, {"type": outputs[fd].name, "text": text, "timestamp": time.time_ns() // 1000})
            if not to_the_end:
                return
            ready = select.select(list(outputs), [], [], 0)[0]

    def died(self, send):
        self.stop()
        self.start()
        error = {"name": "KernelDied", "value": "the context ended and was started anew; its state is lost"}
        deliver(send, {"type": "error", "traceback": error["value"], **error})
        deliver(send, {"type": "end_of_execution"})

    def interrupt(self):
        """Nobody waits for this cell any more: the next one must not wait for it."""
        os.kill(self.process.pid, signal.SIGINT)
        try:
            self.relay(lambda _: None, until=time.monotonic() + INTERRUPT_S)
        except Gone:
            self.stop()
            self.start()


class Gone(Exception):
    """Whoever reads the answer has gone."""


def deliver(send, event):
    try:
        send(event)
    except OSError as error:
        raise Gone() from error


class Output:
    """Bytes of a pipe as text, cut between characters only."""

    def __init__(self, name):
        self.name = name
        self.rest = b""

    def take(self, data):
        data, self.rest = self.rest + data, b""
        for back in range(1, min(4, len(data) + 1)):
            lead = data[-back]
            if lead & 0xC0 == 0x80:
                continue
            needs = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            if needs > back:
                data, self.rest = data[:-back], data[-back:]
            break
        return data.decode("utf-8", "replace")


class Contexts:
    def __init__(self):
        self.lock = threading.Lock()
        self.default = Context(HOME)
        self.all = {self.default.id: self.default}

    def find(self, name):
        with self.lock:
            found = self.default if name in (None, "") else self.all.get(name)
        if found is None:
            raise Refused(404, f"there is no context {name}")
        return found

    def create(self, cwd):
        if not os.path.isdir(cwd):
            raise Refused(400, f"there is no directory {cwd}")
        with self.lock:
            if len(self.all) >= MAX_CONTEXTS:
                raise Refused(429, f"there are {MAX_CONTEXTS} contexts, the limit")
            made = Context(cwd)
            self.all[made.id] = made
            return made

    def remove(self, name):
        context = self.find(name)
        with self.lock:
            self.all.pop(context.id, None)
            if context is self.default:
                self.default = Context(HOME)
                self.all[self.default.id] = self.default
        context.stop()

    def reseed(self):
        with self.lock:
            for context in self.all.values():
                context.must_reseed = True


contexts = Contexts()
CONTEXT = re.compile(r"^/contexts/([0-9a-f-]{1,64})(/restart)?$")


def shown(context):
    return {"id": context.id, "language": "python", "cwd": context.cwd}


def require_python(language):
    if language not in (None, "", "python", "python3"):
        raise Refused(400, f"this template runs python only, not {language}")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            data = b"".join(self.chunks())
        else:
            data = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BODY + 1))
        if len(data) > MAX_BODY:
            raise Refused(413, f"the body is over {MAX_BODY} bytes")
        try:
            value = json.loads(data or b"{}")
        except ValueError as error:
            raise Refused(400, "the body is no JSON") from error
        if not isinstance(value, dict):
            raise Refused(400, "the body is no object")
        return value

    def chunks(self):
        left = MAX_BODY + 1
        while left > 0:
            size = int(self.rfile.readline(64).split(b";")[0], 16)
            if size == 0:
                self.rfile.readline(1024)
                return
            yield self.rfile.read(min(size, left))
            self.rfile.readline(16)
            left -= size

    def answer(self, status, value=None):
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def route(self, method):
        path = self.path.split("?", 1)[0]
        match = CONTEXT.match(path)
        if path == "/health":
            return self.answer(200, "OK")
        if (method, path) == ("POST", "/restored"):
            contexts.reseed()
            return self.answer(200, "OK")
        if (method, path) == ("POST", "/execute"):
            return self.execute(self.body())
        if (method, path) == ("GET", "/contexts"):
            return self.answer(200, [shown(context) for context in contexts.all.values()])
        if (method, path) == ("POST", "/contexts"):
            wanted = self.body()
            require_python(wanted.get("language"))
            return self.answer(201, shown(contexts.create(wanted.get("cwd") or HOME)))
        if match and method == "DELETE" and match[2] is None:
            contexts.remove(match[1])
            return self.answer(204)
        if match and method == "POST" and match[2] is not None:
            contexts.find(match[1]).restart()
            return self.answer(200, "OK")
        raise Refused(404, f"there is no {method} {path}")

    def sandbox_envs(self):
        packed = self.headers.get("E2b-Sandbox-Envs")
        return json.loads(gzip.decompress(base64.b64decode(packed))) if packed else {}

    def execute(self, wanted):
        code = wanted.get("code")
        if not isinstance(code, str):
            raise Refused(400, '"code" is the text of a cell')
        if wanted.get("context_id") and wanted.get("language"):
            raise Refused(400, "give either a context or a language")
        require_python(wanted.get("language"))
        context = contexts.find(wanted.get("context_id"))
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def send(event):
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.flush()

        envs = {"sandbox_envs": self.sandbox_envs(), "env_vars": wanted.get("env_vars")}
        context.execute({"code": code, **envs}, send, self.connection)
        self.wfile.write(b"0\r\n\r\n")

    def serve(self, method):
        try:
            self.route(method)
        except Refused as error:
            self.close_connection = True
            self.answer(error.status, {"code": error.status, "message": str(error)})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def do_GET(self):
        self.serve("GET")

    def do_POST(self):
        self.serve("POST")

    def do_DELETE(self):
        self.serve("DELETE")


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


Server(("0.0.0.0", PORT), Handler).serve_forever()
