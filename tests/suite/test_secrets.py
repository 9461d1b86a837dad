"""Secrets: a function's requests carry them, and nobody finds them but the server that they are for."""

import contextlib
import http.client
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
from harness import PATIENCE, cli, eventually
from test_outgoing import Server
from test_telemetry import Collector, exporting

LIMITS = {"timeout": "30s"}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"


def granted(*hosts, name="KEY", value="Bearer {secret:KEY}", **more):
    return LIMITS | {"grants": {"http": [{"host": host, "headers": {"Authorization": value}} | more for host in hosts]}}


@pytest.fixture(scope="module")
def other():
    with Server() as server:
        yield server


@pytest.fixture
def app(node, request):
    """An application with a name of its own, which asks 127.0.0.1 with a secret."""
    name = request.node.name.replace("_", "-")[:50].rstrip("-")
    return node.deploy(name, {"f": ("http-component", granted("127.0.0.1"))})


def fetch(app, target, headers=None, function="f"):
    return app.call(function, rest=f"/stream-fetch?{target}", headers=headers)


def secret(node, *words, given=None, ok=True):
    done = node.cli("secret", *words, given=given)
    assert (done.returncode == 0) is ok, (done.returncode, done.stderr)
    return done


def put(node, app, value, name="KEY"):
    secret(node, "set", name, "--application", app.name, given=value)


def platform(node, function):
    return [one["message"] for one in node.records(function) if one["stream"] == "platform"]


