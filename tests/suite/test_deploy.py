"""Deploys, versions, aliases, rollbacks: nobody who is being served notices."""

import re
import threading
import time

import pytest
from harness import Swarm, eventually, get, guest


def version(answer):
    assert answer.status == 200, (answer.status, answer.body)
    return int(re.search(r"^MILLPOND_VERSION=(\d+)$", answer.text, re.M)[1])


def env(level, variant=None):
    return guest("env", variant), {"env": {"LEVEL": str(level)}}


def test_a_plan_changes_nothing(node):
    planned = node.deploy("planned", {"env": env(1)}, plan=True).deployment
    assert [(c["function"], c["action"], c["to"]) for c in planned["changes"]] == [("env", "create", 1)]
    assert node.control("GET", "/v1/applications/planned").status == 404
    assert node.request("GET", "/function/planned.env").status == 404
    app = node.deploy("planned", {"env": env(1)})
    planned = node.deploy("planned", {"env": env(2)}, plan=True).deployment
    [change] = planned["changes"]
    assert (change["action"], change["from"], change["to"]) == ("update", 1, 2)
    assert change["differences"]
    assert version(app.call("env")) == 1


def test_missing_code_is_named(node):
    digest = "0" * 64
    manifest = {"application": {"name": "missing"}, "function": {"a": {"source": "a.wasm"}}}
    path = "/v1/applications/missing/deployments"
    planned = node.control("POST", f"{path}?plan=true", {"manifest": manifest, "code": {"a": digest}})
    assert planned.status == 200 and planned.document["missing_code"] == [digest]
    node.control("POST", f"{path}?plan=false", {"manifest": manifest, "code": {"a": digest}}).problem(409, "code-missing")


def test_code_is_checked_against_its_digest(node):
    answer = node.control("PUT", f"/v1/code/{'0' * 64}", body=guest("ping"))
    assert answer.status == 422
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("code", [b"", b"\0asm", b"\0asm\1\0\0\0", guest("ping")[:-20], b"#!/bin/sh\n", guest("ping").replace(b"fd_write", b"fd_wrote")])
def test_code_that_cannot_run_is_refused_and_nothing_changes(node, code):
    app = node.deploy("refusing", {"ping": "ping"})
    answer = node.try_deploy("refusing", {"ping": (code, {})})
    assert answer.status == 422, answer.body
    assert answer.document["detail"]
    assert app.call("ping").body == b"pong\n"


def test_versions_aliases_and_rollback(node):
    app = node.deploy("aged", {"env": env(1)})
    for level in (2, 3):
        app = node.deploy("aged", {"env": env(level)})
    assert app.versions() == {"env": 3}
    assert version(app.call("env")) == 3
    assert [version(app.call(f"env:{number}")) for number in (1, 2, 3)] == [1, 2, 3]
    assert "LEVEL=1\n" in app.call("env:1").text

    base = "/v1/functions/aged.env"
    assert node.control("PUT", f"{base}/aliases/beta", {"version": 2}).status == 200
    assert version(app.call("env:beta")) == 2
    assert node.control("PUT", f"{base}/aliases/beta", {"version": 1}).document["from"] == 2
    assert version(app.call("env:beta")) == 1
    assert node.control("PUT", f"{base}/aliases/beta", {"version": 9}).status == 404
    assert node.control("DELETE", f"{base}/aliases/beta").status == 204
    assert app.call("env:beta").status == 404

    rolled = node.control("POST", f"{base}/rollback", {})
    assert rolled.status == 200 and (rolled.document["from"], rolled.document["to"]) == (3, 2)
    assert version(app.call("env")) == 2
    assert node.control("POST", f"{base}/rollback", {"to": 1}).document["to"] == 1
    assert version(app.call("env")) == 1
    # A deploy after a rollback is a version of its own.
    assert node.deploy("aged", {"env": env(4)}).versions() == {"env": 4}
    assert version(app.call("env")) == 4


def test_an_unchanged_deploy_changes_nothing(node):
    first = node.deploy("same", {"env": env(1)})
    again = node.deploy("same", {"env": env(1)})
    assert [change["action"] for change in again.deployment["changes"]] == ["unchanged"]
    assert again.deployment["revision"] == first.deployment["revision"]
    assert version(again.call("env")) == 1


def test_functions_that_the_manifest_no_longer_has_are_deleted(node):
    app = node.deploy("shrinking", {"a": "ping", "b": "ping"}, [{"function": "b", "path": "/shrinking/b"}])
    assert node.request("GET", "/shrinking/b").status == 200
    smaller = node.deploy("shrinking", {"a": "ping"})
    assert {c["function"]: c["action"] for c in smaller.deployment["changes"]} == {"a": "unchanged", "b": "delete"}
    assert app.call("b").status == 404
    assert node.request("GET", "/shrinking/b").status == 404
    assert app.call("a").status == 200


