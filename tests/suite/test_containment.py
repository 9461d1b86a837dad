"""Guests that misbehave: each is reported as what it is, and nobody else notices."""

import pytest
from harness import Swarm, eventually, get

HOSTILE = {
    "spin": (504, "limit-timeout"),
    "grow": (502, "function-out-of-memory"),
    "recurse": (502, "function-stack-overflow"),
    "trap": (502, "function-trap"),
    "endless": (502, "limit-response-body"),
    "exit3": (502, "function-exit"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_reported_as_what_it_is(suite, name):
    answer = suite.call(name)
    problem = answer.problem(*HOSTILE[name])
    assert problem["hint"]
    assert problem["request_id"] == answer.headers["X-Request-Id"]
    assert answer.headers["X-Millpond-Error"] == problem["code"]


@pytest.mark.parametrize("name", [*HOSTILE, "closeout"])
def test_a_neighbour_answers_meanwhile(suite, name):
    """Both on the one core of this node."""
    node = suite.node
    wrong = []

    def check(answer):
        expected = HOSTILE.get(name, (200,))[0]
        if answer.status != expected:
            wrong.append(answer.body)

    with Swarm(node, suite.path(name), 2, check), Swarm(node, suite.path("ping"), 2, lambda answer: pong(answer)) as pings:
        pings.served(100)
    assert not pings.errors and not wrong


def pong(answer):
    assert (answer.status, answer.body) == (200, b"pong\n")


def test_a_spinner_is_preempted(node):
    """On its only core a guest computes for ever; others have their turns long before its time is over."""
    app = node.deploy("preempt", {"spin": ("spin", {"timeout": "20s", "cpu_time": "3s"}), "ping": "ping"})
    before = node.metrics()['millpond_preemptions_total{core="0"}']
    with node.wire() as spinner:
        spinner.send(get(app.path("spin")))
        eventually(lambda: node.metrics()['millpond_preemptions_total{core="0"}'] > before, "the spinner is preempted")
        for _ in range(20):
            pong(app.call("ping"))
        spinner.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            spinner.socket.recv(1)
        spinner.socket.setblocking(True)
        answer = spinner.read()
    answer.problem(504, "limit-cpu-time")


def test_sandboxes_are_given_back(suite):
    """After hundreds of failures of each kind the node has as many sandboxes as before."""
    node = suite.node
    for name in ("recurse", "trap", "exit3", "grow"):
        with Swarm(node, suite.path(name), 4) as swarm:
            swarm.served(200)
        assert not swarm.errors
    eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] == 0, "no sandbox is left")
    pong(suite.call("ping"))


def test_all_at_once(two_cores):
    app = two_cores.deploy("all", {
        **{name: (name, {"timeout": "500ms", "memory": "8MiB", "response_body": "1MiB"}) for name in HOSTILE},
        "ping": "ping",
    })
    swarms = [Swarm(two_cores, app.path(name), 1) for name in HOSTILE]
    with Swarm(two_cores, app.path("ping"), 2, pong) as pings:
        for swarm in swarms:
            swarm.__enter__()
        pings.served(300)
        for swarm in swarms:
            swarm.stop()
            assert not swarm.errors
    assert not pings.errors
