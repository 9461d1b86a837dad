#!/usr/bin/env python3
"""Shows the examples on a node: starts one on free loopback ports with an empty data folder, deploys every example,
invokes it with its test vectors, compares the answers, and stops the node. Needs Python's standard library only.

    scripts/demo.py                all examples
    scripts/demo.py ocr plate      only these

Each vector goes in twice: by `millpond invoke`, and as a plain HTTP request to the route of the example's manifest,
whose `Server-Timing` header is what the table shows. Vectors that an example must refuse are counted, not shown. An example
without a route is one that an object makes run: the vector is written to the node's own S3, and the object that comes of it read.
Exit code: 0 all as expected, 1 not, 2 usage.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MILLPOND = ROOT / "target" / "release" / "millpond"
EXAMPLES = ROOT / "examples"
# What no machine needs to be able to build, and what it takes.
OPTIONAL = {"hello-http-js": "Node 20 or later"}
START_SECONDS = 30
CALL_SECONDS = 60


class Failed(Exception):
    """The demo cannot go on."""


def free_ports(count):
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def request(port, method, path, body=None):
    """(status, headers, body) of one HTTP request to this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CALL_SECONDS)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


class Node:
    """A running node; `with` stops it."""

    def __init__(self, folder):
        self.data_port, self.admin_port = free_ports(2)
        self.log = Path(folder) / "node.log"
        configuration = Path(folder) / "node.toml"
        configuration.write_text('[s3]\nembedded = "127.0.0.1:0"\n')
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MILLPOND_")}
        self.environment = {**inherited, "MILLPOND_ADMIN": f"http://127.0.0.1:{self.admin_port}"}
        command = [MILLPOND, "serve", "--listen", f"127.0.0.1:{self.data_port}", "--admin", f"127.0.0.1:{self.admin_port}"]
        with self.log.open("wb") as log:
            command += ["--data", Path(folder) / "data", "--config", configuration]
            self.process = subprocess.Popen(command, env=inherited, stdout=log, stderr=log)

    def __enter__(self):
        try:
            self.wait_until_ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed(f"the node did not stop within {START_SECONDS} s\n{self.last_words()}") from None
        if code != 0:
            raise Failed(f"the node ended with code {code}\n{self.last_words()}")

    def wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Failed(f"the node ended with code {self.process.returncode} before it was ready\n{self.last_words()}")
            try:
                if request(self.admin_port, "GET", "/readyz")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.01)
        raise Failed(f"the node was not ready within {START_SECONDS} s\n{self.last_words()}")

    def last_words(self):
        """The end of what the node logged."""
        return self.log.read_text(errors="replace")[-4000:]

    def millpond(self, *words, folder=ROOT):
        """Runs the command against this node."""
        return subprocess.run([MILLPOND, *words], cwd=folder, env=self.environment, capture_output=True, timeout=CALL_SECONDS, check=False)


def vectors(example):
    """(name, input, expected output or None where it must be refused) of each vector."""
    for given in sorted((EXAMPLES / example / "vectors").glob("*.input.*")):
        name = given.name.split(".input.")[0]
        expected = next(iter(given.parent.glob(f"{name}.output.*")), None)
        yield name, given, expected


def short(body, content_type):
    """A response on one line."""
    kind = content_type.partition(";")[0]
    if not kind.startswith("text/"):
        return f"{kind}, {len(body)} bytes"
    if not body:
        return "(empty)"
    lines = body.decode(errors="replace").split("\n")
    rest = sum(1 for line in lines[1:] if line)
    first = lines[0] if len(lines[0]) <= 36 else lines[0][:35] + "…"
    return first + (f" (+{rest} lines)" if rest else "")


def timing(header):
    """`Server-Timing` as a person reads it."""
    phases = []
    for part in (header or "").split(","):
        name, _, parameter = part.strip().partition(";dur=")
        phases.append(f"{name} {parameter}" if parameter else name)
    return ", ".join(phases) + " ms" if header else "no Server-Timing"


