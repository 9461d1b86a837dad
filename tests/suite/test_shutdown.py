"""How a node goes."""

import signal
import socket

import pytest
from harness import PROCESSORS, Closed, Wire, eventually, get

PARKED = 'millpond_parked{core="0"}'


def draining(node):
    """Waits until the node says that it goes: new connections are refused."""

    def refused():
        try:
            Wire(node.listen).close()
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return False

    eventually(refused, "new connections are refused")


@pytest.mark.parametrize("cores", [1, 2])
def test_requests_in_flight_are_finished(make_node, cores):
    if len(PROCESSORS) < cores:
        pytest.skip("this machine gives the tests fewer processors")
    node = make_node(cores=PROCESSORS[:cores])
    app = node.deploy("going", {"sleep": "sleep", "burn": "burn"})
    wires = [node.wire() for _ in range(8)]
    idle = node.wire()
    for wire in wires:
        wire.send(get(app.path("sleep", "?ms=1000")))
    eventually(lambda: sum(v for k, v in node.metrics().items() if k.startswith("millpond_parked")) == 8, "all sleep")
    node.terminate()
    draining(node)
    assert idle.is_closed(), "an idle connection was kept"
    for wire in wires:
        answer = wire.read()
        assert (answer.status, answer.text) == (200, "slept 1000 ms\n")
        assert wire.is_closed(), "a connection was kept after its answer"
    assert node.wait() == 0


def test_requests_that_come_while_draining_are_refused(make_node):
    """They were half here when the node was told to go: their connections are not idle, so they are answered."""
    node = make_node()
    app = node.deploy("going", {"sleep": "sleep", "echo": "echo", "ping": "ping"})
    halves = [
        get(app.path("ping")),
        get(app.path("echo"), method="POST", headers="Content-Length: 4\r\n") + b"body",
        get(app.path("echo"), method="POST", headers="Transfer-Encoding: chunked\r\n") + b"4\r\nbody\r\n0\r\n\r\n",
    ]
    with node.wire() as first, node.wire() as asking:
        first.send(get(app.path("sleep", "?ms=1000")))
        asking.send(b"GET /readyz HTTP/1.1\r\n")
        wires = [node.wire() for _ in halves]
        for wire, request in zip(wires, halves):
            wire.send(request[:-8])
        eventually(lambda: node.metrics()[PARKED] == 1, "the first sleeps")
        node.terminate()
        draining(node)
        for wire, request in zip(wires, halves):
            wire.send(request[-8:])
            answer = wire.read()
            problem = answer.problem(503, "draining")
            assert int(answer.headers["Retry-After"]) >= 1 and problem["hint"]
            assert answer.headers["Connection"] == "close"
            assert wire.is_closed()
        # A load balancer sees it while what is in flight is finished.
        asking.send(b"Host: x\r\n\r\n")
        assert asking.read().status == 503
        answer = first.read()
        assert answer.status == 200 and answer.headers["Connection"] == "close"
    assert node.wait() == 0


def test_queued_requests_are_finished_too(make_node):
    node = make_node()
    app = node.deploy("going", {"sleep": ("sleep", {"concurrency": 1})})
    wires = [node.wire() for _ in range(5)]
    for wire in wires:
        wire.send(get(app.path("sleep", "?ms=150")))
    eventually(lambda: node.metrics()[PARKED] == 1, "one sleeps")
    node.terminate()
    assert [wire.read().status for wire in wires] == [200] * 5
    assert node.wait() == 0


def test_when_the_drain_is_over_the_rest_is_refused(make_node):
    node = make_node(config='drain = "500ms"\n')
    app = node.deploy("going", {"spin": "spin", "sleep": "sleep", "one": ("sleep", {"concurrency": 1})})
    requests = [app.path("spin"), app.path("sleep", "?ms=60000"), app.path("one", "?ms=60000"), app.path("one", "?ms=60000")]
    wires = [node.wire() for _ in requests]
    for wire, path in zip(wires, requests):
        wire.send(get(path))
    eventually(lambda: node.metrics()[PARKED] == 2, "the sleepers sleep")
    node.terminate()
    for wire in wires:
        wire.read().problem(503, "draining")
        assert wire.is_closed()
    assert node.wait() == 0


def test_sigint_is_as_good(make_node):
    node = make_node()
    node.process.send_signal(signal.SIGINT)
    assert node.wait() == 0


def test_a_second_signal_ends_it_at_once(make_node):
    node = make_node()
    app = node.deploy("going", {"sleep": "sleep"})
    with node.wire() as wire:
        wire.send(get(app.path("sleep", "?ms=20000")))
        eventually(lambda: node.metrics()[PARKED] == 1, "it sleeps")
        node.terminate()
        draining(node)
        node.terminate()
        assert node.wait() == 143
        with pytest.raises(Closed):
            wire.read()


def test_sigterm_under_load_loses_nothing_that_was_begun(make_node):
    """Every request that was sent before the node said it goes gets an answer: 200, or 503 with the reason."""
    node = make_node()
    app = node.deploy("going", {"ping": "ping"})
    wires = [node.wire() for _ in range(16)]
    for wire in wires:
        wire.send(get(app.path("ping")) * 50)
    node.terminate()
    for wire in wires:
        for _ in range(50):
            try:
                answer = wire.read()
            except Closed:
                break
            assert answer.status in (200, 503)
            if answer.headers["Connection"] == "close":
                assert wire.is_closed()
                break
        else:
            continue
    assert node.wait() == 0


def test_a_port_that_is_taken(make_node):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = make_node(start=False)
        node.command[node.command.index("--listen") + 1] = f"127.0.0.1:{port}"
        with pytest.raises(AssertionError, match=f"(?s)127.0.0.1:{port}.*--listen"):
            node.start()


def test_a_hangup_ends_no_node(make_node):
    """Whoever started it may log out."""
    node = make_node()
    app = node.deploy("stays", {"ping": "ping"})
    for count in (1, 2):
        node.process.send_signal(signal.SIGHUP)
        eventually(lambda count=count: node.log.read_text().count("SIGHUP") == count, "the log says so")
        assert node.request("GET", app.path("ping")).body == b"pong\n"
    assert node.is_running
