"""Who has the core when more than one wants it."""

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import PROCESSORS, eventually, generator, guest
from test_tenants import make_tenant

pytestmark = pytest.mark.alone

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
    with pytest.raises(AssertionError, match="there is no policy `fifo`; there are `round-robin`, `deadline`, `shortest`, `first-come`"):
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


def test_what_has_become_too_late_is_not_run(make_node):
    """Admission believes that there is time; when its turn comes there is none."""
    node = make_node(config='quantum = "1s"\n')
    hurried = {"deadline": "400ms", "timeout": "60s", "cpu_time": "3s"}
    app = node.deploy("surprise", {"burn": ("burn", hurried)})
    for _ in range(20):
        assert app.call("burn", rest="?n=1000").status == 200
    with ThreadPoolExecutor(9) as clients:
        # It was expected to take no time, and its deadline is the first: nothing goes before it.
        long = clients.submit(app.call, "burn", rest="?n=1000000000000")
        eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] >= 1, "it has a sandbox")
        late = list(clients.map(lambda _: app.call("burn", rest="?n=1000"), range(8)))
        long.result().problem(504, "limit-cpu-time")
    for answer in late:
        answer.problem(429, "limit-deadline")
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.timing["run"] == 0


def test_what_is_answered_under_overload_is_in_time(make_node):
    """Whoever is taken has waited less than its deadline; the others were told so at once or in their turn."""
    node = make_node()
    query = "?n=10000000"
    app = node.deploy("crowd", {"burn": "burn"})
    usual = sorted(app.call("burn", rest=query).timing["run"] for _ in range(9))[4]
    # However fast this machine is: time for ten of them, and five times as many at once.
    deadline = max(20, round(10 * usual))
    app = node.deploy("crowd", {"burn": ("burn", {"deadline": f"{deadline}ms"})})
    with ThreadPoolExecutor(50) as clients:
        answers = list(clients.map(lambda _: app.call("burn", rest=query), range(400)))
    served = [answer for answer in answers if answer.status == 200]
    refused = [answer for answer in answers if answer.status != 200]
    assert served and refused
    for answer in refused:
        answer.problem(429, "limit-deadline")
    late = [answer.timing for answer in served if answer.timing["queue"] > 2 * deadline]
    # One that was interrupted may have waited again after its begin.
    assert len(late) <= 1 + len(served) // 10, (deadline, late)


def test_a_history_is_shown_and_survives(make_node):
    node = make_node()
    app = node.deploy("past", {"burn": "burn", "ping": "ping"})

    def usage(name):
        return node.control("GET", f"/v1/functions/past.{name}").document.get("usage")

    assert usage("burn") is None
    for _ in range(10):
        assert app.call("burn", rest="?n=1000000").status == 200
    eventually(lambda: (usage("burn") or {}).get("requests") == 10, "all are in the history")
    before = usage("burn")
    assert set(before) >= {"run", "waits", "memory", "received", "sent", "gap"}
    assert set(before["run"]) == {"mean", "p50", "p90", "p99"}
    shown = node.cli("describe", "past.burn").stdout.decode()
    assert "usage:" in shown and "p99:" in shown
    node.stop()
    node.start()
    after = usage("burn")
    assert after["requests"] == 10
    assert after["run"]["mean"] == before["run"]["mean"]
    assert usage("ping") is None
    node.control("DELETE", "/v1/functions/past.burn")
    app = node.deploy("past", {"burn": "burn", "ping": "ping"})
    assert usage("burn") is None


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


def load(node, tenant, path, connections, seconds):
    """A client that asks for this all the time."""
    return generator(node, path, connections, seconds, "--header", f"Authorization: Bearer {tenant.token}", "--refusal", 429)


FLOODS = {"answered": ("ping", {}), "refused": ("spin", {"deadline": "1ms", "cpu_time": "5m", "timeout": "10m"})}


@pytest.mark.parametrize("flood", FLOODS)
def test_what_a_tenant_asks_for_is_of_its_share(make_node, flood):
    """Reading, refusing and answering its requests is work for it as much as running them is, and nobody else pays for that: half of
    the core is the other's."""
    node = make_node(token="the-operators-own-token", cores=PROCESSORS[:1])
    asking, working = make_tenant(node, "asking"), make_tenant(node, "working")
    deploy(asking, "flood", {"flood": FLOODS[flood]})
    deploy(working, "work", {"burn": ("burn", {})})

    def throughput():
        worker = load(node, working, "/function/work.burn?n=1000000", 8, 1.5)
        report = json.loads(worker.communicate(timeout=60)[0])
        assert not any(report["errors"].values()) and not report["refused"], report
        return report["throughput"]

    def parsed():
        return node.metrics()['millpond_http_requests_total{core="0"}']

    # Once: what a flood has begun may outlast its client.
    shares, alone = [], throughput()
    while len(shares) < 4 and not any(share > 0.42 for share in shares):
        before, flooding = parsed(), load(node, asking, "/function/flood.flood", 100, 600)
        try:
            eventually(lambda before=before: parsed() > before + 10_000, "it floods")
            shares.append(throughput() / alone)
        finally:
            flooding.kill()
            flooding.communicate()
    assert max(shares) > 0.42, f"of what it has alone: {shares}"
    if flood == "refused":
        assert node.metrics()['millpond_set_aside_total{core="0"}'] > 100, "its requests wait"


def test_weights_are_numbers_that_make_sense(make_node):
    node = make_node(token="the-operators-own-token")
    make_tenant(node, "acme", weight=4)
    assert node.control("GET", "/v1/tenants/acme").document["quotas"] == {"weight": 4}
    for weight in (0, 1001):
        node.control("PATCH", "/v1/tenants/acme", {"weight": weight}).problem(422, "tenant-quota")
    assert node.control("PATCH", "/v1/tenants/acme", {"weight": None}).document["quotas"] == {}
