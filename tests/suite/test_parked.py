"""Sandboxes that wait: each costs its memory and nothing else, thousands of them leave a node idle, and what there is no room
for waits outside."""

import contextlib
import resource
import selectors
import socket
import threading
import time
from pathlib import Path

import pytest
from harness import LONG, eventually, get

# A bound for machines that others use too.
pytestmark = [pytest.mark.alone, pytest.mark.limit(600)]

MAP_COUNT = Path("/proc/sys/vm/max_map_count")
MANY = 8_000
SOME = 500
LIMITS = {"concurrency": 100_000, "queue": 100_000, "timeout": "10m", "request_body": "1MiB", "response_body": "64MiB"}
GRANTS = {"grants": {"http": [{"host": "127.0.0.1"}]}}


class Slow:
    """A server that reads requests and answers none until it is told to; from then on it answers each."""

    REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nthere"

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.listener.setblocking(False)
        self.ours, self.theirs = socket.socketpair()
        self.selector = selectors.DefaultSelector()
        for each in (self.listener, self.theirs):
            self.selector.register(each, selectors.EVENT_READ)
        self.waiting, self.open, self.ended = {}, False, False
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended = True
        self.ours.send(b"e")
        self.thread.join()
        for each in (*self.waiting, self.listener, self.ours, self.theirs):
            each.close()

    def answer(self):
        """All that wait, and all that come."""
        self.open = True
        self.ours.send(b"a")

    def run(self):
        while not self.ended:
            for key, _ in self.selector.select():
                if key.fileobj is self.listener:
                    self.accept()
                elif key.fileobj is self.theirs:
                    self.theirs.recv(16)
                else:
                    self.read(key.fileobj)
            if self.open:
                for connection in [one for one, seen in self.waiting.items() if seen.endswith(b"\r\n\r\n")]:
                    self.end(connection, self.REPLY)

    def accept(self):
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self.listener.accept()
                self.waiting[connection] = b""
                self.selector.register(connection, selectors.EVENT_READ)

    def read(self, connection):
        data = b""
        with contextlib.suppress(ConnectionResetError):
            data = connection.recv(4096)
        if data:
            self.waiting[connection] += data
        else:
            self.end(connection, b"")

    def end(self, connection, reply):
        self.selector.unregister(connection)
        del self.waiting[connection]
        with contextlib.suppress(OSError):
            connection.sendall(reply)
        connection.close()


@pytest.fixture
def descriptors():
    """As many for this process as it may have: says how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def map_count(wanted):
    """While the block runs, the kernel allows so many maps. Says how many there were before."""
    before = MAP_COUNT.read_text()
    try:
        MAP_COUNT.write_text(str(wanted))
    except OSError as error:
        pytest.skip(f"vm.max_map_count cannot be set here: {error}")
    try:
        yield before
    finally:
        MAP_COUNT.write_text(before)


def limit(node, engine="wasmtime"):
    return int(node.metrics()[f'millpond_sandboxes_limit{{engine="{engine}"}}'])


def sum_of(node, series):
    return int(sum(value for name, value in node.metrics().items() if name.startswith(series + "{")))


def parked(node):
    return sum_of(node, "millpond_parked")


def private_kibibytes(node):
    """Memory that is this process's alone, and its page tables."""
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "VmPTE"))


def maps(node):
    return len(Path(f"/proc/{node.process.pid}/maps").read_bytes().splitlines())


def is_idle(node):
    """Whether it uses hardly any time of a processor, over two seconds."""
    begun, used = time.monotonic(), node.cpu_seconds()
    time.sleep(2)
    return (node.cpu_seconds() - used) / (time.monotonic() - begun) < 0.05


def connect(node, request, count):
    """Clients that have sent their request."""
    clients = []
    for _ in range(count):
        client = socket.socket()
        client.settimeout(120)
        client.connect(node.listen)
        client.sendall(request)
        clients.append(client)
    return clients


def answers(clients):
    """All of their answers, which must be good; closes them."""
    for client in clients:
        with client:
            said = b""
            while data := client.recv(256 << 10):
                said += data
            assert said.startswith(b"HTTP/1.1 200 "), said[:500]
            yield said.partition(b"\r\n\r\n")[2]


