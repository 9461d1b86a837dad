"""Who has the core when more than one wants it."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import eventually

LONGEST = 'quantum = "1s"\n'
"""A quantum longer than anything here runs: what gives way gives way to an arrival."""


def spinning(node, app, function):
    """A request that computes for ever, and holds the core when this returns."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(app.call, function)
    eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] >= 1, "it has a sandbox")
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("policy", ["deadline", "round-robin", "shortest"])
def test_short_work_does_not_wait_for_a_quantum(make_node, policy):
    node = make_node(config=LONGEST + f'policy = "{policy}"\n')
    app = node.deploy("mixed", {"spin": ("spin", {"cpu_time": "5s", "timeout": "60s"}), "ping": "ping"})
    for _ in range(2):
        # The second time its length is known, and it is watched from the beginning.
        long = spinning(node, app, "spin")
        answers = [app.call("ping") for _ in range(10)]
        assert [answer.status for answer in answers] == [200] * 10
        assert not long.done(), "the long one was asked for its core, it has not ended"
        long.result().problem(504, "limit-cpu-time")


def test_a_policy_that_there_is_not_is_refused(make_node):
    node = make_node(start=False, config='policy = "fifo"\n')
    with pytest.raises(AssertionError, match="there is no policy `fifo`; there are `round-robin`, `deadline`, `shortest`"):
        node.start()


def test_what_cannot_be_in_time_is_refused_at_once(make_node):
    node = make_node()
    app = node.deploy("hurried", {"burn": ("burn", {"deadline": "50ms"})})
    query = "?n=10000000"
    for _ in range(3):
        assert app.call("burn", rest=query).status == 200
    with ThreadPoolExecutor(64) as clients:
        answers = list(clients.map(lambda _: app.call("burn", rest=query), range(64)))
    statuses = {answer.status for answer in answers}
    assert statuses == {200, 429}, statuses
    for answer in answers:
        if answer.status == 429:
            answer.problem(429, "limit-deadline")
            assert int(answer.headers["Retry-After"]) >= 1
