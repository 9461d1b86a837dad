"""What is counted, and `millpond top`: the numbers against requests that the test made, and the picture in a real terminal."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest
from harness import MILLPOND, PATIENCE, PROCESSORS, Swarm, clean_environment, eventually, get
from test_tenants import make_tenant
from test_triggers import deploy


def counters(who):
    answer = who.control("GET", "/v1/counters")
    assert answer.status == 200, answer.body
    return answer.document


def counted(who, function):
    return next(one for one in counters(who)["functions"] if one["function"] == function)


# --- what is counted ---


def test_every_invocation_is_counted_where_it_belongs(make_node):
    node = make_node(config='drain = "100ms"\n')
    app = node.deploy("count", {"ping": "ping", "bad": "exit3", "narrow": ("sleep", {"concurrency": 1, "queue": 2})})
    begun = counters(node)
    for _ in range(20):
        assert app.call("ping").status == 200
    for _ in range(3):
        app.call("bad").problem(502, "function-exit")
    # One that runs, two that wait, one that is refused.
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(node.wire()) for _ in range(3)]
        for n, wire in enumerate(wires):
            wire.send(get(app.path("narrow", "?ms=60000" if n == 0 else "?ms=0")))
            eventually(lambda: counted(node, "count.narrow")["running"] == 1, "it runs")
        now = lambda: [counted(node, "count.narrow")[what] for what in ("running", "queued")]  # noqa: E731
        eventually(lambda: now() == [1, 2], "one runs and two wait")
        app.call("narrow", rest="?ms=0").problem(429, "limit-queue")
        series = node.metrics()
        assert series['millpond_invocations_running{faas_name="count.narrow"}'] == 1
        assert series['millpond_invocations_queued{faas_name="count.narrow"}'] == 2
        # A version that has been replaced still runs what it began.
        node.deploy("count", {"ping": "ping", "bad": "exit3", "narrow": ("sleep", {"concurrency": 1, "queue": 3})})
        assert now() == [1, 2]
    # Nobody waits for them any more, and what still runs of them ends with the node.
    after = counters(node)
    assert after["started"] == begun["started"] and after["uptime"] > begun["uptime"]
    by_name = {one["function"]: one for one in after["functions"]}
    ping, bad = by_name["count.ping"], by_name["count.bad"]
    assert (ping["succeeded"], ping["failed"]) == (20, {})
    assert (bad["succeeded"], bad["failed"]) == (0, {"function": 3})
    assert by_name["count.narrow"]["failed"]["refused"] == 1
    for one, times in ((ping, 20), (bad, 3)):
        for phase in ("queue", "run", "total"):
            assert sum(one[phase]["counts"]) == times, phase
            assert len(one[phase]["counts"]) == len(after["bounds"]) + 1
        assert 0 < one["run"]["sum"] <= one["total"]["sum"]
    assert len(after["node"]["cores"]) == 1 and after["node"]["cores"][0]["busy"] <= after["uptime"]


def test_a_preemption_is_counted_for_the_function_that_lost_its_core(make_node):
    node = make_node()
    app = node.deploy("lost", {"spin": ("spin", {"timeout": "60s", "cpu_time": "1s"}), "ping": "ping"})
    app.call("spin").problem(504, "limit-cpu-time")
    assert app.call("ping").status == 200
    spin, ping = counted(node, "lost.spin"), counted(node, "lost.ping")
    assert spin["preemptions"] > 0 and ping["preemptions"] == 0
    series = node.metrics()
    assert series['millpond_invocation_preemptions_total{faas_name="lost.spin"}'] == spin["preemptions"]
    assert series['millpond_preemptions_total{core="0"}'] == spin["preemptions"]


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="this machine gives the tests one processor only")
def test_what_is_stolen_is_counted_for_its_function(make_node):
    node = make_node(cores=PROCESSORS[:2])
    app = node.deploy("stolen", {"burn": ("burn", {"queue": 1000})})
    sums = lambda: (counted(node, "stolen.burn")["steals"], sum(core["steals"] for core in counters(node)["node"]["cores"]))  # noqa: E731
    # The kernel deals connections out to the cores, hardly ever evenly: whoever is done first takes from the other.
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(node.wire()) for _ in range(16)]

        def round_of_all():
            for wire in wires:
                wire.send(get(app.path("burn", "?n=3000000")))
            assert all(wire.read().status == 200 for wire in wires)
            return sums()[0]

        eventually(round_of_all, "a request is stolen")
    # Nothing else runs on this node: what the cores stole was this function's.
    mine, all_of_them = sums()
    assert mine == all_of_them and mine > 0


# --- for scripts ---


def top(node, *words, token=None):
    environment = clean_environment() | {"MILLPOND_ADMIN": "http://{}:{}".format(*node.admin)}
    if token:
        environment["MILLPOND_TOKEN"] = token
    return [str(MILLPOND), "top", *words], environment


def run(node, *words, token=None):
    command, environment = top(node, *words, token=token)
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)


def once(node, *words, token=None):
    said = run(node, "--once", "-o", "json", *words, token=token)
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def test_one_interval_as_a_document(make_node):
    node = make_node()
    app = node.deploy("seen", {"ping": "ping", "idle": "ping"})
    with Swarm(node, app.path("ping"), 2) as swarm:
        swarm.served(10)
        interval = once(node, "--interval", "2s")
        swarm.served(10)
    assert not swarm.errors
    assert interval["seconds"] >= 2 and not interval["since_start"]
    by_name = {row["name"]: row for row in interval["functions"]}
    ping, idle = by_name["seen.ping"], by_name["seen.idle"]
    assert ping["rate"] > 0 and ping["failed"] == 0 and ping["cpu"] > 0
    for phase in ("queue", "run", "total"):
        assert 0 < ping[phase]["p50"] <= ping[phase]["p99"]
    assert idle["rate"] == 0 and idle["total"] == {"p50": None, "p99": None}
    own = interval["node"]
    assert len(own["busy"]) == 1 and 0 < own["busy"][0] <= 1
    assert own["connections"] >= 2 and own["requests"] > 0 and own["resident"] > 1 << 20
    assert interval["tenants"] == []


def test_without_a_terminal_each_interval_is_printed(make_node):
    node = make_node()
    node.deploy("plain", {"ping": "ping"})
    said = run(node, "--once", "--interval", "100ms", "--sort", "p99", "--reverse")
    assert said.returncode == 0, said.stderr
    lines = said.stdout.decode().splitlines()
    assert lines[1].startswith("cores busy ") and lines[2].startswith("requests ")
    assert re.fullmatch(r"FUNCTION +REQ/S +FAIL/S +P50 +\^P99 +CPU +RUNNING +QUEUED .*REFUSE/S", lines[4]), lines
    assert lines[5].split()[:2] == ["plain.ping", "0"]
    assert "\x1b" not in said.stdout.decode()

    for form, blocks in ((), b"cores busy"), (("-o", "json"), b'"functions"'):
        command, environment = top(node, "--interval", "100ms", *form)
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
            seen = b""
            while seen.count(blocks) < 3:
                seen += (line := process.stdout.readline())
                assert line, "it ended"
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130


def test_what_it_cannot_do_it_says(make_node):
    node = make_node()
    said = run(node, "--interval", "1ms")
    assert said.returncode == 2 and b"100ms" in said.stderr
    assert run(node, "--sort", "luck").returncode == 2
    node.stop()
    said = run(node, "--once")
    assert said.returncode == 1 and b"nobody listens" in said.stderr


def test_a_tenant_sees_what_is_its_own(make_node):
    node = make_node(token="operator")
    acme, rival = (make_tenant(node, name) for name in ("acme", "rival"))
    node.deploy("shop", {"mine": "ping"})
    for who, name in ((acme, "first"), (rival, "second")):
        deploy(who, "shop", {name: "ping"}, (), ())
    assert acme.request("GET", "/function/shop.first").status == 200
    seen = once(node, "--interval", "100ms", token=acme.token)
    assert [row["name"] for row in seen["functions"]] == ["shop.first"]
    assert "node" not in seen and seen["tenants"] == []
    said = run(node, "--once", "--interval", "100ms", token=acme.token).stdout.decode()
    assert "rival" not in said and "cores" not in said and "mine" not in said

    seen = once(node, "--interval", "100ms", token="operator")
    assert [row["name"] for row in seen["functions"]] == ["shop.mine", "acme/shop.first", "rival/shop.second"]
    assert [row["name"] for row in seen["tenants"]] == ["(default)", "acme", "rival"]
    # The operator sees what a tenant sees, if he asks for that.
    seen = once(node, "--interval", "100ms", "--tenant", "rival", token="operator")
    assert [row["name"] for row in seen["functions"]] == ["shop.second"] and "node" not in seen
    # Only who may read does.
    poor = make_tenant(node, "poor", roles=("invoke",))
    said = run(node, "--once", token=poor.token)
    assert said.returncode == 1 and b"role" in said.stderr


# --- in a terminal ---


class Terminal:
    """The command in a pseudo-terminal of its own; `text` is all it wrote, as a person would read it."""

    def __init__(self, node, *words, size=(24, 100)):
        self.control, self.side = pty.openpty()
        self.resize(*size)
        self.before = termios.tcgetattr(self.side)
        command, environment = top(node, *words)
        self.process = subprocess.Popen(
            command, env=environment | {"TERM": "xterm"}, stdin=self.side, stdout=self.side, stderr=self.side,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.raw = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.control)
        os.close(self.side)

    def resize(self, rows, columns):
        fcntl.ioctl(self.control, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.control], [], [], 0)[0]:
            self.raw += os.read(self.control, 65536)

    @property
    def text(self):
        self.read()
        return re.sub(rb"\x1b\[[?0-9;]*[A-Za-z]", b"\n", self.raw).decode(errors="replace")

    def shows(self, what, since=0):
        eventually(lambda: what in self.text[since:], f"the screen shows {what!r}:\n{self.text[-2000:]}")

    def press(self, keys):
        os.write(self.control, keys)

    def end(self, code):
        """Waits for the end, and checks that the terminal is as it was."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self.read()
            time.sleep(0.005)
        self.read()
        assert self.process.returncode == code, self.raw[-500:]
        assert termios.tcgetattr(self.side) == self.before
        # Out of the alternate screen, with a cursor, and nothing drawn afterwards.
        last = self.raw.rindex(b"\x1b[?1049l")
        assert self.raw.rindex(b"\x1b[?25h") > self.raw.rindex(b"\x1b[?25l")
        assert self.raw.count(b"\x1b[?1049h") == 1 and last > self.raw.index(b"\x1b[?1049h")
        return self.raw[last + len(b"\x1b[?1049l"):].decode()


