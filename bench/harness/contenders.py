"""Who takes part: the node, and its peers. Each is a server on the server's core that answers `GET /` (or its own
target) with "pong" and, where it can, a POST with the request's body."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from .results import output_of
from .servers import ROOT, TOOL, Server, Unavailable, exchange, free_port

MILLPOND = ROOT / "target/release/millpond"
WASMTIME = ROOT / "build/tools/bin/wasmtime"
COMPONENT = ROOT / "build/peers/wasi-http.wasm"
WORKERD = ROOT / "build/peers/workerd/node_modules/@cloudflare/workerd-linux-64/bin/workerd"
# Our own engine's settings where there is such an option (they halve the cost of a fresh instance), and a pool that is
# large enough for the most connections: with the default of 1000 the 1001st request is answered with 500.
SERVE_TUNING = [f"pooling-total-{what}=2000" for what in ("core-instances", "component-instances", "memories", "tables", "stacks")]
SERVE_TUNING += ["pooling-memory-keep-resident=131072", "pooling-table-keep-resident=16384", "pooling-pagemap-scan=y"]
EXAMPLES = ROOT / "examples"
VERSION = re.compile(r"\d[\d.-]*\d")
FRESH, NATIVE, PLAIN, BARE = "millpond, fresh sandbox", "millpond, no sandbox", "millpond, no function", "bare epoll loop"
REFUSING = "bare epoll loop that computes or refuses"
SERVE, REUSE = "wasmtime serve, fresh", "wasmtime serve, 128 uses"
WORKERD_NAME, NODE_NAME, FORK = "workerd", "Node", "fork + exec"
EVERYONE = [FRESH, PLAIN, BARE, SERVE, REUSE, WORKERD_NAME, NODE_NAME, FORK]
SERVE_THREADS, NODE_THREADS = "wasmtime serve, 16 threads", "Node, 16 threads"
# Churn is measured without a server around it.
SANDBOX, PROCESS = "sandbox", "fork + exec + wait"


def versions():
    """Of everything that takes part and is there."""
    said = {
        "millpond": output_of(MILLPOND, "--version"),
        "rustc": output_of("rustc", "--version"),
        "wasmtime": output_of(WASMTIME, "--version"),
        "workerd": output_of(WORKERD, "--version"),
        "Node": output_of("node", "--version"),
    }
    return ", ".join(f"{name} {VERSION.search(text).group()}" for name, text in said.items() if text)


class Millpond(Server):
    """A node on one core (or on `cores`) with an empty data folder, or one that another run has left. `config` are keys of
    its configuration. A `native` one runs no sandboxes: whatever is deployed answers "pong"."""

    def __init__(self, core, folder, logs, name=FRESH, config=None, cores=None, native=False):
        self.folder, self.admin, self.token = folder, free_port(), (config or {}).get("admin_token", "")
        port = free_port()
        if not MILLPOND.exists():
            raise Unavailable("target/release/millpond is missing: run `make build`")
        command = [TOOL, "native"] if native else self.program()
        command += ["--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{self.admin}"]
        command += ["--data", folder, "--cores", ",".join(map(str, sorted(cores or {core})))]
        if config:
            file = folder.with_suffix(".toml")
            # A string of JSON is one of TOML.
            file.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
            command += ["--config", file]
        super().__init__(name, command, port, core, logs, target="/healthz", cores=cores)

    def program(self):
        """What is started."""
        return [MILLPOND, "serve"]

    def command(self, *words):
        """What `millpond` says to that."""
        environment = {**os.environ, "MILLPOND_ADMIN": f"http://127.0.0.1:{self.admin}", "MILLPOND_TOKEN": self.token}
        words = [str(word) for word in words]
        done = subprocess.run([MILLPOND, *words], env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"`millpond {' '.join(words)}` failed: {done.stderr.strip()}")
        return done.stdout

    def deploy(self, folder, tenant=None):
        self.command("deploy", folder, *(["--tenant", tenant] if tenant else []))


def needed(path, what):
    if not Path(path).exists():
        raise Unavailable(f"{what} is missing; bench/setup fetches it")


def bare(core, logs, answer=None, name=BARE, cores=None):
    port = free_port()
    command = [TOOL, "bare", "--listen", f"127.0.0.1:{port}", "--core", ",".join(map(str, sorted(cores or {core})))]
    return Server(name, command + (["--answer", answer] if answer else []), port, core, logs, cores=cores)


def refusing(core, logs, rounds, waiting):
    """Computes so many rounds for each request, and refuses at once whoever would wait behind so many others."""
    port = free_port()
    command = [TOOL, "bare", "--listen", f"127.0.0.1:{port}", "--core", core, "--rounds", rounds, "--waiting", waiting]
    return Server(REFUSING, command, port, core, logs)


def wasmtime_serve(core, logs, uses=1, component=COMPONENT, name=None, threads=None, options=()):
    """`threads`: as many as its runtime has, beside each other on its core; one for each core if not said."""
    needed(WASMTIME, "wasmtime")
    needed(component, "the component for wasmtime serve")
    port = free_port()
    command = [WASMTIME, "serve", "-S", "cli", "--addr", f"127.0.0.1:{port}", "--max-instance-reuse-count", uses]
    command += [word for option in SERVE_TUNING for word in ("-O", option)] + [*options, component]
    environment = {"TOKIO_WORKER_THREADS": str(threads)} if threads else None
    return Server(name or (SERVE if uses == 1 else REUSE), command, port, core, logs, environment=environment)


def workerd(core, logs):
    needed(WORKERD, "workerd")
    port = free_port()
    command = [WORKERD, "serve", "bench/peers/workerd/config.capnp", "--socket-addr", f"http=127.0.0.1:{port}"]
    return Server(WORKERD_NAME, command, port, core, logs)


def node(core, logs):
    if not shutil.which("node"):
        raise Unavailable("node is missing (Debian: nodejs)")
    port = free_port()
    return Server(NODE_NAME, ["node", "bench/peers/node/server.js", port], port, core, logs)


def node_threads(core, logs, threads=16):
    if not shutil.which("node"):
        raise Unavailable("node is missing (Debian: nodejs)")
    port = free_port()
    return Server(NODE_THREADS, ["node", "bench/peers/node/threads.js", port, threads], port, core, logs)


def fork_exec(core, logs, program):
    needed(program[0], program[0])
    port = free_port()
    command = [TOOL, "fork-exec", "--listen", f"127.0.0.1:{port}", "--core", core, "--", *program]
    return Server(FORK, command, port, core, logs)


def whole_answer(server, target):
    """The bytes that a server answers with, for the bare loop to repeat."""
    _, headers, body = exchange(server.port, target)
    lines = ["HTTP/1.1 200 OK", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Example:
    """A deployable example, its program for the host, and the vector that is measured."""

    VECTORS = {"gps-ekf": "second-60", "ocr": "scan", "digits": "digit-7", "resize": "flower"}

    def __init__(self, name):
        self.name, self.folder = name, EXAMPLES / name
        manifest = tomllib.loads((self.folder / "millpond.toml").read_text())
        function = manifest["function"][name]
        self.module = (self.folder / function["source"]).resolve()
        self.memory = function.get("memory", "64MiB")
        static = ROOT / f"build/bench/static/{name}.native"
        native = static if static.exists() else ROOT / f"build/examples/{name}.native"
        arguments = function.get("arguments", [])
        self.program = [str(native), *arguments]
        self.timed = [str(ROOT / f"build/bench/timed/{name}.native"), *arguments]
        self.input, self.expected = self.vector()

    def vector(self):
        """(None, None) if there is none yet."""
        def output_for(given):
            return next(iter(given.parent.glob(given.name.split(".input.")[0] + ".output.*")), None)

        inputs = sorted(self.folder.glob("vectors/*.input.*"), key=lambda path: path.stat().st_size, reverse=True)
        pairs = [(given, output_for(given)) for given in inputs if output_for(given)]
        wanted = self.VECTORS.get(self.name)
        named = [pair for pair in pairs if pair[0].name.startswith(f"{wanted}.")]
        return next(iter([*named, *pairs]), (None, None))

    def ready(self):
        files = [self.module, self.program[0], self.timed[0]]
        return self.input is not None and all(Path(file).exists() for file in files)


def examples():
    """Those that a native program can be compared with, which HTTP handlers cannot, from the least work to the most."""
    order = ["gps-ekf", "digits", "ocr", "resize", "plate"]
    names = (path.parent.name for path in EXAMPLES.glob("*/millpond.toml"))
    found = sorted((name for name in names if not name.startswith("hello-http-")), key=lambda name: (order + [name]).index(name))
    return [Example(name) for name in found]
