"""The page of each error code, `docs/src/reference/errors/CODE.md`, against what a node and the command say.

A page shows its example in fenced blocks with marks of their own:

- `json,answer`: the problem of an answer. `PROVOKED` has what makes a node answer so;
- `toml,refused`: a manifest, and after it a `text,told`: what `millpond deploy --plan` says of it;
- `text,told` alone: what the command that `TOLD` makes prints to standard error.

What is different each time (ids, digests, ports, folders) is not compared. Examples that are scripts are run by `test_docs.py`.
"""

import hashlib
import http.server
import json
import re
import select
import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import test_permits
import test_python
import test_tenants
import test_triggers
from harness import PATIENCE, ROOT, Application, Node, Wire, certificate, cli, eventually, get, guest

PAGES = ROOT / "docs" / "src" / "reference" / "errors"
# Those of which nothing that a client does is sure to be the cause, and why.
UNPROVOKED = {
    "no-core": "takes more connections than the machine of a test may have",
    "callbacks-full": "takes thousands of calls to a server that does not answer",
    "calls-busy": "takes more calls at once than the disk flushes",
    "route-changing": "an instant between two steps of a deployment",
    "deployment-conflict": "the same",
    "call-changing": "the same, of a call",
    "internal": "the platform's own defects",
    "store-failed": "a disk that fails",
    "calls-store": "the same",
    "store-damaged": "a store that something else has written",
    "disk-full": "a full disk",
    "code-too-large": "more bytes than a test should send",
    "engine-unavailable": "the manifest knows no engine that this node does not have",
    "calls-unavailable": "a node always takes them",
    "limits-unavailable": "a node whose host counts nothing: test_processes.py has one",
}
# Whose example is told in words.
IN_WORDS = {"not-a-manifest", "interrupted"}
EVENT = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "com.example.order.paid"}


@dataclass
class Page:
    """What a page says."""

    code: str
    statuses: set
    blocks: list