def answer(node, function, path, given, expected):
    """(problem or None, output, timing) of one vector, by both ways in."""
    invoked = node.millpond("invoke", function, "--data", f"@{given}")
    status, headers, body = request(node.data_port, "POST", path, given.read_bytes())
    if expected is None:
        if status != 502 or json.loads(body).get("code") != "function-exit":
            return f"should have been refused; HTTP said {status}: {body[:200]!r}", body, ""
        if invoked.returncode != 1:
            return f"should have been refused; `millpond invoke` ended with code {invoked.returncode}", body, ""
        return None, body, ""
    wanted = expected.read_bytes()
    if invoked.returncode != 0:
        return f"`millpond invoke` ended with code {invoked.returncode}: {invoked.stderr.decode(errors='replace').strip()}", b"", ""
    if invoked.stdout != wanted:
        return f"`millpond invoke` gave {invoked.stdout[:60]!r}, expected {wanted[:60]!r}", invoked.stdout, ""
    if status != 200 or body != wanted:
        return f"HTTP gave {status} and {body[:60]!r}, expected {wanted[:60]!r}", body, ""
    return None, short(body, headers.get("Content-Type", "")), timing(headers.get("Server-Timing"))


def report(node, trigger, given, expected):
    """(problem or None, output, where it lies) of one vector that comes as an object: what is written beside it, under `reports/`."""
    bucket, name = trigger["bucket"], given.name.partition(".")[0]
    source = f"s3://{bucket}/{trigger['prefix']}{name}{trigger['suffix']}"
    result = f"s3://{bucket}/reports/{name}{expected.suffix}"
    written = node.millpond("s3", "cp", str(given), source)
    if written.returncode != 0:
        return f"`millpond s3 cp` ended with code {written.returncode}: {written.stderr.decode(errors='replace').strip()}", b"", ""
    deadline = time.monotonic() + CALL_SECONDS
    while (read := node.millpond("s3", "cp", result, "-")).returncode != 0:
        if time.monotonic() > deadline:
            return f"{result} did not come: {node.millpond('calls').stdout.decode(errors='replace')}", b"", ""
        time.sleep(0.01)
    if read.stdout != expected.read_bytes():
        return f"{result} is {read.stdout[:60]!r}, expected {expected.read_bytes()[:60]!r}", read.stdout, ""
    return None, f"application/json, {len(read.stdout)} bytes", f"{source} -> {result}"


def is_built(example):
    """Whether its code is there; what is optional may be missing."""
    manifest = tomllib.loads((EXAMPLES / example / "millpond.toml").read_text())
    return all((EXAMPLES / example / function["source"]).exists() for function in manifest["function"].values())


def show(node, example):
    """Deploys one example, prints its answers, and returns how many went wrong."""
    deployed = node.millpond("deploy", folder=EXAMPLES / example)
    if b"engine-unavailable" in deployed.stderr:
        print(f"skipped {example}: this machine lacks what its engine needs; `millpond doctor` says what")
        return 0
    if deployed.returncode != 0:
        print(f"FAIL {example}: deploy: {deployed.stderr.decode(errors='replace').strip()}")
        return 1
    manifest = tomllib.loads((EXAMPLES / example / "millpond.toml").read_text())
    [(kind, [trigger])] = manifest["trigger"].items()
    function = f"{manifest['application']['name']}.{trigger['function']}"
    if kind == "object":
        node.millpond("s3", "mb", f"s3://{trigger['bucket']}")

    failures = shown = refused = 0
    for name, given, expected in vectors(example):
        if kind == "object":
            problem, output, times = report(node, trigger, given, expected)
        else:
            problem, output, times = answer(node, function, trigger["path"], given, expected)
        if problem:
            failures += 1
            print(f"FAIL {example:17} {name:20} {problem}")
        elif expected is None:
            refused += 1
        else:
            shown += 1
            print(f"ok   {example:17} {given.name:28} {output:48} {times}")
    if refused:
        print(f"ok   {example:17} {refused} bad inputs, each refused by the function and reported as its fault")
    if shown == 0:
        failures += 1
        print(f"FAIL {example}: no vector gave an answer")
    return failures


def main():
    names = sorted(path.parent.name for path in EXAMPLES.glob("*/millpond.toml"))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("example", nargs="*", help="only these")
    chosen = parser.parse_args().example or names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no such example: {', '.join(unknown)}; there are {', '.join(names)}")
    if not MILLPOND.exists():
        raise Failed(f"{MILLPOND} is missing: run `make build`")

    with tempfile.TemporaryDirectory(prefix="millpond-demo-") as folder, Node(folder) as node:
        print(f"     {'example':17} {'input':28} {'output':48} timing")
        failures = skipped = 0
        for name in chosen:
            if name in OPTIONAL and not is_built(name):
                skipped += 1
                print(f"skipped {name}: it is not built; that takes {OPTIONAL[name]}")
            else:
                failures += show(node, name)
    print(f"{failures} failed" if failures else f"{len(chosen) - skipped} examples answered as expected")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, OSError, subprocess.TimeoutExpired) as failure:
        sys.exit(f"demo: {failure}")