def requests(app, slow):
    """By what a sandbox waits for: the request, what it sends when it is to go on, and what is in its answer."""
    close = "Host: x\r\nConnection: close\r\n"
    return {
        "reply": (get(app.path("f", f"/stream-fetch?http://127.0.0.1:{slow.port}/"), headers="Connection: close\r\n"), b"", b"there"),
        "body": (f"POST {app.path('f', '/stream-count')} HTTP/1.1\r\n{close}Content-Length: 8\r\n\r\n1234".encode(), b"5678", b"8"),
        "reader": (get(app.path("f", f"/stream-long?{12 << 20}"), headers="Connection: close\r\n"), b"", b"xxxx"),
    }


def park(node, how, count, engine="wasmtime"):
    """Parks so many sandboxes and lets them go on; what must be true of the node meanwhile."""
    with Slow() as slow:
        app = node.deploy("park", {"f": ("http-component", LIMITS | GRANTS | {"engine": engine}), "ping": "ping"})
        assert app.call("ping").status == 200 and app.call("f", b"echo").status == 200
        request, rest, part = requests(app, slow)[how]
        memory, mapped = private_kibibytes(node), maps(node)
        clients = connect(node, request, count)
        eventually(lambda: parked(node) == count, f"{count} sandboxes are parked")
        each = (private_kibibytes(node) - memory) / count
        print(f"{how}: {each:.0f} KiB and {(maps(node) - mapped) / count:.1f} maps for each of {count}")
        assert maps(node) - mapped <= 4 * count + 200, "each takes four maps beside those of its stack"
        # What waits to be read by a client is in the node, too.
        assert each < (2048 if how == "reader" else 160)
        assert eventually(lambda: is_idle(node), "the node is idle while they wait")
        assert app.call("ping").status == 200
        assert parked(node) == count, "none of them has ended"
        slow.answer()
        for client in clients:
            client.sendall(rest)
        assert all(part in body for body in answers(clients))
        eventually(lambda: sum_of(node, "millpond_sandboxes") == 0, "no sandbox is left")
        assert parked(node) == 0


@pytest.mark.limit(600)
def test_eight_thousand_wait_for_replies_under_the_defaults_of_the_kernel(make_node, descriptors):
    """Each has a client's connection, and one to the service."""
    node = make_node(config="connections = 9000\n")
    if 2 * MANY + 500 > descriptors:
        pytest.skip(f"this process may have {descriptors} descriptors")
    if limit(node) < MANY:
        pytest.skip(f"this machine has room for {limit(node)} sandboxes: `millpond doctor` says why")
    park(node, "reply", MANY)