def read(code):
    text = (PAGES / f"{code}.md").read_text()
    statuses = {int(number) for number in re.findall(r"\d+", text.split("**")[1])}
    return Page(code, statuses, re.findall(r"^```([a-z,=.]+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))


def all_pages():
    return [read(path.stem) for path in sorted(PAGES.glob("*.md"))]


def shown(code, marks):
    return [text for words, text in read(code).blocks if words == marks]


def plain(text):
    """Without what is different each time."""
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "HEX", text)
    text = re.sub(r"\.draft-\w+", ".draft", text)
    text = re.sub(r"(127\.0\.0\.1|localhost):\d+", r"\1:PORT", text)
    return re.sub(r"(/[\w.-]+)+/(data|millpond\.toml|code)\b", r"FOLDER/\2", text)


def compare(code, marks, said):
    """What was said against the page; `said` is a text."""
    [example] = shown(code, marks)
    assert plain(example) == plain(said), f"docs/src/reference/errors/{code}.md shows\n{example}\nbut this was said:\n{said}"


# --- problems ---


class Shop:
    """A node with an application in which everything goes wrong that can."""

    functions = {
        "resize": "echo",
        "check": "exit3",
        "crop": "trap",
        "tree": "recurse",
        "collage": ("grow", {"memory": "8MiB"}),
        "label": ("ping", {"protocol": "cgi"}),
        "join": ("pure", {"protocol": "pure", "input_sets": ["a", "b"]}),
        "greet": test_python.function("def handler(event, context):\n    return event['name']"),
        "wait": ("sleep", {"timeout": "50ms"}),
        "render": ("spin", {"cpu_time": "50ms"}),
        "print": ("endless", {"response_body": "1MiB"}),
        "one": ("sleep", {"concurrency": 1, "queue": 0, "timeout": "5m"}),
        "slow": ("sleep", {"timeout": "5m"}),
        "late": ("sleep", {"deadline": "1ms"}),
        "small": ("echo", {"request_body": "1KiB"}),
        "export": "http-component",
        "notify": "ping",
    }

    def __init__(self, node):
        self.node = node
        self.manifest = {"application": {"name": "shop"}, "function": {}, "trigger": {
            "http": [{"function": "resize", "path": "/resize/{size}", "method": ["POST", "PUT"]}],
            "cloudevents": [{"function": "notify", "type": "com.example.order.*"}],
        }}
        self.app = self.deploy("shop", self.functions, self.manifest["trigger"])

    def deploy(self, name, functions, triggers=None):
        answer = self.try_deploy(name, functions, triggers)
        assert answer.status == 200, (answer.status, answer.body)
        return Application(self.node, name, answer.document)

    def try_deploy(self, name, functions, triggers=None, path=None, code=None):
        manifest = {"application": {"name": name}, "function": {}, "trigger": triggers or {}}
        digests = {}
        for function, what in functions.items():
            program, settings = what if isinstance(what, tuple) else (what, {})
            program = guest(program) if isinstance(program, str) else program
            digests[function] = upload(self.node, program)
            manifest["function"][function] = {"source": f"{function}.wasm"} | settings
        document = {"manifest": manifest, "code": digests if code is None else code}
        return self.node.control("POST", f"/v1/applications/{path or name}/deployments", document)

    def late(self):
        """The node knows from the first that all others would be late, and tries no more than one at a time."""
        eventually(lambda: self.app.call("late", rest="?ms=20").status == 200, "one began in time")
        wires = [self.node.wire() for _ in range(4)]
        for wire in wires:
            wire.send(get(self.app.path("late", "?ms=300")))
        answers = []
        for wire in wires:
            with wire:
                answers.append(wire.read())
        return next(answer for answer in answers if answer.status != 200)

    def raw(self, data):
        with self.node.wire() as wire:
            wire.send(data)
            return wire.read()

    def head(self, line="GET / HTTP/1.1", headers="Host: shop\r\n", body=""):
        return self.raw(f"{line}\r\n{headers}\r\n{body}".encode("latin-1"))

    def chunked(self, body):
        return self.head(f"POST {self.app.path('resize')} HTTP/1.1", "Host: shop\r\nTransfer-Encoding: chunked\r\n", body)

    def event(self, headers=None, body=b"", path="/events"):
        return self.node.request("POST", path, body, EVENT | (headers or {}))

    def call(self, function, rest=""):
        """An asynchronous call's id."""
        answer = self.node.request("POST", f"/async-function/shop.{function}{rest}", b"")
        assert answer.status == 202, answer.body
        return answer.headers["X-Call-Id"]

    def ended(self, function, rest=""):
        identity = self.call(function, rest)
        state = lambda: self.node.control("GET", f"/v1/calls/{identity}").document["state"]
        eventually(lambda: state() in ("succeeded", "dead"), f"the call of {function} has an outcome")
        return identity

    def api(self, method, path, *words, **more):
        return self.node.control(method, f"/v1/{path}", *words, **more)

    def full(self):
        """Of two requests for the only place, the answer to the one that does not get it."""
        with self.node.wire() as one, self.node.wire() as other:
            for wire in (one, other):
                wire.send(get(self.app.path("one", "?ms=60000")))
            readable, _, _ = select.select([one.socket, other.socket], [], [], PATIENCE)
            return (one if one.socket in readable else other).read()

    def in_use(self):
        """The answer to whoever deletes a secret that a function uses."""
        headers = {"authorization": "Bearer {secret:API_KEY}"}
        grants = {"http": [{"host": "api.example.org", "headers": headers}]}
        self.deploy("market", {"prices": ("http-component", {"grants": grants})})
        assert self.api("PUT", "secrets/API_KEY", body=b"1234").status == 200
        return self.api("DELETE", "secrets/API_KEY")


def upload(node, program):
    digest = hashlib.sha256(program).hexdigest()
    answer = node.control("PUT", f"/v1/code/{digest}", body=program)
    assert answer.status in (200, 201), answer.body
    return digest


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Calls of its node are dead letters after one failure."""
    node = Node(tmp_path_factory.mktemp("shop"), config="[calls]\nattempts = 1\n").start()
    yield Shop(node)
    node.kill()


ZEROS, SHOP = "0" * 64, "functions/shop.resize"
JSON = {"Content-Type": "application/json"}

PROVOKED = {
    "function-exit": lambda s: s.app.call("check"),
    "function-trap": lambda s: s.app.call("crop"),
    "function-stack-overflow": lambda s: s.app.call("tree"),
    "function-out-of-memory": lambda s: s.app.call("collage"),
    "function-raised": lambda s: s.app.call("greet", b"{}"),
    "function-bad-input": lambda s: s.app.call(
        "join", b'--x\r\nContent-Disposition: form-data; name="c/i"\r\n\r\n\r\n--x--\r\n', headers={"Content-Type": "multipart/form-data; boundary=x"}
    ),
    "function-bad-output": lambda s: s.app.call("label"),
    "limit-timeout": lambda s: s.app.call("wait", rest="?ms=60000"),
    "limit-cpu-time": lambda s: s.app.call("render"),
    "limit-response-body": lambda s: s.app.call("print"),
    "limit-queue": lambda s: s.full(),
    "calls-size": lambda s: s.node.request("POST", "/async-function/shop.resize", b"x" * (7 << 20)),
    "route-unknown": lambda s: s.node.request("GET", "/resise/64"),
    "route-method": lambda s: s.node.request("GET", "/resize/64"),
    "function-name": lambda s: s.node.request("GET", "/function/Resize_It"),
    "function-unknown": lambda s: s.node.request("GET", "/function/shop.resise"),
    "application-unknown": lambda s: s.event(path="/events/shoop"),
    "version-unknown": lambda s: s.node.request("GET", "/function/shop.resize:7"),
    "event-unwanted": lambda s: s.event({"ce-type": "com.example.order"}),
    "event-malformed": lambda s: s.event({"ce-specversion": "0.3"}),
    "event-loop": lambda s: s.event({"ce-millpondhops": "17"}),
    "event-fanout": lambda s: s.node.request("POST", "/events", json.dumps([
        {"specversion": "1.0", "id": str(i), "source": "/shop", "type": "com.example.order.paid"} for i in range(1001)
    ]), {"Content-Type": "application/cloudevents-batch+json"}),
    "callback-malformed": lambda s: s.node.request("POST", "/async-function/shop.notify", b"", {"X-Callback-Url": "shop.resize"}),
    "callback-host": lambda s: s.node.request(
        "POST", "/async-function/shop.notify", b"", {"X-Callback-Url": "https://hooks.example.org/done"},
    ),
    "limit-deadline": lambda s: s.late(),
    "limit-request-body": lambda s: s.app.call("small", b"x" * 2000),
    "limit-request-head": lambda s: s.head(headers=f"Host: shop\r\nCookie: {'x' * 20000}\r\n"),
    "limit-request-headers": lambda s: s.head(headers="Host: shop\r\n" + "X-A: 1\r\n" * 101),
    "limit-request-target": lambda s: s.head(f"GET /{'x' * 9000} HTTP/1.1"),
    "limit-request-trailers": lambda s: s.chunked("0\r\nX-Sum: " + "x" * 20000 + "\r\n\r\n"),
    "http-timeout": lambda s: s.raw(b"GET / HTTP/1.1\r\nHost"),
    "http-tls": lambda s: s.raw(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"),
    "http-version": lambda s: s.head("GET / HTTP/3.0"),
    "http-method": lambda s: s.head("TRACE / HTTP/1.1"),
    "http-request-line": lambda s: s.head("GET /a file HTTP/1.1"),
    "http-line-ending": lambda s: s.raw(b"GET / HTTP/1.1\nHost: shop\n\n"),
    "http-folding": lambda s: s.head(headers="Host: shop\r\nX-A: 1\r\n 2\r\n"),
    "http-target": lambda s: s.head("GET resize HTTP/1.1"),
    "http-scheme": lambda s: s.head("GET https://shop/ HTTP/1.1"),
    "http-header-name": lambda s: s.head(headers="Host: shop\r\nX-A : 1\r\n"),
    "http-header-value": lambda s: s.head(headers="Host: shop\r\nX-A: a\x07b\r\n"),
    "http-host": lambda s: s.head(headers="X-A: 1\r\n"),
    "http-content-length": lambda s: s.head("POST / HTTP/1.1", "Host: shop\r\nContent-Length: +4\r\n"),
    "http-transfer-encoding": lambda s: s.head("POST / HTTP/1.1", "Host: shop\r\nTransfer-Encoding: gzip\r\n"),
    "http-framing": lambda s: s.head("POST / HTTP/1.1", "Host: shop\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n"),
    "http-expectation": lambda s: s.head("POST / HTTP/1.1", "Host: shop\r\nContent-Length: 4\r\nExpect: a-miracle\r\n"),
    "http-chunk": lambda s: s.chunked("four\r\nbody\r\n0\r\n\r\n"),
    "http-chunk-extension": lambda s: s.chunked(f"4;{'x' * 20000}\r\nbody\r\n0\r\n\r\n"),
    "http-trailer": lambda s: s.chunked("4\r\nbody\r\n0\r\nno trailer\r\n\r\n"),
    "manifest-invalid": lambda s: s.api("POST", "applications/x/deployments", {
        "manifest": {"application": {"name": "x"}, "functoin": {}}, "code": {},
    }),
    "application-mismatch": lambda s: s.try_deploy("shop", {"resize": "echo"}, path="store"),
    "code-map": lambda s: s.try_deploy("mapped", {"resize": "echo"}, code={}),
    "code-missing": lambda s: s.try_deploy("missed", {"resize": "echo"}, code={"resize": ZEROS}),
    "code-digest": lambda s: s.api("PUT", f"code/{ZEROS}", body=guest("echo")),
    "code-refused": lambda s: s.try_deploy("refused", {"resize": b"int main(void) { return 0; }\n"}),
    "memory-too-small": lambda s: s.try_deploy("small", {"resize": ("hello-rust", {"memory": "64KiB"})}),
    "grants-unavailable": lambda s: s.try_deploy("granted", {
        "resize": ("echo", {"grants": {"s3": [{"bucket": "pictures", "actions": ["get"]}]}}),
    }),
    "trigger-unavailable": lambda s: s.try_deploy("heard", {"resize": "echo"}, {
        "object": [{"function": "resize", "bucket": "pictures"}],
    }),
    "s3-not-embedded": lambda s: s.api("GET", "s3/pictures"),
    "route-conflict": lambda s: s.try_deploy("store", {"resize": "echo"}, {
        "http": [{"function": "resize", "path": "/resize/{width}", "method": "POST"}],
    }),
    "version-none-earlier": lambda s: s.api("POST", f"{SHOP}/rollback", {}),
    "alias-live": lambda s: s.api("DELETE", f"{SHOP}/aliases/live"),
    "reference-qualified": lambda s: s.api("DELETE", f"{SHOP}:1"),
    "host-forbidden": lambda s: s.api("GET", "functions", headers={"Host": "millpond.example.org"}),
    "origin-forbidden": lambda s: s.api("GET", "functions", headers={"Origin": "http://page.example.org"}),
    "not-found": lambda s: s.api("GET", "function/resize"),
    "method-not-allowed": lambda s: s.api("PATCH", "functions"),
    "media-type": lambda s: s.api("PUT", f"{SHOP}/aliases/beta", body='{"version": 1}'),
    "document-invalid": lambda s: s.api("PUT", f"{SHOP}/aliases/beta", {"verison": 1}),
    "document-too-large": lambda s: s.api("PUT", f"{SHOP}/aliases/beta", body=b" " * (5 << 20), headers=JSON),
    "name-invalid": lambda s: s.api("GET", "functions/Resize_It"),
    "query-invalid": lambda s: s.api("GET", f"{SHOP}/logs?tail=many"),
    "secret-in-use": lambda s: s.in_use(),
    "secret-invalid": lambda s: s.api("PUT", "secrets/API_KEY", body=b"two\nlines"),
    "secret-unknown": lambda s: s.api("DELETE", "secrets/api_key"),
    "call-unknown": lambda s: s.api("GET", f"calls/{'0' * 32}"),
    "call-pending": lambda s: s.api("GET", f"calls/{s.call('slow', '?ms=200000')}/result"),
    "call-dead": lambda s: s.api("GET", f"calls/{s.ended('check')}/result"),
    "call-not-dead": lambda s: s.api("POST", f"calls/{s.ended('notify')}/retry"),
    "call-result-omitted": lambda s: s.api("GET", f"calls/{s.ended('export', '/stream-long?7000000')}/result"),
}
# With nodes of their own.
ELSEWHERE = {}


def elsewhere(code):
    def keep(provoke):
        ELSEWHERE[code] = provoke
        return provoke
    return keep


@elsewhere("function-ambiguous")
def _(make_node, tmp_path):
    node = make_node()
    for name in ("shop", "store"):
        node.deploy(name, {"resize": "echo"})
    return node.request("GET", "/function/resize")


@elsewhere("draining")
def _(make_node, tmp_path):
    node = make_node(config='drain = "100ms"\n')
    app = node.deploy("shop", {"slow": "sleep"})
    with node.wire() as wire:
        wire.send(get(app.path("slow", "?ms=60000")))
        eventually(lambda: node.metrics()['millpond_parked{core="0"}'] == 1, "it runs")
        node.terminate()
        answer = wire.read()
    assert node.wait() == 0
    return answer


@elsewhere("not-ready")
def _(make_node, tmp_path):
    node = make_node(config='drain = "60s"\n')
    app = node.deploy("shop", {"slow": "sleep"})
    with node.wire() as wire:
        wire.send(get(app.path("slow", "?ms=1000")))
        eventually(lambda: node.metrics()['millpond_parked{core="0"}'] == 1, "it runs")
        node.terminate()
        answer = eventually(lambda: (said := node.control("GET", "/readyz")).status == 503 and said, "the node is not ready")
        assert wire.read().status == 200
    assert node.wait() == 0
    return answer


@elsewhere("calls-full")
def _(make_node, tmp_path):
    node = make_node(config="[calls]\npending = 1\n")
    node.deploy("shop", {"slow": "sleep"})
    assert node.request("POST", "/async-function/shop.slow?ms=60000", b"").status == 202
    return node.request("POST", "/async-function/shop.slow?ms=1", b"")


@elsewhere("http-clear-text")
def _(make_node, tmp_path):
    cert, key = certificate(tmp_path, "shop")
    node = make_node(config=f'[tls]\nlisten = "127.0.0.1:0"\ncertificate = "{cert}"\nkey = "{key}"\n')
    with Wire(node.tls) as wire:
        wire.send(get("/healthz"))
        return wire.read()


@elsewhere("unauthorized")
def _(make_node, tmp_path):
    return make_node(token="a secret").control("GET", "/v1/functions", headers={"Authorization": ""})


def without_code(make_node):
    """A node whose only function has lost its code."""
    node = make_node()
    node.deploy("shop", {"resize": "echo"})
    node.stop()
    for folder in ("code", "artefacts"):
        for path in (node.data / folder).rglob("*"):
            if path.is_file():
                path.unlink()
    return node.start()


@elsewhere("platform")
def _(make_node, tmp_path):
    return without_code(make_node).request("GET", "/function/shop.resize")


@elsewhere("image-unavailable")
def _(make_node, tmp_path):
    return without_code(make_node).control("PUT", "/v1/functions/shop.resize/aliases/beta", {"version": 1})


@elsewhere("disk-failed")
def _(make_node, tmp_path):
    node = make_node()
    shutil.rmtree(node.data / "code")
    (node.data / "code").write_text("not a folder\n")
    digest = "63d4e1a3dd0c1a07a7f5b51b7a9a8b6b9e4a2d3f6f0e9c1b8a7d6c5b4a39281f"
    return node.control("PUT", f"/v1/code/{digest}", body=guest("echo"))


# --- tenants ---


def shared(make_node, **settings):
    """A node with a tenant, and who shows the tenant's token."""
    node = make_node(token=test_tenants.OPERATOR)
    return node, test_tenants.make_tenant(node, "acme", **settings)


def of_a_tenant(code):
    """What is provoked with a tenant's token, `who`, on a node that it shares."""
    def keep(provoke):
        def run(make_node, tmp_path):
            node, who = shared(make_node)
            return provoke(node, who)
        ELSEWHERE[code] = run
        return provoke
    return keep


def asked(node, token):
    return node.request("GET", "/function/shop.resize", None, {"Authorization": f"Bearer {token}"})


def quota(make_node, **quotas):
    """The answer to whoever asks while a quota is met."""
    node, who = shared(make_node, **quotas)
    test_tenants.deploy(who, {"wait": ("sleep", {"memory": "8MiB"}), "resize": ("ping", {"memory": "8MiB"})})
    held = test_tenants.Held(who, "/function/shop.wait?ms=3000", 1)
    eventually(lambda: test_tenants.used(node)["concurrency"] == 1, "one has a sandbox")
    answer = who.request("GET", "/function/shop.resize")
    for connection in held.connections:
        connection.getresponse()
    return answer


@elsewhere("quota-concurrency")
def _(make_node, tmp_path):
    return quota(make_node, concurrency=1, queue=0)


@elsewhere("quota-memory")
def _(make_node, tmp_path):
    return quota(make_node, memory="8MiB", queue=0)


@elsewhere("quota-rate")
def _(make_node, tmp_path):
    node, who = shared(make_node, rate=1)
    return eventually(lambda: (answer := who.request("GET", "/function/shop.resize")).status == 429 and answer, "one is too many")


@elsewhere("quota-functions")
def _(make_node, tmp_path):
    node, who = shared(make_node, functions=1)
    return test_triggers.try_deploy(who, "shop", {"resize": "ping", "crop": "echo"})


@elsewhere("token-missing")
def _(make_node, tmp_path):
    node, who = shared(make_node, hosts=["api.acme.example"])
    return node.request("GET", "/resize/64", None, {"Host": "api.acme.example"})


@of_a_tenant("token-invalid")
def _(node, who):
    return asked(node, who.token[:-4] + "0000" if not who.token.endswith("0000") else who.token[:-4] + "1111")


@of_a_tenant("token-expired")
def _(node, who):
    token = test_tenants.make_token(node, "acme", "invoke", expires_in="1ms")["token"]
    return eventually(lambda: (answer := asked(node, token)).status == 401 and answer, "it ends")


@of_a_tenant("role-missing")
def _(node, who):
    return asked(node, test_tenants.make_token(node, "acme", "read")["token"])


@of_a_tenant("operator-only")
def _(node, who):
    return who.control("GET", "/v1/tenants")


@of_a_tenant("tenant-forbidden")
def _(node, who):
    return who.control("GET", "/v1/functions", headers={"X-Millpond-Tenant": "other"})


@of_a_tenant("tenant-unknown")
def _(node, who):
    return node.control("GET", "/v1/tenants/amce")


@of_a_tenant("tenant-exists")
def _(node, who):
    return node.control("PUT", "/v1/tenants/acme", {})


@of_a_tenant("tenant-not-empty")
def _(node, who):
    test_tenants.deploy(who, {"resize": "ping"})
    return node.control("DELETE", "/v1/tenants/acme")


@of_a_tenant("tenant-host")
def _(node, who):
    return node.control("PATCH", "/v1/tenants/acme", {"hosts": ["https://api.acme.example"]})


@of_a_tenant("tenant-quota")
def _(node, who):
    return node.control("PATCH", "/v1/tenants/acme", {"rate": 0})


@of_a_tenant("token-unknown")
def _(node, who):
    return node.control("DELETE", "/v1/tenants/acme/tokens/5f0c6a1e9b42")


@of_a_tenant("token-role")
def _(node, who):
    return node.control("POST", "/v1/tenants/acme/tokens", {"roles": []})


@of_a_tenant("token-request")
def _(node, who):
    return node.control("POST", "/v1/tenants/acme/tokens", {"roles": ["read"], "expires_in": "soon"})


@of_a_tenant("grant-forbidden")
def _(node, who):
    manifest = {"application": {"name": "shop"}, "function": {"prices": {"source": "x.wasm", "grants": {"http": [{"host": "localhost"}]}}}}
    return who.control("POST", "/v1/applications/shop/deployments", {"manifest": manifest, "code": {"prices": "0" * 64}})


@elsewhere("not-permitted")
def _(make_node, tmp_path):
    permitted = test_permits.permit("acme", "photos", "get", "list", prefix="acme/")
    node = make_node(token=test_tenants.OPERATOR, config='[s3]\nendpoint = "http://127.0.0.1:1"\nanonymous = true\n' + permitted)
    grants = {"s3": [{"bucket": "photos", "actions": ["get", "put"]}]}
    return test_permits.try_deploy(test_tenants.make_tenant(node, "acme"), "shop", {"resize": ("echo", {"grants": grants})})


@of_a_tenant("tenant-mismatch")
def _(node, who):
    manifest = {"application": {"name": "shop"}, "function": {"prices": {"source": "x.wasm", "tenant": "rival"}}}
    return who.control("POST", "/v1/applications/shop/deployments", {"manifest": manifest, "code": {"prices": "0" * 64}})


@of_a_tenant("secret-whose")
def _(node, who):
    return who.control("PUT", "/v1/secrets/API_KEY", body=b"value")


def is_problem(code, answer):
    """Compares an answer with the page of its code."""
    page = read(code)
    assert answer.status in page.statuses, (answer.status, answer.body)
    problem = answer.problem(answer.status, code)
    compare(code, "json,answer", json.dumps(problem, indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("code", PROVOKED)
def test_a_problem_is_as_its_page_says(shop, code):
    is_problem(code, PROVOKED[code](shop))


@pytest.mark.parametrize("code", ELSEWHERE)
def test_a_problem_of_a_node_of_its_own_is_as_its_page_says(make_node, tmp_path, code):
    is_problem(code, ELSEWHERE[code](make_node, tmp_path))


# --- manifests ---


@pytest.mark.parametrize("code", [page.code for page in all_pages() if any(words == "toml,refused" for words, _ in page.blocks)])
def test_a_manifest_is_refused_as_its_page_says(tmp_path, code):
    [manifest] = shown(code, "toml,refused")
    # What is too long for a page.
    (tmp_path / "millpond.toml").write_text(manifest.replace("…", "x" * 70_000))
    said = cli("deploy", "--plan", folder=tmp_path)
    assert said.returncode == 2 and said.stdout == b""
    compare(code, "text,told", said.stderr.decode())
    told = json.loads(cli("deploy", "--plan", "-o", "json", folder=tmp_path).stderr)["error"]
    assert code in [fault["code"] for fault in told["faults"]]


# --- the command ---


@contextmanager
def something(status, body, kind="text/html"):
    """A service that is not a node."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def foreign(*_):
    with something(200, b"<html>It works!</html>") as address:
        return cli("list", admin=address)


def refused_by_another(*_):
    with something(502, b"<html>Bad Gateway</html>") as address:
        return cli("list", admin=address)


def not_found(shop):
    answer = b"Status: 404 Not Found\nContent-Type: text/plain\n\nno such picture\n"
    shop.deploy("pictures", {"show": ("echo", {"protocol": "cgi"})})
    return shop.node.cli("invoke", "pictures.show", "--data", answer.decode())


def refused_by_s3(*_):
    document = b"<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>"
    with something(404, document) as address:
        return cli("s3", "ls", "s3://photos", admin=address)


TOLD = {
    "s3-refused": (1, refused_by_s3),
    "timeout": (124, lambda s: s.node.cli("invoke", "shop.slow", "--path", "?ms=60000", "--timeout", "100ms")),
    "function-status": (1, not_found),
    "foreign": (1, foreign),
    "http-status": (1, refused_by_another),
}


@pytest.mark.parametrize("code", TOLD)
def test_the_command_tells_of_an_error_as_its_page_says(shop, code):
    status, provoke = TOLD[code]
    said = provoke(shop)
    assert said.returncode == status, said
    compare(code, "text,told", said.stderr.decode())


# --- all ---


def test_each_page_has_an_example_that_is_compared():
    for page in all_pages():
        marks = {words for words, _ in page.blocks}
        if page.code in PROVOKED or page.code in ELSEWHERE:
            assert "json,answer" in marks, page.code
        elif page.code in TOLD:
            assert "text,told" in marks, page.code
        elif page.code in UNPROVOKED:
            [example] = [json.loads(text) for words, text in page.blocks if words == "json"]
            assert example["code"] == page.code and {example["status"]} <= page.statuses
        elif page.code not in IN_WORDS:
            assert marks & {"toml,refused", "sh,run,fails"}, f"nothing provokes {page.code}"


def test_the_command_explains_every_code():
    for page in all_pages():
        said = cli("explain", page.code)
        assert said.returncode == 0 and page.code in said.stdout.decode().splitlines()[0]
    listed = json.loads(cli("explain", "-o", "json").stdout)["codes"]
    assert {entry["code"]: set(entry["statuses"]) for entry in listed} == {page.code: page.statuses for page in all_pages()}
    wrong = cli("explain", "limit-timout")
    assert wrong.returncode == 2 and b"`limit-timeout`" in wrong.stderr
