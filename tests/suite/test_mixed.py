"""A node at nine tenths of its core for a minute, or an hour (MILLPOND_TEST_LONG), or as many seconds as
MILLPOND_TEST_MIXED says: short and long functions, bodies, requests to others, faults, limits, clients that leave,
asynchronous calls, and deployments in between. In the end nothing is left of all that: no memory, sandbox, descriptor or thread.

Arrivals do not wait for answers (an open loop); their rate follows what the node says of how busy its core is, so that a
machine which has other things to do gets fewer of them, and no test of its speed.
"""

import collections
import contextlib
import os
import random
import selectors
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from harness import LONG, PATIENCE, PROCESSORS, eventually, get, guest

pytestmark = pytest.mark.alone

SECONDS = int(os.environ.get("MILLPOND_TEST_MIXED") or (3600 if LONG else 60))
BUSY = 0.9
WARM = 10
"""Seconds of the same load before anything is compared: what is allocated once is then there."""
AT_ONCE = 150
"""Requests under way at most. The node held as many at once before anything was compared, since each place for a sandbox keeps some memory."""
GROWTH = 16 << 20
"""Bytes that the node may grow: the allocator's slack, and places for sandboxes that were never used together before."""
SEED = 7

RESET = struct.pack("ii", 1, 0)


