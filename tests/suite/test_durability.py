"""What was acknowledged stays, whatever happens to the process or to its files."""

import hashlib
import random
import re
import threading

import pytest
from harness import Swarm, eventually, guest

COMPILED = re.compile(r'millpond_image_seconds_count\{phase="(\w+)"\}')


def images(node):
    """How often this process compiled and loaded."""
    found = {match[1]: value for series, value in node.metrics().items() if (match := COMPILED.fullmatch(series))}
    return {"compile": 0, "load": 0} | found


def artefacts(node):
    found = {path: path.stat() for path in (node.data / "artefacts").rglob("*") if path.is_file()}
    return {path: (stat.st_mtime_ns, stat.st_ino, stat.st_size) for path, stat in found.items()}


def restart(node):
    node.stop()
    return node.start()


APP = {name: name for name in ("ping", "env", "cgi", "counter")} | {"cgi": ("cgi", {"protocol": "cgi"})}


def deployed(node):
    app = node.deploy("kept", APP, [{"function": "ping", "path": "/kept/{x}", "method": "GET"}])
    node.deploy("kept", APP | {"env": ("env", {"env": {"LEVEL": "2"}})}, [{"function": "ping", "path": "/kept/{x}", "method": "GET"}])
    node.control("PUT", "/v1/functions/kept.env/aliases/old", {"version": 1})
    return app


def assert_served(app):
    node = app.node
    assert app.call("ping").body == b"pong\n"
    assert node.request("GET", "/kept/1").body == b"pong\n"
    assert "LEVEL=2\n" in app.call("env").text
    assert "LEVEL" not in app.call("env:old").text
    assert app.call("cgi").status == 201


def test_a_restart_serves_the_first_request_without_compiling(make_node):
    node = make_node()
    app = deployed(node)
    before = artefacts(node)
    assert len(before) == len(APP) and images(node)["compile"] == len(APP)
    for _ in range(2):
        node.stop()
        node.start(ready=False)
        # No waiting for /readyz: who asks first is served, too.
        assert_served(app)
        assert images(node)["compile"] == 0
        assert images(node)["load"] > 0
    assert artefacts(node) == before, "artefacts were written again"


def test_the_folder_is_the_owners_alone(make_node):
    node = make_node()
    assert node.data.stat().st_mode & 0o077 == 0
    node.stop()
    node.data.chmod(0o777)
    with pytest.raises(AssertionError, match="others may write to it"):
        node.start()
    node.data.chmod(0o700)
    node.start()


def test_one_node_for_one_folder(make_node):
    node = make_node()
    second = make_node(start=False)
    second.command[second.command.index("--data") + 1] = node.data
    with pytest.raises(AssertionError, match=re.escape(str(node.data))):
        second.start()
    assert node.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove", "swap"])
def test_damaged_compiled_code_is_never_mapped(make_node, damage):
    node = make_node()
    app = deployed(node)
    node.stop()
    paths = sorted(artefacts(node))
    contents = [path.read_bytes() for path in paths]
    for index, (path, data) in enumerate(zip(paths, contents)):
        path.chmod(0o600)
        if damage == "flip":
            at = len(data) // 2
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        elif damage == "truncate":
            path.write_bytes(data[:-1])
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "swap":
            # A good artefact, but another's.
            path.write_bytes(contents[index - 1])
        else:
            path.unlink()
    node.start()
    assert_served(app)
    assert images(node)["compile"] == len(APP)
    assert [path.read_bytes() == data for path, data in zip(paths, contents)] == [True] * len(paths), "what was compiled anew differs"
    if damage != "remove":
        assert "compiled anew" in node.log.read_text()
    restart(node)
    assert_served(app)
    assert images(node)["compile"] == 0


