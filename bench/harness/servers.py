"""Starts servers on one core, measures them from another, and ends them."""

import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "target/release/millpond-bench"


class Unavailable(Exception):
    """A contender that cannot take part, and why."""


def allow_many_connections():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def exchange(port, target, body=None, timeout=5):
    """One request on a connection of its own: the answer's status, headers as a list of pairs, and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET" if body is None else "POST", target, body)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    except http.client.HTTPException as broken:
        raise ConnectionError(f"no answer: {broken!r}") from broken
    finally:
        connection.close()


class Server:
    """A process, with all it starts, tied to one core (or to `cores`, of which `core` is its own). `target` is what is asked of it to see that it answers."""

    def __init__(self, name, command, port, core, logs, target="/", environment=None, cores=None):
        self.name, self.port, self.core = name, port, core
        logs.mkdir(parents=True, exist_ok=True)
        self.log = logs / (name.replace(" ", "-").replace("/", "-") + ".log")
        self.started = time.perf_counter()
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **(environment or {})},
                preexec_fn=lambda: os.sched_setaffinity(0, cores or {core}),
            )
        try:
            self.wait_until_it_answers(target)
        except BaseException:
            self.stop()
            raise

    def wait_until_it_answers(self, target, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                exchange(self.port, target)
                return
            except OSError:
                time.sleep(0.002)
        raise Unavailable(f"{self.name} does not answer: {self.last_words()}")

    def last_words(self):
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else f"see {self.log.relative_to(ROOT)}"

    @property
    def pid(self):
        return self.process.pid

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


def measure(*arguments):
    """Runs the measuring binary and returns what it says."""
    done = subprocess.run([str(TOOL), *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode != 0:
        reason = done.stderr.split("Stack backtrace")[0].strip().replace("\n", " ")
        raise Unavailable(f"millpond-bench {arguments[0]} failed: {reason}")
    return json.loads(done.stdout)


def load_command(server, client_core, *, target="/", expect=None, connections, seconds, warm, **more):
    """Arguments of the load generator. `expect` is a file; with several targets, given as a list, it and `weight` are lists, too.
    `more` are other options of `millpond-bench load`, by name."""
    arguments = ["load", "--address", f"127.0.0.1:{server.port}"]
    arguments += ["--connections", connections, "--seconds", seconds, "--warm", warm, "--core", client_core]
    arguments += ["--server", server.pid, "--server-core", server.core]
    for name, value in {"target": target, "expect": expect, **more}.items():
        if value is True:
            arguments.append(f"--{name}")
        elif value is not None:
            for one in value if isinstance(value, (list, tuple)) else [value]:
                arguments += [f"--{name}", one]
    return arguments


def load(server, client_core, **slot):
    """One slot of load on a server."""
    return measure(*load_command(server, client_core, **slot))


def cpu_seconds(pid):
    """CPU time of a process's living threads, to the nanosecond."""
    total = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((thread / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9


def settle(server, seconds=5):
    """Waits until a server has nothing more to do."""
    end = time.monotonic() + seconds
    before = cpu_seconds(server.pid)
    while time.monotonic() < end:
        time.sleep(0.03)
        now = cpu_seconds(server.pid)
        if now - before < 0.003:
            return
        before = now


def resident_bytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