@pytest.mark.parametrize("how", ["reply", "body", "reader"])
def test_whatever_they_wait_for_they_cost_no_time(make_node, descriptors, how):
    park(make_node(config="connections = 2000\n"), how, SOME if how != "reader" else SOME // 10)


def test_dense_sandboxes_do_the_same(make_node, descriptors):
    node = make_node(config="connections = 2000\n")
    park(node, "reply", SOME, engine="wasmtime-dense")
    version = node.control("GET", "/v1/functions/park.f").document
    assert "wasmtime-dense" in str(version), version


def test_a_dense_sandbox_has_less_memory(node):
    refused = node.try_deploy("dense", {"f": ("ping", {"engine": "wasmtime-dense", "memory": "512MiB"})})
    assert refused.status == 422 and "at most 256MiB" in refused.text, refused.text


def test_what_there_is_no_room_for_waits_outside(make_node, descriptors):
    """Without an error, and without work for the node while it waits."""
    node = make_node(config="sandboxes = 50\nconnections = 2000\n")
    assert limit(node) == 50
    with Slow() as slow:
        app = node.deploy("park", {"f": ("http-component", LIMITS | GRANTS)})
        clients = connect(node, requests(app, slow)["reply"][0], 300)
        eventually(lambda: len(slow.waiting) == 50, "as many run as there is room for")
        assert eventually(lambda: is_idle(node), "the node is idle while they wait")
        assert (parked(node), len(slow.waiting)) == (50, 50)
        slow.answer()
        assert list(answers(clients)) == [b"there"] * 300


def test_a_node_takes_no_more_than_the_host_carries(make_node):
    """Whatever its configuration says; and it says what to raise."""
    node = make_node(config="sandboxes = 4000000000\ndense_sandboxes = 4000000000\n")
    assert limit(node) < 4_000_000 and limit(node, "wasmtime-dense") < 4_000_000
    log = node.log.read_text()
    assert "the configuration asks for more sandboxes than this host carries" in log and "remedy" in log
    app = node.deploy("any", {"f": "ping", "g": ("ping", {"engine": "wasmtime-dense"})})
    assert (app.call("f").status, app.call("g").status) == (200, 200)


def test_the_doctor_says_how_many_wait_at_once(node):
    said = node.cli("doctor").stdout.decode()
    assert "sandboxes" in said and "at once" in said, said


def call_later(node, path, count):
    """Calls a function asynchronously so often: no connection waits for what becomes of it."""
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(node.wire()) for _ in range(100)]
        for _ in range(count // len(wires)):
            for wire in wires:
                wire.send(get(path, method="POST", headers="Content-Length: 0\r\n"))
            for wire in wires:
                assert wire.read().status == 202


@contextlib.contextmanager
def stopped(node):
    """It ends when the block does, in order."""
    try:
        yield node
    finally:
        node.stop()


def sleepers(node, counts, milliseconds):
    """Has functions sleep, so many of each engine; their name's metrics."""
    limits = LIMITS | {"timeout": "30m"}
    node.deploy("park", {name.partition("-")[2] or "guarded": ("sleep", limits | {"engine": name}) for name in counts} | {"ping": ("ping", {"engine": "wasmtime-dense"})})
    for name, count in counts.items():
        call_later(node, f"/async-function/park.{name.partition('-')[2] or 'guarded'}?ms={milliseconds}", count)


def ended(node):
    """Calls of sleepers that have ended, and that have failed."""
    series = node.metrics()
    of = lambda metric: sum(value for name, value in series.items() if name.startswith(f'{metric}{{faas_name="park.') and "ping" not in name)
    return int(of("faas_invocations_total")), int(of("faas_errors_total") + of("faas_timeouts_total"))


@pytest.mark.skipif(not LONG, reason="MILLPOND_TEST_LONG is not set: it takes minutes")
@pytest.mark.limit(900)
def test_twenty_thousand_wait_when_the_kernel_allows_more_maps_and_dense_ones_beside(make_node):
    counts = {"wasmtime": 20_000, "wasmtime-dense": 15_000}
    with map_count(1 << 20), stopped(make_node(config="[calls]\nrunning = 40000\n")) as node:
        for engine, count in counts.items():
            if limit(node, engine) < count:
                pytest.skip(f"this machine has room for {limit(node, engine)} sandboxes of {engine}: `millpond doctor` says why")
        memory, mapped, total = private_kibibytes(node), maps(node), sum(counts.values())
        sleepers(node, counts, 200_000)
        eventually(lambda: parked(node) == total, f"{total} sandboxes are parked", patience=180)
        each = (private_kibibytes(node) - memory) / total
        print(f"{each:.0f} KiB and {(maps(node) - mapped) / total:.1f} maps for each of {total}")
        assert each < 128
        assert eventually(lambda: is_idle(node), "the node is idle while they wait")
        assert node.request("GET", "/function/park.ping").status == 200
        assert parked(node) == total, "none of them has ended"
        assert eventually(lambda: ended(node)[0] == total, "all have ended", patience=400)
        assert ended(node)[1] == 0
        eventually(lambda: sum_of(node, "millpond_sandboxes") == 0, "no sandbox is left")


@pytest.mark.skipif(not LONG, reason="MILLPOND_TEST_LONG is not set: it takes minutes")
@pytest.mark.limit(900)
def test_requests_wait_when_the_kernel_refuses_maps_that_it_once_allowed(make_node):
    """No sandbox is lost, no request fails, the node goes on."""
    # The second pool is reserved when the maps are fewer again.
    config = "sandboxes = 20000\ndense_sandboxes = 100\n[calls]\nrunning = 20000\n"
    with map_count(1 << 20) as before, stopped(make_node(config=config)) as node:
        if limit(node) < 20_000:
            pytest.skip(f"this machine has room for {limit(node)} sandboxes: `millpond doctor` says why")
        # Others on this machine have no less than they had.
        MAP_COUNT.write_text(before)
        sleepers(node, {"wasmtime": 12_000}, 20_000)
        eventually(lambda: sum_of(node, "millpond_sandboxes_refused_total") > 0, "it meets the kernel's bound", patience=120)
        eventually(lambda: "the kernel refuses memory maps" in node.log.read_text(), "it says so")
        assert eventually(lambda: ended(node)[0] == 12_000, "all have ended", patience=400)
        assert ended(node)[1] == 0
        assert node.request("GET", "/function/park.ping").status == 200