@pytest.fixture
def busy(make_node):
    """A node with a function that is asked all the time."""
    node = make_node()
    app = node.deploy("live", {"ping": "ping", "other": "ping"})
    with Swarm(node, app.path("ping"), 1) as swarm:
        swarm.served(5)
        yield node
    # A node that a test ended is no error.
    if node.is_running:
        assert not swarm.errors, swarm.errors


def test_it_draws_and_gives_the_terminal_back(busy):
    with Terminal(busy, "--interval", "200ms") as terminal:
        terminal.shows("*REQ/S")
        terminal.shows("since the node started")
        terminal.shows("live.ping")
        terminal.shows("cores busy")
        # Raw: no key is shown.
        assert termios.tcgetattr(terminal.side) != terminal.before
        # And anew, in each interval.
        for _ in range(2):
            terminal.shows("last ", since=len(terminal.text))
        assert "REFUSE/S" not in terminal.text, "100 columns have no room for it"
        terminal.press(b">")
        terminal.shows("sort by failed")
        terminal.press(b"\x1b[D")
        terminal.shows("sort by rate")
        terminal.press(b"r")
        terminal.shows("^REQ/S")
        here = len(terminal.text)
        terminal.resize(30, 200)
        terminal.shows("REFUSE/S", since=here)
        here = len(terminal.raw)
        terminal.resize(5, 30)
        # The keys stand in the last line, whichever that is.
        eventually(lambda: terminal.text and b"\x1b[5;1H" in terminal.raw[here:], "it is drawn in five rows")
        terminal.press(b"q")
        assert terminal.end(0) == ""


