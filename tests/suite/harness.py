"""What the tests drive the node with: the real binary, and clients that see bytes.

`Node` is one running `millpond serve` with a data folder of its own on ports that the kernel chose. `Wire` is a socket on
which a test writes any bytes and reads answers one by one, as `http.client` would not. `Swarm` keeps requests under way on
several connections and records every answer. Nothing here sleeps and hopes: `eventually` asks for a condition until it
holds, and fails by name when it never does.
"""

import contextlib
import functools
import hashlib
import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MILLPOND = Path(os.environ.get("MILLPOND_BINARY", ROOT / "target" / "release" / "millpond"))
GENERATOR = ROOT / "target" / "release" / "millpond-bench"
GUESTS = ROOT / "build" / "guests"
# The processors that this process, and so a node, may use. Of two that run tests side by side, each begins with another one.
PROCESSORS = sorted(os.sched_getaffinity(0))
_first = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % len(PROCESSORS)
PROCESSORS = PROCESSORS[_first:] + PROCESSORS[:_first]
LONG = bool(os.environ.get("MILLPOND_TEST_LONG"))
# A bound for what must end at all, on a machine that others use too. No test measures by it.
PATIENCE = 60

PHASES = ("queue", "boot", "run", "write")


def eventually(condition, what, patience=PATIENCE):
    """Asks until the condition is true, and returns what it said."""
    deadline = time.monotonic() + patience
    while not (said := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"it never came to be that {what}")
        time.sleep(0.005)
    return said


def guest(name, variant=None):
    """A guest's code. A variant is the same program with another digest: a custom section makes the difference."""
    code = (GUESTS / f"{name}.wasm").read_bytes()
    if variant is not None:
        text = f"variant-{variant}".encode()
        section = bytes([len(text)]) + text
        code += bytes([0, len(section)]) + section
    return code