def files(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_secret_arrives_and_is_nowhere_else(make_node, monkeypatch):
    collector = Collector()
    exporting(monkeypatch, collector.address)
    node = make_node(start=False)
    # Whatever may log does.
    node.command[:0] = ["env", "RUST_LOG=trace"]
    node.start()
    values = ["first-1f7c9e2b", "second-84d0aa35", "third-0b6e4f91"]
    said = []

    def keep(done):
        said.append(done.stdout + done.stderr)
        return done

    def ask(path, headers=None):
        answer = fetch(app, f"http://127.0.0.1:{other.port}{path}", headers)
        said.append(bytes(answer.headers) + answer.body)
        return answer

    with Server() as other:
        manifest = {"f": ("http-component", granted("127.0.0.1")), "g": ("http-component", granted("localhost"))}
        plan = node.deploy("sec", manifest, plan=True).deployment
        assert len(plan["warnings"]) == 2 and all("`KEY`" in warning for warning in plan["warnings"])
        app = node.deploy("sec", manifest)
        assert app.deployment["warnings"] == plan["warnings"]

        unset = ask("/unset")
        assert (unset.status, "ConfigurationError" in unset.text) == (502, True)
        eventually(lambda: platform(node, "sec.f"), "its log has a line")
        assert "KEY" in platform(node, "sec.f")[0] and "not set" in platform(node, "sec.f")[0]
        assert other.seen == []

        keep(secret(node, "set", "KEY", given=values[0].encode() + b"\n"))
        assert ask("/first", {"Authorization": "mine", "X-Mine": "1"}).status == 201
        assert other.seen[-1][2]["authorization"] == f"Bearer {values[0]}"
        assert other.seen[-1][2]["x-mine"] == "1"
        # The next call has what is set now, and the application's own goes before the node's.
        keep(secret(node, "set", "KEY", "--application", "sec", given=values[1].encode()))
        assert ask("/second").status == 201
        assert other.seen[-1][2]["authorization"] == f"Bearer {values[1]}"
        path = node.folder / "value"
        path.write_bytes(values[2].encode() + b"\r\n")
        keep(secret(node, "set", "KEY", "--application", "sec", "--file", path, "-o", "json"))
        path.unlink()
        context = f"00-{TRACE}-{CALLER}-01"
        assert ask("/third", {"traceparent": context, "X-Fresh": "1"}).status == 201
        assert other.seen[-1][2]["authorization"] == f"Bearer {values[2]}"

        # What is bad is refused without a word of it.
        bad = secret(node, "set", "KEY", given=f"{values[0]}\r\nX-Evil: 1".encode(), ok=False)
        assert b"secret-invalid" in keep(bad).stderr

        listed = keep(secret(node, "list", "-o", "json"))
        table = {(one.get("application"), one["name"]): one["functions"] for one in json.loads(listed.stdout)["secrets"]}
        assert table == {(None, "KEY"): [], ("sec", "KEY"): ["sec.f", "sec.g"]}
        keep(secret(node, "list"))
        for words in (["describe", "sec.f"], ["list"], ["logs", "sec.f"], ["describe", "sec.f", "-o", "json"]):
            keep(node.cli(*words))
        for path in ("/v1/secrets", "/v1/functions", "/v1/functions/sec.f", "/v1/applications/sec", "/v1/node", "/metrics"):
            said.append(node.control("GET", path).body)

        # The call is a span of the invocation's trace, and the server is its child.
        version, trace, span, flags = next(seen for seen in reversed(other.seen) if seen[1] == "/third")[2]["traceparent"].split("-")
        assert (version, trace, flags) == ("00", TRACE, "01") and span != CALLER
        wanted = [bytes.fromhex(span), f"http://127.0.0.1:{other.port}/third".encode(), b"http.response.status_code"]
        eventually(lambda: all(one in collector.posted("traces") for one in wanted), "the span arrives")
    node.stop()
    collector.server.shutdown()
    collector.server.server_close()

    kept = node.data / "secrets"
    assert (kept.stat().st_mode & 0o777, {path.stat().st_mode & 0o777 for path in files(kept)}) == (0o700, {0o600})
    assert {path.name: path.read_bytes() for path in files(kept)} == {"KEY": values[0].encode(), "sec.KEY": values[2].encode()}
    elsewhere = [path for path in files(node.folder) if kept not in path.parents]
    assert len(elsewhere) > 3 and node.log in elsewhere
    everything = {str(path): path.read_bytes() for path in elsewhere}
    everything |= {f"answer {number}": text for number, text in enumerate(said)}
    everything |= {f"telemetry {number}": body for number, (_, body) in enumerate(collector.taken)}
    assert not [(where, value) for where, text in everything.items() for value in values if value.encode() in text]


def test_a_secret_survives_kill_9_and_no_draft_does(make_node, other):
    node = make_node()
    app = node.deploy("sec", {"f": ("http-component", granted("127.0.0.1"))})
    put(node, app, b"before")
    node.kill()
    (node.data / "secrets" / ".draft-half").write_bytes(b"half")
    node.start()
    assert fetch(app, f"http://127.0.0.1:{other.port}/killed").status == 201
    seen = [headers["authorization"] for _, path, headers, _ in other.seen if path == "/killed"]
    assert seen == ["Bearer before"]
    assert [path.name for path in files(node.data / "secrets")] == ["sec.KEY"]


def test_whenever_the_node_is_killed_a_secret_is_whole(make_node, other):
    """While it is set over and over: what was acknowledged last is there, or what was on its way, and nothing else."""
    node = make_node()
    app = node.deploy("sec", {"f": ("http-component", granted("127.0.0.1"))})
    value = lambda number: f"{number:06}-{'x' * 8000}"
    sent = 0
    for round in range(4):
        acknowledged = threading.Event()

        def keep_setting():
            nonlocal sent
            with contextlib.suppress(OSError, http.client.HTTPException):
                while node.control("PUT", "/v1/secrets/KEY", body=value(sent).encode()).status == 200:
                    sent += 1
                    if sent % 10 == round:
                        acknowledged.set()

        setter = threading.Thread(target=keep_setting)
        setter.start()
        assert acknowledged.wait(PATIENCE)
        node.kill()
        setter.join(PATIENCE)
        node.start()
        assert fetch(app, f"http://127.0.0.1:{other.port}/round-{round}").status == 201
        [found] = [headers["authorization"] for _, path, headers, _ in other.seen if path == f"/round-{round}"]
        assert found in [f"Bearer {value(number)}" for number in (sent - 1, sent)]
        assert [path.name for path in files(node.data / "secrets")] == ["KEY"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into other processes' memory")
def test_the_nodes_own_process_never_has_a_secret_that_it_was_not_given(make_node, other):
    """It was set before this process was started; the backend, a process of its own, sends it."""
    from test_objects import holds
    from test_processes import children

    node = make_node()
    app = node.deploy("unseen", {"f": ("http-component", granted("127.0.0.1"))})
    put(node, app, b"unseen-5d0f6c1e")
    node.stop()
    node.start()
    for number in range(20):
        assert fetch(app, f"http://127.0.0.1:{other.port}/unseen-{number}").status == 201
        assert other.seen[-1][2]["authorization"] == "Bearer unseen-5d0f6c1e"
    assert "KEY" in secret(node, "list").stdout.decode()
    assert holds(node.process.pid, b"Bearer {secret:KEY}"), "what is looked for would be found"
    assert holds(node.process.pid, b"unseen-5d0f6c1e") == []
    [backend] = [child for child in children(node.process.pid) if b"serve-backend" in Path(f"/proc/{child}/cmdline").read_bytes()]
    # Neither what it was started with, nor what those see who list processes.
    for name in ("environ", "cmdline"):
        assert b"unseen-5d0f6c1e" not in Path(f"/proc/{backend}/{name}").read_bytes()


def test_the_backends_allocator_is_told_what_is_good_for_it(node, app, other):
    """And not what is good for the node."""
    from test_processes import children

    put(node, app, b"value")
    assert fetch(app, f"http://127.0.0.1:{other.port}/").status == 201
    [backend] = [child for child in children(node.process.pid) if b"serve-backend" in Path(f"/proc/{child}/cmdline").read_bytes()]
    environment = Path(f"/proc/{backend}/environ").read_bytes()
    assert b"mmap_threshold" in environment and b"tcache_count" not in environment


def test_a_secret_that_is_used_is_not_deleted_by_accident(node, app, other):
    put(node, app, b"in-use")
    refused = secret(node, "delete", "KEY", "--application", app.name, ok=False)
    assert b"secret-in-use" in refused.stderr and f"{app.name}.f".encode() in refused.stderr
    assert fetch(app, f"http://127.0.0.1:{other.port}/").status == 201
    secret(node, "delete", "KEY", "--application", app.name, "--force")
    assert "ConfigurationError" in fetch(app, f"http://127.0.0.1:{other.port}/").text
    unknown = secret(node, "delete", "KEY", "--application", app.name, ok=False)
    assert b"secret-unknown" in unknown.stderr


def test_a_secret_goes_to_no_other_host(node, app, other):
    both = granted("127.0.0.1")
    both["grants"]["http"].append({"host": "localhost"})
    node.deploy(app.name, {"f": ("http-component", both)})
    put(node, app, b"only-for-one")
    before = len(other.seen)
    moved = fetch(app, f"http://127.0.0.1:{other.port}/moved")
    assert (moved.status, moved.headers["Location"]) == (302, "/elsewhere")
    assert [path for _, path, _, _ in other.seen[before:]] == ["/moved"], "nothing is followed"
    assert fetch(app, f"http://localhost:{other.port}/", {"Authorization": "mine"}).status == 201
    assert other.seen[-1][2]["authorization"] == "mine"
    assert fetch(app, f"http://127.0.0.1@localhost:{other.port}/").status in (201, 502)
    assert "only-for-one" not in json.dumps([headers for _, path, headers, _ in other.seen if path == "/"])


def test_a_secret_needs_tls_beyond_this_machine(node, app):
    node.deploy(app.name, {
        # Addresses for documentation: nobody has them.
        "f": ("http-component", granted("192.0.2.1")),
        "open": ("http-component", granted("192.0.2.1", clear_text=True)),
    })
    put(node, app, b"not-in-clear-text")
    assert "HttpRequestDenied" in fetch(app, "http://192.0.2.1/").text
    eventually(lambda: any("clear_text" in line for line in platform(node, f"{app.name}.f")), "its log says what to do")
    hasty = {"X-Patience": "1000000"}
    assert "HttpRequestDenied" not in fetch(app, "http://192.0.2.1/", hasty, function="open").text
    assert "HttpRequestDenied" not in fetch(app, "https://192.0.2.1/", hasty).text


def test_a_secret_arrives_by_tls(make_node, monkeypatch, tmp_path):
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-days", "30", "-subj", "/CN=root")
    openssl("req", *new, "-keyout", "one.key", "-out", "one.csr", "-subj", "/CN=one")
    (tmp_path / "names").write_text("subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
    openssl("x509", "-req", "-in", "one.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "one.pem",
            "-days", "30", "-extfile", "names")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    node = make_node()
    app = node.deploy("sec", {"f": ("http-component", granted("localhost"))})
    put(node, app, b"by-tls")
    with Server(secure=(tmp_path / "one.pem", tmp_path / "one.key")) as other:
        answer = fetch(app, f"https://localhost:{other.port}/")
        assert answer.status == 201, answer.text
        assert other.seen[-1][2]["authorization"] == "Bearer by-tls"


def test_the_function_may_set_its_own_trace_context(make_node, monkeypatch, other):
    collector = Collector()
    exporting(monkeypatch, collector.address)
    node = make_node()
    app = node.deploy("sec", {"f": ("http-component", LIMITS | {"grants": {"http": [{"host": "127.0.0.1"}]}})})
    # The guest sends on what it was sent, and so the context that the node gave it: its invocation's.
    fetch(app, f"http://127.0.0.1:{other.port}/own", {"traceparent": f"00-{TRACE}-{CALLER}-01"})
    own = next(headers for _, path, headers, _ in other.seen if path == "/own")["traceparent"].split("-")
    assert own[1] == TRACE and own[2] != CALLER
    # Its invocation's span has this id; the call's has another.
    eventually(lambda: collector.posted("traces").count(bytes.fromhex(own[2])) >= 2, "the spans arrive")
    collector.server.shutdown()
    collector.server.server_close()


def test_the_value_is_never_on_the_command_line(node):
    assert cli("secret", "set", "KEY", "value").returncode == 2
    assert cli("secret", "set", "KEY", "--value", "value").returncode == 2
    assert cli("secret", "set", "a.b", given=b"x").returncode == 2
    help_text = cli("secret", "set", "--help").stdout
    assert b"--file" in help_text


def test_what_stays_of_a_deleted_application_is_told(node, app):
    put(node, app, b"a value")
    secret(node, "set", "OTHER", "--application", f"{app.name[:40]}-too", given=b"another's")
    done = node.cli("delete", app.name, "--yes")
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode()
    assert said.startswith(f"deleted the application {app.name}\nits secrets stay: KEY\n"), said
    words = said.splitlines()[-1].split("millpond secret ")[1].split()
    secret(node, *words)
    node.deploy(app.name, {"f": "echo"})
    done = node.cli("delete", app.name, "--yes", "-o", "json")
    assert json.loads(done.stdout) == {"deleted": app.name, "kind": "application"}
    secret(node, "delete", "OTHER", "--application", f"{app.name[:40]}-too")