class Other(BaseHTTPRequestHandler):
    """Somebody else's server, which takes its time."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(0.01)
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        # Nobody then waits for the end of connections that are kept, nor sends on one that just ends.
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    # All that the node may send at once: a connection that is refused is tried again seconds later.
    request_queue_size = 512

    def handle_error(self, *_):
        pass


@contextlib.contextmanager
def somebody_else():
    server = Server(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


class Kind:
    """One manner of request: how often, what is sent, and what the answer must be."""

    def __init__(self, function, weight, status=200, code=None, rest="", bodies=(None,), answer=None, leaves=False, path=None, ok=None):
        self.function, self.weight, self.status, self.code = function, weight, status, code
        self.bodies, self.answer, self.leaves = bodies, answer, leaves
        # Whether the function succeeds.
        self.ok = status < 400 if ok is None else ok
        self.path = (path or f"/function/mixed.{function}") + rest
        self.sent = self.answered = 0

    def request(self, chance):
        """The bytes to send, and the body that the answer must have if that is known."""
        body = chance.choice(self.bodies)
        if body is None:
            return get(self.path), self.answer
        head = f"POST {self.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        if self.leaves and chance.random() < 0.3:
            # It does not even say all it wanted to.
            body = body[: len(body) // 2]
        return head + body, body if self.answer is None else self.answer


def body_of(data):
    """An answer's status and body, once it is all there."""
    head, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        return None
    status, fields = int(head[9:12]), head.lower()
    if b"\r\ntransfer-encoding: chunked" in fields:
        body = b""
        while True:
            size, mark, rest = rest.partition(b"\r\n")
            if not mark:
                return None
            if not (size := int(size, 16)):
                return (status, body) if rest.endswith(b"\r\n") else None
            if len(rest) < size + 2:
                return None
            body, rest = body + rest[:size], rest[size + 2 :]
    length = int(fields.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
    return (status, rest) if len(rest) >= length else None


class Exchange:
    """A connection, and the request that is under way on it."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.kind = None


class Load:
    """All clients, in one thread."""

    def __init__(self, node, kinds):
        self.node, self.kinds = node, kinds
        self.chance = random.Random(SEED)
        self.selector = selectors.DefaultSelector()
        self.idle, self.under_way = [], 0
        self.rate = 100.0
        self.wrong = []
        self.held_back = 0

    def run(self, seconds):
        """Sends at a rate that keeps the node busy, and then waits for the last answer. Says how busy it was."""
        now = time.monotonic()
        end, arrival, look = now + seconds, now, now
        first = before = self._busy()
        weights = [kind.weight for kind in self.kinds]
        while (now := time.monotonic()) < end:
            assert len(self.wrong) < 20, self.wrong
            if now >= look + 1:
                after = self._busy()
                share = (after[0] - before[0]) / (after[1] - before[1])
                # Faster where it is too much, since then work piles up. A turn that took long counts when it is over.
                self.rate *= min(max(BUSY / max(share, 0.01), 0.7), 1.15)
                # The answer may have come late.
                look, before = time.monotonic(), after
                self._close_unused(now)
            if arrival < now - 1:
                # This machine did not let the clients run: what they missed is not sent all at once.
                arrival = now
            while arrival <= now:
                self.send(self.chance.choices(self.kinds, weights)[0])
                arrival += self.chance.expovariate(self.rate)
            self._receive(min(arrival, end) - now)
        self.finish()
        return (before[0] - first[0]) / max(before[1] - first[1], 1)

    def finish(self):
        deadline = time.monotonic() + PATIENCE
        while self.under_way:
            assert time.monotonic() < deadline, f"{self.under_way} requests have no answer"
            self._receive(0.1)
        for exchange in self.idle:
            self._close(exchange)
        self.idle = []

    def _close_unused(self, now):
        """Before the node does, which could cross with a request."""
        unused = [exchange for exchange in self.idle if exchange.since < now - 5]
        for exchange in unused:
            self.idle.remove(exchange)
            self._close(exchange)

    def _busy(self):
        said = self.node.control("GET", "/v1/counters").document
        return said["node"]["cores"][0]["busy"], said["uptime"]

    def send(self, kind):
        if self.under_way >= AT_ONCE:
            self.held_back += 1
            return
        if self.idle:
            exchange = self.idle.pop()
        else:
            exchange = Exchange(self.node.listen)
            self.selector.register(exchange.socket, selectors.EVENT_READ, exchange)
        data, expected = kind.request(self.chance)
        kind.sent += 1
        exchange.kind, exchange.expected, exchange.data, exchange.unsent = kind, expected, b"", data
        exchange.leaves = time.monotonic() + self.chance.random() * 0.02 if kind.leaves else None
        self.under_way += 1
        self._write(exchange)

    def _write(self, exchange):
        try:
            exchange.unsent = exchange.unsent[exchange.socket.send(exchange.unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            return self._end(exchange, f"{exchange.kind.path}: {error} while it was sent")
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if exchange.unsent else 0)
        if self.selector.get_key(exchange.socket).events != events:
            self.selector.modify(exchange.socket, events, exchange)

    def _receive(self, patience):
        # Whoever means to leave does so a moment later at the latest.
        for key, events in self.selector.select(max(min(patience, 0.005), 0)):
            exchange = key.data
            if events & selectors.EVENT_WRITE and exchange.unsent:
                self._write(exchange)
            if events & selectors.EVENT_READ:
                self._read(exchange)
        now = time.monotonic()
        leaving = [key.data for key in self.selector.get_map().values() if key.data.kind and key.data.leaves and key.data.leaves <= now]
        for exchange in leaving:
            self._end(exchange)

    def _read(self, exchange):
        if exchange.kind is None:
            # Nothing was asked on it: the node closes what is idle.
            if exchange in self.idle:
                self.idle.remove(exchange)
                self._close(exchange)
            return
        try:
            data = exchange.socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError as error:
            return self._end(exchange, f"{exchange.kind.path}: {error}")
        if not data:
            return self._end(exchange, f"{exchange.kind.path}: closed after {exchange.data[:200]}")
        exchange.data += data
        answer = body_of(exchange.data)
        if answer is None:
            return
        kind, (status, body) = exchange.kind, answer
        kind.answered += 1
        right = status == kind.status and (kind.code is None or b'"%s"' % kind.code.encode() in body)
        if not right or (kind.code is None and exchange.expected is not None and not body.startswith(exchange.expected)):
            self.wrong.append((kind.path, status, body[:300]))
        self.under_way -= 1
        if b"\r\nconnection: close" in exchange.data.partition(b"\r\n\r\n")[0].lower() or exchange.unsent:
            self._close(exchange)
        else:
            exchange.kind, exchange.since = None, time.monotonic()
            self.idle.append(exchange)

    def _end(self, exchange, why=None):
        """Breaks it off, as a client that crashes."""
        if why and not exchange.kind.leaves:
            self.wrong.append(why)
        self.under_way -= 1
        exchange.kind = None
        exchange.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._close(exchange)

    def _close(self, exchange):
        self.selector.unregister(exchange.socket)
        exchange.socket.close()


class Deployer(threading.Thread):
    """Deploys other settings every other second, other code now and then; deletes it all, too."""

    def __init__(self, node):
        super().__init__(daemon=True)
        self.node, self.stopping, self.error, self.deployed = node, threading.Event(), None, 0

    def run(self):
        try:
            while not self.stopping.wait(2):
                self.deploy()
        except Exception as error:  # whatever it is, the test fails with it
            self.error = error

    def deploy(self):
        self.deployed += 1
        n = self.deployed
        self.node.deploy("moving", {"env": (guest("env"), {"env": {"LEVEL": str(n)}, "timeout": "5m"})})
        if n % 5 == 0:
            self.node.deploy("passing", {"ping": guest("ping", variant=n)})
            assert self.node.request("GET", "/function/passing.ping").status == 200
        if n % 10 == 0:
            assert self.node.control("DELETE", "/v1/applications/passing").status == 204

    def stop(self):
        self.stopping.set()
        self.join(PATIENCE)
        assert not self.is_alive(), "it still deploys"
        if self.error:
            raise self.error
        # What is deployed keeps a descriptor for its code.
        assert self.node.control("DELETE", "/v1/applications/passing").status in (204, 404)


def counters(node):
    answer = node.control("GET", "/v1/counters")
    assert answer.status == 200
    return answer.document


def is_quiet(node):
    """Nothing runs, waits or is connected."""
    said = counters(node)
    core = said["node"]["cores"][0]
    if any(core[what] for what in ("sandboxes", "parked", "runnable", "connections")):
        return False
    if any(one["running"] or one["queued"] for one in said["functions"]):
        return False
    return not node.control("GET", "/v1/calls?state=pending").document["calls"]


# What the runtime's pools may have at one moment and not at another. Whatever leaks, leaks more in so many requests and deployments.
SPARE = 3


def left(node):
    """How many descriptors and threads the node has, but for files of functions' logs, which are opened for the first line."""
    process = Path(f"/proc/{node.process.pid}")
    descriptors = collections.Counter()
    for path in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            descriptors[os.readlink(path).partition(":[")[0]] += 1
    logs = str(node.data / "logs")
    kept = {name: count for name, count in descriptors.items() if not name.startswith(logs)}
    return collections.Counter(kept), len(os.listdir(process / "task"))


def least_left(node):
    """Without connections of the control API, which the test itself made just before."""
    looks = []
    for _ in range(20):
        looks.append(left(node))
        time.sleep(0.05)
    return min((descriptors for descriptors, _ in looks), key=collections.Counter.total), min(threads for _, threads in looks)


def deploy(node, port):
    """The functions, and the manners of asking for them.

    None that overflows its stack: a place for a sandbox keeps what was touched of its stack once, which is bounded, and would
    be growth until each place had such a guest.
    """
    # A machine that has other things to do may hold up any of them: only what is meant to be too late is.
    settings = {
        "fetch": {"grants": {"http": [{"host": "127.0.0.1"}]}}, "grow": {"memory": "4MiB"}, "late": {"timeout": "100ms"}, "spin": {"cpu_time": "20ms"},
    }
    guests = {
        "ping": "ping", "echo": "echo", "short": "burn", "long": "burn", "fetch": "http-component", "exit": "exit3", "trap": "trap",
        "grow": "grow", "late": "sleep", "spin": "spin", "sleep": "sleep", "left": "echo", "job": "ping",
    }
    app = node.deploy("mixed", {name: (program, {"timeout": "5m"} | settings.get(name, {})) for name, program in guests.items()})
    Deployer(node).deploy()
    noise = random.Random(SEED)
    bodies = [noise.randbytes(size) for size in (1, 100, 1000, 10_000, 100_000)]
    # As many rounds as take so long here and now.
    rounds = 2_000_000
    took = min(app.call("short", rest=f"?n={rounds}").timing["run"] for _ in range(5))
    a_millisecond = max(int(rounds / took), 1000)
    computed = {n: app.call("short", rest=f"?n={n}").body for n in (a_millisecond, 50 * a_millisecond)}
    short, long = computed
    return [
        Kind("ping", 40, answer=b"pong\n"),
        Kind("echo", 20, bodies=bodies),
        Kind("short", 15, rest=f"?n={short}", answer=computed[short]),
        Kind("long", 0.4, rest=f"?n={long}", answer=computed[long]),
        Kind("fetch", 4, status=201, bodies=bodies[:3], rest=f"/stream-fetch?http://127.0.0.1:{port}/"),
        Kind("exit", 1, 502, "function-exit"),
        Kind("trap", 1, 502, "function-trap"),
        Kind("grow", 0.5, 502, "function-out-of-memory"),
        Kind("late", 1, 504, "limit-timeout", rest="?ms=60000"),
        Kind("spin", 0.2, 504, "limit-cpu-time"),
        Kind("sleep", 2, rest="?ms=50", leaves=True),
        Kind("left", 1, bodies=bodies, leaves=True),
        Kind("job", 1, 202, path="/async-function/mixed.job", ok=True, bodies=(b"x",), answer=b""),
        Kind("env", 2, path="/function/moving.env"),
    ]


def hold_at_once(load, node, kinds):
    """As many sandboxes at a time as there ever will be, of two kinds."""
    for kind in (kind for kind in kinds if kind.function in ("late", "fetch")):
        for _ in range(AT_ONCE):
            load.send(kind)
        load.finish()
    eventually(lambda: is_quiet(node), "the node is quiet")


@pytest.mark.limit(SECONDS + WARM + 6 * PATIENCE)
def test_nothing_is_left_of_a_mixed_load(make_node):
    # Results of calls are kept on purpose: here for so short that an hour of them is no growth.
    node = make_node(cores=PROCESSORS[:1], config='[calls]\nretention = "5s"\n')
    with somebody_else() as port:
        kinds = deploy(node, port)
        load = Load(node, kinds)
        hold_at_once(load, node, kinds)
        for kind in kinds:
            load.send(kind)
        load.run(WARM)
        eventually(lambda: is_quiet(node), "the node is quiet")
        resident, (descriptors, threads) = node.resident_bytes(), least_left(node)
        begun = {one["function"]: one for one in counters(node)["functions"]}
        sent = collections.Counter({kind: kind.sent for kind in kinds})

        deployer = Deployer(node)
        deployer.start()
        busy = load.run(SECONDS)
        deployer.stop()
        # What was deployed is let go when its routes are looked up the next time.
        for kind in kinds:
            load.send(kind)
        load.finish()
        eventually(lambda: is_quiet(node), "the node is quiet")

        assert not load.wrong, load.wrong
        total = sum(kind.sent for kind in kinds) - sent.total()
        grown = node.resident_bytes() - resident
        print(f"{total} requests, {deployer.deployed} deployments, {busy:.0%} busy, {load.held_back} held back, {grown >> 10} KiB grown on {resident >> 10}")
        # However it wavers, this was load.
        assert busy > 0.25
        assert total > 20 * SECONDS and deployer.deployed > SECONDS / 10

        # Nothing lost in the counting, nothing counted twice. Whether those who left were served, nobody can say.
        for kind in kinds:
            name = kind.path.partition("?")[0].split("/")[2]
            now, before = next(one for one in counters(node)["functions"] if one["function"] == name), begun[name]
            ended = {what: now["failed"].get(what, 0) - before["failed"].get(what, 0) for what in ("function", "client", "platform", "refused")}
            ended["ok"] = now["succeeded"] - before["succeeded"]
            if kind.leaves:
                assert ended["ok"] + ended["client"] <= kind.sent - sent[kind], (name, ended)
                assert not ended["platform"] and not ended["refused"], (name, ended)
            else:
                expected = {what: 0 for what in ended} | {"ok" if kind.ok else "function": kind.sent - sent[kind]}
                assert ended == expected, (name, ended, expected)
        assert not node.control("GET", "/v1/calls?state=dead").document["calls"]

        # Threads that block wait ten seconds for more to do, and connections to others for as long as those allow.
        with contextlib.suppress(AssertionError):
            eventually(lambda: left(node)[0].total() <= descriptors.total() and left(node)[1] <= threads, "no more is left")
        more, tasks = left(node)
        # In the meantime `aot` has taken over some functions: each of its images has a file for the first state of a memory.
        images = more.pop("/memfd:first-memory (deleted)", 0)
        assert images <= len(node.control("GET", "/v1/functions").document["functions"])
        assert more.total() <= descriptors.total() + SPARE, f"{more - descriptors} more than before"
        assert tasks <= threads + SPARE, f"{tasks} threads, {threads} before"
        assert grown < GROWTH, f"{grown >> 10} KiB grown over {total} requests, on {resident >> 10} KiB"
        assert '"level":"ERROR"' not in Path(node.log).read_text()
