"""Everything at once, at random: clients of all manners, guests of all faults, deploys and deletions. What must hold is
that every answer is one that its request may have, and that nothing is left when the storm is over."""

import random
import threading

import pytest
from harness import LONG, Closed, Wire, eventually, get

pytestmark = pytest.mark.alone

SEED = 20
SECONDS = 120 if LONG else 10
GUESTS = {
    "ping": {200}, "echo": {200}, "env": {200}, "counter": {200}, "hello": {200, 502}, "sleep": {200, 429, 504}, "burn": {200, 504}, "spin": {504},
    "exit3": {502}, "trap": {502}, "recurse": {502}, "grow": {502}, "endless": {502}, "closeout": {200}, "stderr": {200},
}
# `hello` takes UTF-8 only, and says so by its exit code.
SETTINGS = {
    "spin": {"timeout": "60ms"}, "sleep": {"concurrency": 3, "queue": 4, "timeout": "200ms"}, "grow": {"memory": "4MiB"},
    "endless": {"response_body": "256KiB"}, "counter": {"reuse": 4},
}


class Client(threading.Thread):
    def __init__(self, node, number, stopping):
        super().__init__(daemon=True)
        self.node, self.chance, self.stopping = node, random.Random(SEED * 1000 + number), stopping
        self.wrong, self.answered = [], 0

    def run(self):
        while not self.stopping.is_set():
            try:
                with self.node.wire() as wire:
                    self.chance.choice([self.in_order, self.in_order, self.pipelined, self.torn, self.gone, self.nonsense])(wire)
            except (Closed, OSError, AssertionError) as error:
                self.wrong.append(f"{type(error).__name__}: {error}")
                if len(self.wrong) > 5:
                    return

    def request(self):
        """A request, and what its answer may be."""
        if self.chance.random() < 0.1:
            return get("/nowhere"), {404}
        if self.chance.random() < 0.1:
            # It is deployed and deleted all the time; while it is there its own code answers.
            return get("/function/passing.ping"), {200, 404, 503}
        name = self.chance.choice(list(GUESTS))
        path = f"/function/storm.{name}" + {"sleep": f"?ms={self.chance.randrange(60)}", "burn": f"?n={self.chance.randrange(10**6)}"}.get(name, "")
        body = self.chance.randbytes(self.chance.choice([0, 0, 1, 1000, 100_000]))
        if not body:
            return get(path), GUESTS[name]
        if self.chance.random() < 0.5:
            return get(path, method="POST", headers=f"Content-Length: {len(body)}\r\n") + body, GUESTS[name]
        cut = self.chance.randrange(1, len(body) + 1)
        pieces = [piece for piece in (body[:cut], body[cut:]) if piece]
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        return get(path, method="POST", headers="Transfer-Encoding: chunked\r\n") + chunks + b"0\r\n\r\n", GUESTS[name]

    def check(self, wire, allowed):
        answer = wire.read()
        assert answer.status in allowed, (answer.status, allowed, answer.body[:300])
        self.answered += 1
        return answer.headers["Connection"] != "close"

    def in_order(self, wire):
        for _ in range(self.chance.randrange(1, 20)):
            request, allowed = self.request()
            wire.send(request)
            if not self.check(wire, allowed):
                return

    def pipelined(self, wire):
        # Small enough for the socket's buffers: a client that does not read may not expect to write for ever.
        requests = [(r, a) for r, a in (self.request() for _ in range(10)) if len(r) < 2000]
        wire.send(b"".join(request for request, _ in requests))
        for _, allowed in requests:
            if not self.check(wire, allowed):
                return

    def torn(self, wire):
        request, allowed = self.request()
        while request:
            cut = self.chance.randrange(1, max(2, min(len(request), 5000)))
            wire.send(request[:cut])
            request = request[cut:]
        self.check(wire, allowed)

    def gone(self, wire):
        request, _ = self.request()
        wire.send(request[: self.chance.randrange(len(request) + 1)])
        if self.chance.random() < 0.5:
            Wire.reset(wire)

    def nonsense(self, wire):
        """A request with a few bytes changed: any answer, or none, but an end."""
        request = bytearray(self.request()[0][:500])
        for _ in range(self.chance.randrange(1, 4)):
            request[self.chance.randrange(len(request))] = self.chance.randrange(256)
        wire.send(request)
        wire.end()
        try:
            while True:
                assert wire.read(to="HEAD" if request.startswith(b"HEAD ") else "GET").status != 500
                self.answered += 1
        except (Closed, ConnectionError):
            pass


@pytest.mark.limit(SECONDS + 90)
def test_storm(two_cores):
    node, stopping = two_cores, threading.Event()
    chance = random.Random(SEED)

    def deploy(level):
        guests = {name: ("hello-rust" if name == "hello" else name, SETTINGS.get(name, {}) | {"env": {"LEVEL": str(level)}}) for name in GUESTS}
        node.deploy("storm", guests)

    deploy(0)
    clients = [Client(node, number, stopping) for number in range(8)]
    for client in clients:
        client.start()
    for level in range(1, SECONDS * 2):
        stopping.wait(0.5)
        if chance.random() < 0.5:
            deploy(level)
        if level % 2:
            node.deploy("passing", {"ping": "ping"})
        else:
            assert node.control("DELETE", "/v1/applications/passing").status == 204
    stopping.set()
    for client in clients:
        client.join(30)
        assert not client.is_alive(), "a client waits for ever for an answer"
    assert [wrong for client in clients for wrong in client.wrong] == []
    assert sum(client.answered for client in clients) > 50 * SECONDS

    def left(name):
        return sum(value for series, value in node.metrics().items() if series.startswith(f"{name}{{"))

    eventually(lambda: left("millpond_connections_open") == 0, "all connections are closed")
    eventually(lambda: left("millpond_parked") == 0 and left("millpond_runnable") == 0, "nothing runs any more")
    # But what `reuse` keeps warm, which goes with its version.
    node.control("DELETE", "/v1/applications/storm")
    node.deploy("calm", {"ping": "ping"})
    assert node.request("GET", "/function/calm.ping").body == b"pong\n"
    eventually(lambda: left("millpond_sandboxes") == 0, "no sandbox is left")