def certificate(folder, name):
    """A certificate for this machine that is its own root, and its key. The name tells it from others."""
    folder.mkdir(exist_ok=True)
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    command += ["-keyout", key, "-out", cert, "-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def clean_environment():
    """This process's, without what a node or the command would obey."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MILLPOND_", "RUST_LOG"))}


def building_environment():
    """A clean one for build commands: with the toolchain of this repository wherever the folder lies, with one cache for
    all runs, and with the packages that scripts/setup-debian.sh has brought instead of the network."""
    channel = tomllib.loads((ROOT / "rust-toolchain.toml").read_text())["toolchain"]["channel"]
    build = ROOT / "build"
    return clean_environment() | {
        "RUSTUP_TOOLCHAIN": channel, "CARGO_NET_OFFLINE": "true",
        "GOCACHE": str(build / "go-cache"), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local",
        "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(build / "wheels"),
        "npm_config_cache": str(build / "npm-cache"), "npm_config_offline": "true",
    }


@dataclass
class Answer:
    """A response as it was read."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    version: str = "HTTP/1.1"

    @property
    def text(self):
        return self.body.decode()

    @property
    def document(self):
        return json.loads(self.body)

    @property
    def timing(self):
        return read_timing(self.headers["Server-Timing"])

    def problem(self, status, code):
        """Checks that this is such a problem, written for a person too, and returns it."""
        assert self.status == status, (self.status, self.body[:500])
        assert self.headers["Content-Type"] == "application/problem+json"
        problem = self.document
        assert problem["code"] == code, problem
        assert problem["status"] == status
        assert problem["detail"]
        return problem


def read_timing(header):
    """`Server-Timing` as milliseconds by phase."""
    assert header, "there is no Server-Timing"
    phases = {}
    for part in header.split(","):
        match = re.fullmatch(r"\s*([a-z]+);dur=(\d+\.\d{3})", part)
        assert match, f"`{part}` of Server-Timing is not a phase in milliseconds with microseconds"
        phases[match[1]] = float(match[2])
    return phases


class Closed(Exception):
    """The node closed the connection before an answer was complete."""


class Wire:
    """A connection on which a test writes bytes as it likes and reads answers one by one."""

    def __init__(self, address, patience=PATIENCE):
        self.socket = socket.create_connection(address, timeout=patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def end(self):
        """Says that nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def end_with(self, data):
        """Sends the last of it and says that nothing more comes, in one segment if it fits one."""
        assert self.socket.send(data, socket.MSG_MORE) == len(data)
        self.end()

    def reset(self):
        """Leaves as a crashed client does: with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def _more(self):
        try:
            data = self.socket.recv(256 << 10)
        except ConnectionResetError as error:
            raise Closed("reset") from error
        if not data:
            raise Closed(f"after {self.buffer[:200]!r}")
        self.buffer += data

    def read_until(self, mark):
        while (at := self.buffer.find(mark)) < 0:
            self._more()
        taken, self.buffer = self.buffer[: at + len(mark)], self.buffer[at + len(mark) :]
        return taken

    def read(self, to="GET"):
        """The next response; `to` is the method that it answers. Interim responses are answers like others."""
        head = self.read_until(b"\r\n\r\n")
        line, _, fields = head.partition(b"\r\n")
        version, status, _ = line.decode("latin-1").split(" ", 2)
        headers = http.client.parse_headers(_Lines(fields))
        length = int(headers.get("Content-Length", 0))
        if to == "HEAD" or status.startswith("1"):
            length = 0
        while len(self.buffer) < length:
            self._more()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(int(status), headers, body, version)

    def is_closed(self):
        """Waits until the node closes, which it must without saying anything more."""
        try:
            self._more()
        except Closed:
            return True
        return False


class _Lines:
    """What `http.client.parse_headers` reads from."""

    def __init__(self, data):
        self.lines = data.split(b"\r\n")

    def readline(self, _limit=-1):
        return self.lines.pop(0) + b"\r\n"


def get(path, host="localhost", method="GET", headers="", version="HTTP/1.1"):
    """The bytes of a request without a body."""
    return f"{method} {path} {version}\r\nHost: {host}\r\n{headers}\r\n".encode()


class Application:
    """What was deployed, and how it is reached."""

    def __init__(self, node, name, deployment):
        self.node = node
        self.name = name
        self.deployment = deployment

    def path(self, function, rest=""):
        return f"/function/{self.name}.{function}{rest}"

    def call(self, function, body=None, rest="", method=None, headers=None):
        method = method or ("GET" if body is None else "POST")
        return self.node.request(method, self.path(function, rest), body, headers)

    def versions(self):
        return {change["function"]: change.get("to") for change in self.deployment["changes"]}


@functools.cache
def counts_executables():
    """Whether this host keeps the limits of executables: where it does not, nodes are told to run them all the same."""
    said = subprocess.run([MILLPOND, "doctor", "-o", "json"], env=clean_environment(), stdout=subprocess.PIPE, check=False)
    [finding] = [finding for finding in json.loads(said.stdout) if finding["capability"] == "limits of executables"]
    return finding["state"] == "ok"


class Node:
    """A running node. `stop` ends it as an operator does, `kill` as a power cut does; `start` starts it again."""

    def __init__(self, folder, cores=PROCESSORS[:1], config="", token=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = self.folder / "data"
        self.log = self.folder / "node.log"
        self.token = token
        self.process = None
        self.ending = False
        self.command = [MILLPOND, "serve", "-o", "json", "--log", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        self.command += ["--data", self.data, "--cores", ",".join(map(str, cores))]
        if "[process]" not in config and not counts_executables():
            config += "\n[process]\nallow_uncounted = true\n"
        if config:
            path = self.folder / "config.toml"
            path.write_text(config)
            self.command += ["--config", path]

    def start(self, ready=True):
        environment = clean_environment() | ({"MILLPOND_TOKEN": self.token} if self.token else {})
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=environment, stdout=subprocess.PIPE, stderr=log)
        self.ending = False
        announced = self._announcement()
        self.listen = _address(announced["listen"])
        self.admin = _address(announced["admin"])
        self.tls = _address(announced["tls"]) if "tls" in announced else None
        self.s3 = announced.get("s3")
        if ready:
            eventually(lambda: self.control("GET", "/readyz").status == 200, "the node is ready")
        return self

    def _announcement(self):
        line, deadline = b"", time.monotonic() + PATIENCE
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            readable = left > 0 and select.select([self.process.stdout], [], [], left)[0]
            data = os.read(self.process.stdout.fileno(), 4096) if readable else b""
            if not data:
                self.kill()
                raise AssertionError(f"the node did not say where it listens:\n{self.last_words()}")
            line += data
        return json.loads(line)

    @property
    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def terminate(self):
        self.ending = True
        self.process.send_signal(signal.SIGTERM)

    def wait(self):
        code = self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()
        return code

    def stop(self):
        """Ends it in order, and checks that it took it well."""
        if not self.ending:
            self.terminate()
        code = self.wait()
        assert code == 0, f"the node ended with {code}:\n{self.last_words()}"
        assert "panicked" not in self.log.read_text(errors="replace"), self.last_words()

    def kill(self):
        """`kill -9`."""
        if self.is_running:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def last_words(self):
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else "(no log)"

    # --- requests ---

    def connect(self):
        return http.client.HTTPConnection(*self.listen, timeout=PATIENCE)

    def wire(self):
        return Wire(self.listen)

    def request(self, method, path, body=None, headers=None):
        """One request on a connection of its own."""
        return _request(self.connect(), method, path, body, headers)

    def control(self, method, path, document=None, headers=None, body=None, patience=PATIENCE):
        """One request to the control API, whose answer may take so many seconds."""
        headers = dict(headers or {})
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        if document is not None:
            body = json.dumps(document)
            headers.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection(*self.admin, timeout=patience)
        return _request(connection, method, path, body, headers)

    def deploy(self, name, functions, triggers=(), plan=False):
        """Uploads code and deploys: `functions` is, by name, a guest's name or (its code, settings)."""
        answer = self.try_deploy(name, functions, triggers, plan)
        assert answer.status == 200, (answer.status, answer.body)
        return Application(self, name, answer.document)

    def try_deploy(self, name, functions, triggers=(), plan=False):
        triggers = triggers if isinstance(triggers, dict) else {"http": list(triggers)}
        manifest = {"application": {"name": name}, "function": {}, "trigger": triggers}
        code = {}
        for function, what in functions.items():
            program, settings = what if isinstance(what, tuple) else (what, {})
            program = guest(program) if isinstance(program, str) else program
            code[function] = hashlib.sha256(program).hexdigest()
            manifest["function"][function] = {"source": f"{function}.wasm"} | settings
            uploaded = self.control("PUT", f"/v1/code/{code[function]}", body=program)
            assert uploaded.status in (200, 201), uploaded.body
        path = f"/v1/applications/{name}/deployments?plan={str(plan).lower()}"
        # An optimising compiler takes minutes for some on a slow machine. The test's own limit ends it, too.
        return self.control("POST", path, {"manifest": manifest, "code": code}, patience=300)

    def records(self, function, query=""):
        """What a function logged."""
        answer = self.control("GET", f"/v1/functions/{function}/logs{query}")
        assert answer.status == 200, answer.body
        return [json.loads(line) for line in answer.body.splitlines()]

    def metrics(self):
        """All series: {name{labels}: number}."""
        answer = self.control("GET", "/metrics")
        assert answer.status == 200
        lines = (line.rpartition(" ") for line in answer.text.splitlines() if line and not line.startswith("#"))
        return {series: float(value) for series, _, value in lines}

    def cli(self, *words, **options):
        """Runs the command against this node."""
        return cli(*words, admin="http://{}:{}".format(*self.admin), token=self.token, **options)

    # --- what /proc says ---

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_bytes(self):
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def cli(*words, admin=None, folder=ROOT, given=None, token=None, environment=()):
    """Runs the command, with more in its environment if there is to be."""
    environment = clean_environment() | dict(environment)
    if admin:
        environment["MILLPOND_ADMIN"] = admin
    if token:
        environment["MILLPOND_TOKEN"] = token
    command = [str(word) for word in (MILLPOND, *words)]
    return subprocess.run(command, cwd=folder, env=environment, input=given, capture_output=True, timeout=60, check=False)


def generator(node, path, connections, seconds, *more):
    """Starts a client on the last processor that asks for a path on so many connections, on each as soon as it was answered. Its
    report comes on standard output."""
    command = [GENERATOR, "load", "--address", "{}:{}".format(*node.listen), "--server", node.process.pid, "--core", PROCESSORS[-1]]
    command += ["--target", path, "--connections", connections, "--seconds", seconds, *more]
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _address(url):
    host, _, port = url.partition("://")[2].rpartition(":")
    return host, int(port)


def _request(connection, method, path, body, headers):
    with contextlib.closing(connection):
        connection.request(method, path, body, headers or {})
        return answer_of(connection)


def answer_of(connection):
    """The answer to the request that an `http.client` connection has under way."""
    response = connection.getresponse()
    return Answer(response.status, response.headers, response.read())


class Swarm:
    """Clients that ask for one path over and over until told to stop, each on a connection of its own.

    Every answer goes to `check`; what it raises, and every connection that breaks, is in `errors`. A connection that the
    node closes in order, between two answers or after one that says so, is opened anew and is no error.
    """

    def __init__(self, node, path, clients=4, check=None):
        self.node = node
        self.path = path
        self.check = check or (lambda answer: None)
        self.errors = []
        self.count = 0
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a client waits for ever for an answer"

    def _run(self):
        wire, request, fresh = None, get(self.path), True
        while not self.stopping.is_set():
            try:
                if wire is None:
                    wire, fresh = self.node.wire(), True
                wire.send(request)
                answer = wire.read()
                fresh = False
                self.check(answer)
                with self.lock:
                    self.count += 1
                if (answer.headers["Connection"] or "").lower() == "close":
                    wire.close()
                    wire = None
            except (Closed, OSError, AssertionError) as error:
                with self.lock:
                    self.errors.append(f"{type(error).__name__}: {error} (fresh connection: {fresh})")
                if len(self.errors) > 20:
                    break
                if wire:
                    wire.close()
                wire = None
        if wire:
            wire.close()

    def served(self, more):
        """Waits until so many more requests were answered."""
        goal = self.count + more
        eventually(lambda: self.count >= goal or self.errors, f"{more} more requests are answered")