def test_damaged_code_is_reported_and_can_be_sent_again(make_node):
    """With its artefact the code is not needed. Without, the function's callers and the operator are told, and others are served."""
    node = make_node()
    app = deployed(node)
    node.stop()
    digest = next(name for name in (path.name for path in (node.data / "code").iterdir()) if guest_digest("ping") in name)
    path = node.data / "code" / digest
    data = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    node.start()
    assert_served(app)

    node.stop()
    for artefact in artefacts(node):
        artefact.unlink()
    node.start()
    answer = app.call("ping")
    assert answer.status >= 500
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert guest_digest("ping") in answer.text, answer.text
    assert app.call("cgi").status == 201
    assert guest_digest("ping") in node.log.read_text()

    # Sent again, it is whole.
    deployed(node)
    assert eventually(lambda: app.call("ping").status == 200, "the function answers again")
    assert_served(app)


def guest_digest(name):
    return hashlib.sha256(guest(name)).hexdigest()


class Deployer(threading.Thread):
    """Deploys one version after the other, and remembers the last that was acknowledged."""

    def __init__(self, node, first):
        super().__init__(daemon=True)
        self.node, self.asked, self.acknowledged = node, first, first

    def run(self):
        while True:
            self.asked += 1
            try:
                # Every other version has code of its own: the kill meets uploads and compilations, too.
                program = guest("env", self.asked // 2)
                self.node.deploy("killed", {"env": (program, {"env": {"LEVEL": str(self.asked)}}), f"extra-{self.asked % 3}": "ping"})
            except Exception:
                # Whatever a killed server makes of an answer.
                return
            self.acknowledged = self.asked


def level(node):
    answer = node.request("GET", "/function/killed.env")
    assert answer.status == 200, answer.body
    return int(re.search(r"^LEVEL=(\d+)$", answer.text, re.M)[1])


@pytest.mark.limit(180)
def test_kill_9_during_deploys(make_node):
    """At 24 random moments. What was acknowledged is there; what was not is there whole or not at all."""
    node = make_node()
    node.deploy("killed", {"env": ("env", {"env": {"LEVEL": "1"}})})
    chance = random.Random(2)
    now, progress = 1, 0
    for _ in range(24):
        deployer = Deployer(node, now)
        deployer.start()
        wanted = now + chance.randrange(3)
        eventually(lambda: deployer.acknowledged >= wanted, "deploys are acknowledged")
        # The moment is random on purpose; what must hold does not depend on it.
        deployer.join(chance.uniform(0, 0.08))
        node.kill()
        deployer.join(30)
        assert not deployer.is_alive()
        node.start()
        found = level(node)
        assert deployer.acknowledged <= found <= deployer.asked, (deployer.acknowledged, found, deployer.asked)
        if found > 1:
            assert node.request("GET", f"/function/killed.extra-{found % 3}").body == b"pong\n"
        functions = {f["function"] for f in node.control("GET", "/v1/applications/killed").document["functions"]}
        assert functions == {"killed.env"} | ({f"killed.extra-{found % 3}"} if found > 1 else set())
        progress += deployer.acknowledged - now
        now = found
    assert progress >= 10, f"only {progress} deploys were acknowledged between the kills"
    assert "panicked" not in node.log.read_text(errors="replace")
    drafts = [path for path in node.data.rglob(".draft-*")]
    assert drafts == [], "what interrupted writes left behind is cleared away at start"


def test_kill_9_under_load(make_node):
    node = make_node()
    app = deployed(node)
    for _ in range(5):
        with Swarm(node, app.path("ping"), 4) as swarm:
            swarm.served(200)
            node.kill()
        node.start(ready=False)
        assert_served(app)
        with Swarm(node, app.path("ping"), 4) as swarm:
            swarm.served(500)
        assert not swarm.errors
        assert images(node)["compile"] == 0


def test_logs_survive_a_restart(make_node):
    node = make_node()
    app = node.deploy("said", {"stderr": "stderr"})
    one = app.call("stderr").headers["X-Request-Id"]
    restart(node)
    two = app.call("stderr").headers["X-Request-Id"]
    assert one != two
    for request in (one, two):
        records = eventually(lambda: (r := node.records("said.stderr", f"?request={request}")) and len(r) >= 3 and r, "lines are there")
        assert len(records) == 3
