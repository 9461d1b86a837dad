"""Nodes for the tests, and a watchdog over each test."""

import contextlib
import faulthandler
import signal
import pytest
from harness import GENERATOR, GUESTS, MILLPOND, PROCESSORS, Node
from objects import S3Server

# How long a test may take before it fails, in seconds; `@pytest.mark.limit(n)` says otherwise.
LIMIT = 120

running = []


def pytest_configure(config):
    config.addinivalue_line("markers", "limit(seconds): how long the test may take before it fails")
    config.addinivalue_line("markers", "alone: it fills the machine, and no other test may run beside it")
    missing = [path for path in (MILLPOND, GENERATOR, GUESTS / "ping.wasm") if not path.exists()]
    if missing:
        raise pytest.UsageError(f"{', '.join(map(str, missing))} missing: run `make build`")


@pytest.fixture(autouse=True)
def watchdog(request):
    """Interrupts a test that hangs; should that not help, ends the whole run."""
    marker = request.node.get_closest_marker("limit")
    limit = marker.args[0] if marker else LIMIT

    def bark(*_):
        raise TimeoutError(f"the test takes longer than {limit} s")

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(limit)
    faulthandler.dump_traceback_later(limit + 60, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Shows what each running node logged beside a failure."""
    report = yield
    if report.failed:
        for node in running:
            report.sections.append((f"log of the node in {node.folder.name}", node.last_words()))
    return report


def end(node):
    """Ends a node whatever state a test left it in, and lets it be heard if it ends badly."""
    try:
        if node.is_running:
            node.stop()
    finally:
        if node.process is not None and node.is_running:
            node.kill()
        running.remove(node)


@contextlib.contextmanager
def node_with(store, folder):
    """A node whose functions in Python use that S3."""
    node = Node(folder, config=store.configuration(folder))
    running.append(node)
    try:
        node.start()
        if "process" not in node.control("GET", "/v1/node").document["engines"]:
            pytest.skip("the engine process is not here: `millpond doctor` says why")
        yield node
    finally:
        end(node)


@pytest.fixture
def make_node(tmp_path):
    """Makes nodes that live as long as the test: `make_node(cores=[0, 1], config=TOML)`."""
    made = []

    def make(start=True, **options):
        node = Node(tmp_path / f"node-{len(made)}", **options)
        made.append(node)
        running.append(node)
        return node.start() if start else node

    yield make
    for node in made:
        end(node)


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """One node on one core for all tests that leave nothing behind but applications of their own."""
    one = Node(tmp_path_factory.mktemp("node"))
    running.append(one)
    one.start()
    yield one
    end(one)


@pytest.fixture(scope="session")
def two_cores(tmp_path_factory):
    """The same on two cores, which steal from each other."""
    if len(PROCESSORS) < 2:
        pytest.skip("this machine gives the tests one processor only")
    one = Node(tmp_path_factory.mktemp("two-cores"), cores=PROCESSORS[:2])
    running.append(one)
    one.start()
    yield one
    end(one)


@pytest.fixture(scope="session")
def suite(node):
    """All guests, with default limits but for what ends by itself too late."""
    return node.deploy("suite", {
        **{name: name for name in ("ping", "echo", "env", "counter", "exit3", "closeout", "recurse", "trap", "reach", "sleep", "burn", "stderr")},
        "hello": "hello-rust",
        "cgi": ("cgi", {"protocol": "cgi"}),
        "spin": ("spin", {"timeout": "1s"}),
        "grow": ("grow", {"memory": "8MiB"}),
        "endless": ("endless", {"response_body": "1MiB"}),
        "png": ("echo", {"content_type": "image/png"}),
        "told": ("env", {"arguments": ["--fast", "two words"], "env": {"LEVEL": "3"}}),
    })


@pytest.fixture
def s3(tmp_path):
    """An S3 server with two buckets."""
    server = S3Server(tmp_path / "s3").start()
    for bucket in ("pond", "sea"):
        server.client().create_bucket(Bucket=bucket)
    yield server
    server.stop()
