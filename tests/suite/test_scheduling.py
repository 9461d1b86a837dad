"""Who has the core when more than one wants it."""

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import eventually, guest
from test_tenants import make_tenant

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


def deploy(who, name, functions):
    """As `Node.deploy`, by a tenant."""
    manifest, code = {"application": {"name": name}, "function": {}}, {}
    for function, (program, settings) in functions.items():
        program = guest(program)
        code[function] = hashlib.sha256(program).hexdigest()
        manifest["function"][function] = {"source": "x.wasm"} | settings
        assert who.control("PUT", f"/v1/code/{code[function]}", body=program).status in (200, 201)
    answer = who.control("POST", f"/v1/applications/{name}/deployments", {"manifest": manifest, "code": code})
    assert answer.status == 200, answer.body


def test_a_tenant_that_lies_takes_nothing_from_another(make_node):
    """Its claims count among its own functions only."""
    node = make_node(token="the-operators-own-token", config=LONGEST)
    liar, honest = make_tenant(node, "liar"), make_tenant(node, "honest", weight=2)
    claims = {"deadline": "1h", "priority": 100, "cpu_time": "3s", "timeout": "60s"}
    deploy(liar, "lies", {"spin": ("spin", claims)})
    deploy(honest, "work", {"burn": ("burn", {"priority": -100}), "ping": ("ping", {"priority": -100})})
    with ThreadPoolExecutor(4) as clients:
        spinning = [clients.submit(liar.request, "GET", "/function/lies.spin") for _ in range(4)]
        eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] >= 1, "it has a sandbox")
        for _ in range(5):
            assert honest.request("GET", "/function/work.ping").text == "pong\n"
            assert honest.request("GET", "/function/work.burn?n=3000000").status == 200
        assert not any(one.done() for one in spinning), "who claims everything waits for its share"
        for one in spinning:
            one.result().problem(504, "limit-cpu-time")


def test_weights_are_numbers_that_make_sense(make_node):
    node = make_node(token="the-operators-own-token")
    make_tenant(node, "acme", weight=4)
    assert node.control("GET", "/v1/tenants/acme").document["quotas"] == {"weight": 4}
    for weight in (0, 1001):
        node.control("PATCH", "/v1/tenants/acme", {"weight": weight}).problem(422, "tenant-quota")
    assert node.control("PATCH", "/v1/tenants/acme", {"weight": None}).document["quotas"] == {}