@pytest.mark.parametrize(("how", "code"), [("key", 130), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_however_it_ends_the_terminal_is_as_it_was(busy, how, code):
    with Terminal(busy) as terminal:
        terminal.shows("live.ping")
        if how == "key":
            terminal.press(b"\x03")
        else:
            terminal.process.send_signal(how)
        terminal.end(code)


def test_a_node_that_goes_and_comes_back(busy):
    with Terminal(busy, "--interval", "100ms") as terminal:
        terminal.shows("live.ping")
        busy.kill()
        terminal.shows("nobody listens")
        terminal.press(b"q")
        terminal.end(0)


def test_a_node_that_hangs_holds_up_no_key(busy):
    with Terminal(busy, "--interval", "100ms") as terminal:
        terminal.shows("live.ping")
        busy.process.send_signal(signal.SIGSTOP)
        try:
            terminal.press(b">")
            terminal.shows("sort by failed")
            terminal.press(b"q")
            terminal.end(0)
        finally:
            busy.process.send_signal(signal.SIGCONT)


def test_whoever_names_no_node_is_told_as_usual(make_node):
    node = make_node()
    node.stop()
    with Terminal(node) as terminal:
        eventually(lambda: terminal.process.poll() is not None, "it ends")
        assert terminal.process.returncode == 1 and "nobody listens" in terminal.text
        assert b"\x1b[?1049h" not in terminal.raw
