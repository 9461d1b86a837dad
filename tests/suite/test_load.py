"""A node that is kept busy, and one that is not."""

import json
import os
import time
from pathlib import Path

import harness
import pytest
from harness import LONG, MILLPOND, PROCESSORS, Swarm, generator, get

pytestmark = pytest.mark.alone

SECONDS = 180 if LONG else 30


def generate(node, path, seconds, expected, folder, connections=32, body=None):
    """Saturates a path from the last processor; returns what the generator saw. Every answer is compared."""
    (folder / "expected").write_bytes(expected)
    more = ["--expect", folder / "expected"]
    if body is not None:
        (folder / "body").write_bytes(body)
        more += ["--body", folder / "body"]
    load = generator(node, path, connections, seconds, *more)
    try:
        report, complaint = load.communicate(timeout=seconds + 60)
    finally:
        load.kill()
    assert load.returncode == 0, complaint
    return json.loads(report)


def test_its_allocator_keeps_more_than_by_default(make_node):
    """It has begun itself anew for that, under the name and the number that it was started with."""
    process = Path(f"/proc/{make_node().process.pid}")
    assert b"glibc.malloc.tcache_count=127" in (process / "environ").read_bytes()
    assert (process / "comm").read_text().strip() == MILLPOND.name[:15]


def test_it_begins_anew_once(make_node, monkeypatch):
    """Whoever has privileges of its own is not let see what its allocator was told, and would never stop."""
    environment = harness.clean_environment() | {"MILLPOND_TUNABLES_SAID": ""}
    monkeypatch.setattr(harness, "clean_environment", lambda: environment)
    node = make_node()
    assert b"tcache_count" not in Path(f"/proc/{node.process.pid}/environ").read_bytes()
    assert node.request("GET", "/healthz").status == 200


@pytest.mark.limit(SECONDS + 90)
def test_saturation(make_node, tmp_path):
    """Not one error, nothing lost in the counting, and the memory at the end is the memory of the first seconds."""
    node = make_node(cores=PROCESSORS[:1])
    app = node.deploy("load", {"ping": "ping", "echo": "echo", "hello": "hello-rust"})
    total, resident = 0, None
    # A lap of the usual, and in between the others; the first warms what is allocated once.
    plan = [("ping", b"pong\n", None, 3), ("echo", b"e" * 10_000, b"e" * 10_000, 8), ("hello", b"Hello, pond!\n", b"pond", 8)]
    plan += [("ping", b"pong\n", None, SECONDS - 19)]
    for function, expected, body, seconds in plan:
        report = generate(node, app.path(function), seconds, expected, tmp_path, body=body)
        assert report["first_error"] is None and not any(report["errors"].values()), report
        assert report["requests"] > 100 * seconds, "this is no saturation"
        total += report["requests"]
        if function == "hello":
            resident = node.resident_bytes()
    grown = node.resident_bytes() - resident
    assert grown < 8 << 20, f"{grown >> 10} KiB grown over {total} requests"
    series = node.metrics()
    counted = sum(series[f'faas_invocations_total{{faas_name="load.{name}"}}'] for name in ("ping", "echo", "hello"))
    # The generator's warm-up and what was under way at the end of its windows are not in its reports.
    assert counted >= total
    assert not [name for name, value in series.items() if name.startswith("faas_errors_total") and value]


def test_both_cores_at_saturation(two_cores, tmp_path):
    app = two_cores.deploy("load-two", {"ping": "ping", "echo": "echo"})
    body = os.urandom(20_000)
    for function, expected, given in (("ping", b"pong\n", None), ("echo", body, body)):
        report = generate(two_cores, app.path(function), 4, expected, tmp_path, connections=64, body=given)
        assert report["first_error"] is None and not any(report["errors"].values()), report


def test_overload_sheds_and_recovers(make_node):
    """More than the queue holds: each answer is 200, or 429 with a time to come again; then all is well again."""
    node = make_node()
    app = node.deploy("shed", {"burn": ("burn", {"concurrency": 1, "queue": 3})})
    statuses = set()

    def check(answer):
        statuses.add(answer.status)
        if answer.status != 200:
            answer.problem(429, "limit-queue")
            assert answer.headers["Retry-After"]

    with Swarm(node, app.path("burn", "?n=3000000"), 12, check) as swarm:
        swarm.served(500)
    assert not swarm.errors, swarm.errors
    assert statuses == {200, 429}
    assert app.call("burn", rest="?n=10").status == 200


def test_connections_that_come_and_go(suite):
    """A connection for each request, thousands of them: no descriptor is left behind."""
    node = suite.node
    descriptors = lambda: len(os.listdir(f"/proc/{node.process.pid}/fd"))  # noqa: E731
    before = descriptors()
    for _ in range(3000):
        with node.wire() as wire:
            wire.send(get(suite.path("ping"), headers="Connection: close\r\n"))
            assert wire.read().body == b"pong\n"
    deadline = time.monotonic() + 10
    while descriptors() > before + 5:
        assert time.monotonic() < deadline, f"{before} descriptors before, {descriptors()} after"
        time.sleep(0.02)


def test_an_idle_node_is_idle(make_node):
    """With functions deployed and connections open: less than 1 % of a core over three seconds."""
    node = make_node(cores=PROCESSORS[:2])
    app = node.deploy("idle", {name: name for name in ("ping", "env", "burn", "sleep")})
    wires = [node.wire() for _ in range(50)]
    assert app.call("ping").status == 200
    before, begun = node.cpu_seconds(), time.monotonic()
    time.sleep(3)
    share = (node.cpu_seconds() - before) / (time.monotonic() - begun)
    # /proc counts in hundredths of a second.
    assert share < 0.01, f"{share:.1%} of a core"
    for wire in wires:
        wire.close()