def test_delete(node):
    app = node.deploy("doomed", {"a": "ping", "b": "ping"})
    assert node.control("DELETE", "/v1/functions/doomed.a").status == 204
    assert app.call("a").status == 404 and app.call("b").status == 200
    assert node.control("DELETE", "/v1/applications/doomed").status == 204
    assert app.call("b").status == 404
    assert node.control("DELETE", "/v1/applications/doomed").status == 404


def test_requests_in_flight_finish_on_their_version(node):
    def app(level, **functions):
        settings = {"env": {"LEVEL": str(level)}}
        return node.deploy("flight", {"sleep": ("sleep", settings), "env": env(level), **functions})

    first = app(1)
    parked = 'millpond_parked{core="0"}'
    with node.wire() as swapped, node.wire() as deleted:
        swapped.send(get(first.path("sleep", "?ms=400")))
        eventually(lambda: node.metrics()[parked] >= 1, "it sleeps")
        app(2)
        assert version(first.call("env")) == 2
        deleted.send(get(first.path("sleep", "?ms=400")))
        eventually(lambda: node.metrics()[parked] >= 2, "both sleep")
        assert node.control("DELETE", "/v1/applications/flight").status == 204
        assert first.call("env").status == 404
        for wire in (swapped, deleted):
            assert wire.read().text == "slept 400 ms\n"


class Switches:
    """Checks that what a client sees never goes back, and is never what was not deployed yet."""

    def __init__(self):
        self.newest_begun = 1
        self.oldest_live = 1
        self.local = threading.local()

    def check(self, answer):
        seen = version(answer)
        # The program's answer carries the version of its code, too: it must be of one piece.
        assert f"LEVEL={seen}\n" in answer.text, f"version {seen} ran with another's environment"
        assert seen >= getattr(self.local, "last", 1), f"{seen} after {self.local.last}"
        assert seen <= self.newest_begun, f"{seen} was not deployed yet"
        self.local.last = seen


@pytest.mark.limit(180)
def test_a_deploy_each_second_during_load(two_cores):
    """No request fails, and each client's versions only rise. Each deploy has new code: compiling happens meanwhile."""
    node, switches = two_cores, Switches()
    app = node.deploy("moving", {"env": env(1, 1)})
    seen = set()

    def check(answer):
        switches.check(answer)
        seen.add(switches.local.last)

    deploys = 10
    with Swarm(node, app.path("env"), 6, check) as swarm:
        for level in range(2, deploys + 2):
            begun = time.monotonic()
            switches.newest_begun = level
            assert node.deploy("moving", {"env": env(level, level)}).versions() == {"env": level}
            # Acknowledged means served: whoever asks from now on gets it.
            assert version(app.call("env")) == level
            swarm.served(20)
            time.sleep(max(0, 1 - (time.monotonic() - begun)))
    assert not swarm.errors, swarm.errors
    assert seen >= set(range(2, deploys + 2)), "a version was never served"


def test_deploys_as_fast_as_they_go_during_load(node):
    switches = Switches()
    app = node.deploy("racing", {"env": env(1)})
    with Swarm(node, app.path("env"), 4, switches.check) as swarm:
        for level in range(2, 40):
            switches.newest_begun = level
            node.deploy("racing", {"env": env(level)})
        swarm.served(100)
    assert not swarm.errors, swarm.errors


def test_concurrent_deploys_of_one_application(node):
    """All are acknowledged, one after the other; the last version is what is served."""
    node.deploy("crowded", {"env": env(0)})
    results = []

    def deploy(level):
        results.append(node.try_deploy("crowded", {"env": env(level)}))

    threads = [threading.Thread(target=deploy, args=(level,)) for level in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status for answer in results} <= {200, 409}, [answer.body for answer in results]
    done = [answer.document["changes"][0]["to"] for answer in results if answer.status == 200]
    assert len(set(done)) == len(done) >= 1, "two deploys made the same version"
    assert version(node.request("GET", "/function/crowded.env")) == max(done)


def test_cold_code_that_both_cores_want_at_once(two_cores):
    """Versions without an alias have no image until somebody asks: requests wait for it, also those that a core took over
    from another. Both cores live on."""
    node = two_cores
    for level in range(1, 11):
        node.deploy("cold", {"env": env(level, level), "burn": ("burn", {"env": {"LEVEL": str(level)}})})
    with Swarm(node, "/function/cold.burn?n=2000000", 4) as burning:
        for level in range(1, 10):
            wires = [node.wire() for _ in range(12)]
            for wire in wires:
                wire.send(get(f"/function/cold.env:{level}") * 4)
            for wire in wires:
                assert [version(wire.read()) for _ in range(4)] == [level] * 4
                wire.close()
    assert not burning.errors, burning.errors
