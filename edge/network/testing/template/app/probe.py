"""Does what it is told on the network and says how each step ended: JSON lists over HTTP, one entry a step."""
import errno, http.server, json, socket, ssl, struct, subprocess, time, urllib.error, urllib.request

def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET

def word(error):
    if isinstance(error, (socket.timeout, TimeoutError)): return "hangs"
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, OSError): error = error.reason
    if isinstance(error, socket.gaierror): return "unresolved"
    if isinstance(error, OSError) and error.errno: return errno.errorcode.get(error.errno, str(error.errno))
    return type(error).__name__

def dial(step):
    connection = socket.socket(family(step["address"]), socket.SOCK_STREAM)
    connection.settimeout(step.get("timeout", 5))
    connection.connect((step["address"], step["port"]))
    return connection

def said(data):
    return data.decode("latin1").strip().split("\n")[-1] if data else "ended"

def tcp(step):
    with dial(step) as connection:
        connection.sendall(step.get("send", "hello").encode())
        return said(connection.recv(4096))

def web(step):
    with dial(step) as connection:
        answers = []
        for host in step["hosts"]:
            try:
                connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                data = connection.recv(4096)
                if data.endswith(b"\r\n\r\n"): data += connection.recv(4096)
            except OSError as error:
                return answers + [word(error)]
            answers.append(said(data))
        return answers

def fetch(step):
    """As a package manager does it: by name, over TLS where the address says so."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(step["url"], timeout=5, context=context) as answer:
        return answer.read().decode().strip()

def tls(step):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with dial(step) as connection, context.wrap_socket(connection, server_hostname=step.get("sni")) as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return said(secure.recv(4096))

def udp(step):
    with socket.socket(family(step["address"]), socket.SOCK_DGRAM) as connection:
        connection.settimeout(step.get("timeout", 2))
        connection.connect((step["address"], step["port"]))
        connection.send(b"hello")
        return said(connection.recv(4096))

def question(name, kind):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part)
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)

kinds = {"A": 1, "TXT": 16, "AAAA": 28, "NULL": 10, "ANY": 255}
codes = {0: "ok", 1: "malformed", 2: "failed", 3: "unknown", 5: "refused"}

def dns(step):
    asked = question(step["name"], kinds[step.get("type", "A")])
    server = step.get("server", "172.31.255.1")
    if step.get("over") == "tcp":
        with dial({"address": server, "port": 53}) as connection:
            connection.sendall(struct.pack(">H", len(asked)) + asked)
            data = connection.recv(4096)[2:]
    else:
        with socket.socket(family(server), socket.SOCK_DGRAM) as connection:
            connection.settimeout(step.get("timeout", 3))
            connection.connect((server, 53))
            connection.send(asked)
            data = connection.recv(4096)
    return codes.get(data[3] & 15, str(data[3] & 15))

def resolve(step):
    found = socket.getaddrinfo(step["name"], 80, type=socket.SOCK_STREAM)
    return sorted({entry[4][0] for entry in found})

def spoof(step):
    """A UDP datagram with another source address, and whether anything came of it is for the server to say."""
    payload = b"spoofed"
    datagram = struct.pack(">HHHH", 4000, step["port"], 8 + len(payload), 0) + payload
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(datagram), 1, 0, 64, 17, 0,
                       socket.inet_aton(step["source"]), socket.inet_aton(step["address"]))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        raw.sendto(head + datagram, (step["address"], 0))
    return "sent"

def stream(step):
    """Reads and writes for so long, and says how it ended and after how many bytes."""
    count, until = 0, time.monotonic() + step["seconds"]
    try:
        with dial(step) as connection:
            connection.sendall(b"stream")
            connection.settimeout(0.1)
            while time.monotonic() < until:
                try: data = connection.recv(65536)
                except TimeoutError: data = b"."
                if not data: return ["ended", count]
                count += len(data)
                connection.sendall(b"x")
            return ["went on", count]
    except Exception as error:
        return [word(error), count]

def pull(step):
    """Bytes a second of what a server sends."""
    with dial(step) as connection:
        connection.sendall(f"pull {step['bytes']}".encode())
        buffer, count, started = bytearray(1 << 20), 0, None
        while count < step["bytes"]:
            read = connection.recv_into(buffer)
            if read == 0: raise EOFError
            started = started or time.monotonic()
            count += read
        return count / (time.monotonic() - started)

def push(step):
    """Bytes a second of what a server takes, until it has it all."""
    block = bytes(1 << 16)
    with dial(step) as connection:
        connection.sendall(f"push {step['bytes']:>12}".encode())
        connection.recv(1)
        started = time.monotonic()
        for _ in range(step["bytes"] // len(block)): connection.sendall(block)
        connection.recv(1)
        return step["bytes"] / (time.monotonic() - started)

def connect(step):
    """Milliseconds of one connection, the middle of many."""
    times = []
    for _ in range(step["count"]):
        started = time.monotonic()
        dial(step).close()
        times.append((time.monotonic() - started) * 1000)
    return sorted(times)[len(times) // 2]

def run(step):
    done = subprocess.run(step["argv"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return [done.returncode, done.stdout.decode("utf8", "replace")[-4000:]]

def sleep(step):
    time.sleep(step["seconds"])
    return "slept"

steps = {f.__name__: f for f in (tcp, web, fetch, tls, udp, dns, resolve, spoof, stream, pull, push, connect, run, sleep)}

def take(step):
    started = time.monotonic()
    try: outcome = steps[step["do"]](step)
    except Exception as error: outcome = word(error)
    return {"outcome": outcome, "ms": round((time.monotonic() - started) * 1000)}

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(b"ready")

    def do_POST(self):
        steps = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.answer(json.dumps([take(step) for step in steps]).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Handler).serve_forever()
