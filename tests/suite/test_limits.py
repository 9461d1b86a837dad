"""Each limit: the right status, and an answer that says which it was and how to raise it."""

import time
from email.utils import parsedate_to_datetime

import pytest
from harness import eventually, get


def at_once(application, function, count, rest=""):
    """Sends requests on connections of their own, all before any answer is read; returns the open connections."""
    wires = [application.node.wire() for _ in range(count)]
    for wire in wires:
        wire.send(get(application.path(function, rest)))
    return wires


def answers(wires):
    said = []
    for wire in wires:
        with wire:
            said.append(wire.read())
    return said


def running(node, function, count):
    """Waits until so many sandboxes of the node are parked: a sleeping function has begun."""
    eventually(lambda: node.metrics()['millpond_parked{core="0"}'] >= count, f"{count} of {function} sleep")


def test_memory(node):
    app = node.deploy("lim-memory", {"grow": ("grow", {"memory": "4MiB"}), "fits": ("echo", {"memory": "4MiB"})})
    problem = app.call("grow").problem(502, "function-out-of-memory")
    assert "4MiB" in problem["detail"] and "`memory`" in problem["hint"]
    assert app.call("fits", b"x").status == 200


def test_memory_that_the_code_itself_wants_is_refused_at_deploy(node):
    answer = node.try_deploy("lim-least", {"ping": ("env", {"memory": "64KiB"})})
    assert answer.status == 422, answer.body
    assert "memory" in answer.text


def test_timeout(node):
    app = node.deploy("lim-timeout", {"sleep": ("sleep", {"timeout": "100ms"}), "spin": ("spin", {"timeout": "100ms"})})
    for function in ("sleep", "spin"):
        answer = app.call(function, rest="?ms=20000")
        problem = answer.problem(504, "limit-timeout")
        assert "100ms" in problem["detail"] and "`timeout`" in problem["hint"]
        assert sum(answer.timing.values()) >= 100


def test_cpu_time(node):
    app = node.deploy("lim-cpu", {"spin": ("spin", {"cpu_time": "50ms"}), "sleep": ("sleep", {"cpu_time": "50ms"})})
    problem = app.call("spin").problem(504, "limit-cpu-time")
    assert "50ms" in problem["detail"] and "`cpu_time`" in problem["hint"]
    assert app.call("sleep", rest="?ms=150").text == "slept 150 ms\n", "sleeping is no time on a core"


@pytest.fixture(scope="module")
def small(node):
    return node.deploy("lim-body", {"echo": ("echo", {"request_body": "1KiB"})})


def test_request_body_by_its_length(small):
    assert small.call("echo", b"x" * 1024).status == 200
    problem = small.call("echo", b"x" * 1025).problem(413, "limit-request-body")
    assert "1KiB" in problem["detail"] and "`request_body`" in problem["hint"]


def test_request_body_is_refused_before_it_is_sent(small):
    with small.node.wire() as wire:
        wire.send(get(small.path("echo"), method="POST", headers="Content-Length: 99999999\r\nExpect: 100-continue\r\n"))
        wire.read().problem(413, "limit-request-body")
        wire.end()
        assert wire.is_closed()


def test_request_body_in_chunks(small):
    def chunked(*sizes):
        with small.node.wire() as wire:
            wire.send(get(small.path("echo"), method="POST", headers="Transfer-Encoding: chunked\r\n"))
            for size in sizes:
                wire.send(b"%x\r\n%s\r\n" % (size, b"x" * size))
            wire.send(b"0\r\n\r\n")
            return wire.read()

    assert chunked(1000, 24).body == b"x" * 1024
    problem = chunked(1000, 25).problem(413, "limit-request-body")
    assert "`request_body`" in problem["hint"]


def test_response_body(node):
    app = node.deploy("lim-answer", {
        "endless": ("endless", {"response_body": "1MiB"}),
        "echo": ("echo", {"response_body": "1KiB"}),
    })
    problem = app.call("endless").problem(502, "limit-response-body")
    assert "1MiB" in problem["detail"] and "`response_body`" in problem["hint"]
    assert app.call("echo", b"x" * 1024).body == b"x" * 1024
    app.call("echo", b"x" * 1025).problem(502, "limit-response-body")


def test_concurrency_makes_requests_wait(node):
    app = node.deploy("lim-concurrency", {"sleep": ("sleep", {"concurrency": 2, "queue": 10})})
    said = answers(at_once(app, "sleep", 6, "?ms=100"))
    assert [answer.status for answer in said] == [200] * 6
    # Three rounds of two: the last has waited for both that were before it.
    assert max(answer.timing["queue"] for answer in said) >= 200
    assert sum(answer.timing["queue"] < 100 for answer in said) == 2


def test_full_queue(node):
    app = node.deploy("lim-queue", {"sleep": ("sleep", {"concurrency": 1, "queue": 2})})
    first = at_once(app, "sleep", 1, "?ms=1000")
    running(node, "sleep", 1)
    rest = at_once(app, "sleep", 5, "?ms=1")
    refused = [answer for answer in answers(rest) if answer.status != 200]
    assert len(refused) == 3, "two may wait"
    for answer in refused:
        problem = answer.problem(429, "limit-queue")
        assert int(answer.headers["Retry-After"]) >= 1
        assert "`queue`" in problem["hint"] and "`concurrency`" in problem["hint"]
    assert answers(first)[0].status == 200


def test_a_burst_within_the_limits_is_not_refused(node):
    """Requests that arrive together are counted as they come, not as they are begun."""
    app = node.deploy("lim-burst", {"ping": ("ping", {"concurrency": 64, "queue": 0}), "pair": ("ping", {"concurrency": 1, "queue": 1})})
    for _ in range(20):
        assert [answer.status for answer in answers(at_once(app, "ping", 32))] == [200] * 32
        assert [answer.status for answer in answers(at_once(app, "pair", 2))] == [200] * 2


def test_refusals_do_not_outlast_their_cause(node):
    app = node.deploy("lim-after", {"sleep": ("sleep", {"concurrency": 1, "queue": 0})})
    first = at_once(app, "sleep", 1, "?ms=300")
    running(node, "sleep", 1)
    app.call("sleep", rest="?ms=1").problem(429, "limit-queue")
    answers(first)
    assert app.call("sleep", rest="?ms=1").status == 200


def test_each_refusal_is_of_its_own_request(node):
    """Refusals of a kind say the same, but for whose they are; and in the manner in which each was asked for."""
    app = node.deploy("lim-refusals", {"sleep": ("sleep", {"concurrency": 1, "queue": 0})})
    first = at_once(app, "sleep", 1, "?ms=1500")
    running(node, "sleep", 1)
    path, identities, said = app.path("sleep", "?ms=1"), [], []
    with node.wire() as wire:
        for method in ["GET", "GET", "HEAD", "GET", "POST"]:
            wire.send(get(path, method=method, headers="Content-Length: 0\r\n" if method == "POST" else ""))
            answer = wire.read(method)
            assert answer.status == 429 and answer.headers["Content-Type"] == "application/problem+json"
            assert answer.timing["run"] == 0 and parsedate_to_datetime(answer.headers["Date"])
            identities.append(answer.headers["X-Request-Id"])
            if method == "HEAD":
                assert int(answer.headers["Content-Length"]) > 0
                continue
            problem = answer.problem(429, "limit-queue")
            assert problem.pop("request_id") == identities[-1]
            said.append((problem, sorted(set(answer.headers) - {"Connection"}), answer.headers["Retry-After"]))
        wire.send(get(path, version="HTTP/1.0"))
        answer = wire.read()
        assert answer.problem(429, "limit-queue")["request_id"] == answer.headers["X-Request-Id"]
        assert answer.headers["Connection"] == "close" and wire.is_closed()
    # Several at once on one connection, the last of which ends it.
    with node.wire() as wire:
        wire.send(get(path) * 3 + get(path, headers="Connection: close\r\n"))
        for _ in range(4):
            answer = wire.read()
            identities.append(answer.headers["X-Request-Id"])
            assert answer.problem(429, "limit-queue")["request_id"] == identities[-1]
        assert answer.headers["Connection"] == "close" and wire.is_closed()
    assert len(set(identities)) == len(identities)
    assert all(one == said[0] for one in said)
    assert answers(first)[0].status == 200


def test_timeout_of_a_request_that_waits(node):
    """A request's time runs from its admission, also while it has no sandbox."""
    app = node.deploy("lim-waiting", {"sleep": ("sleep", {"concurrency": 1, "timeout": "600ms"})})
    first = at_once(app, "sleep", 1, "?ms=500")
    running(node, "sleep", 1)
    second, third = answers(at_once(app, "sleep", 2, "?ms=500"))
    assert answers(first)[0].status == 200
    for answer in (second, third):
        answer.problem(504, "limit-timeout")
        assert 600 <= sum(answer.timing.values())


def test_limits_of_one_function_do_not_touch_another(node):
    app = node.deploy("lim-apart", {"sleep": ("sleep", {"concurrency": 1, "queue": 0}), "ping": "ping"})
    first = at_once(app, "sleep", 1, "?ms=400")
    running(node, "sleep", 1)
    app.call("sleep").problem(429, "limit-queue")
    assert app.call("ping").status == 200
    answers(first)


def test_more_sandboxes_than_the_node_has(make_node):
    """A request that finds no sandbox waits for one instead of failing."""
    node = make_node(config="sandboxes = 4\n")
    app = node.deploy("few", {"sleep": "sleep"})
    said = answers(at_once(app, "sleep", 16, "?ms=50"))
    assert [answer.status for answer in said] == [200] * 16


def test_concurrency_holds_across_cores(two_cores):
    """One at a time, whichever core reads them: forty times 25 ms take a second at least. None is lost on the way."""
    app = two_cores.deploy("lim-cores", {"sleep": ("sleep", {"concurrency": 1})})
    for _ in range(2):
        begun = time.monotonic()
        said = answers(at_once(app, "sleep", 40, "?ms=25"))
        assert [answer.status for answer in said] == [200] * 40
        assert time.monotonic() - begun >= 1.0
        # The last of them waited for most of the others; it came while the first ran.
        assert max(answer.timing["queue"] for answer in said) >= 30 * 25


def test_starved_requests_expire_too(make_node):
    """They wait for a sandbox of the node, not of their function; their time runs all the same."""
    node = make_node(config="sandboxes = 2\n")
    app = node.deploy("starved", {"sleep": "sleep", "quick": ("ping", {"timeout": "200ms"})})
    wires = at_once(app, "sleep", 2, "?ms=1500")
    running(node, "sleep", 2)
    for answer in answers(at_once(app, "quick", 5)):
        answer.problem(504, "limit-timeout")
    assert [answer.status for answer in answers(wires)] == [200, 200]
    assert app.call("quick").status == 200


def test_connections_beyond_the_limit_wait(make_node):
    node = make_node(config="connections = 16\n")
    app = node.deploy("crowd", {"ping": "ping"})
    wires = [node.wire() for _ in range(50)]
    for wire in wires:
        wire.send(get(app.path("ping"), headers="Connection: close\r\n"))
    assert [answer.status for answer in answers(wires)] == [200] * 50
    assert node.metrics()['millpond_connections_open{core="0"}'] <= 16
