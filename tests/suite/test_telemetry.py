"""Traces, metrics and logs as a collector gets them from the real node. What is inside the messages is checked beside
the exporter, with OpenTelemetry's own decoder; protobuf keeps text and ids as they are, so here it is enough to look for
them."""

import http.server
import json
import re
import signal
import subprocess
import threading
import urllib.request

import pytest
from harness import MILLPOND, ROOT, clean_environment, eventually, get, guest

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"


class Collector:
    """Remembers what is posted to it."""

    def __init__(self):
        self.taken = taken = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def posted(self, signal):
        return b"".join(body for path, body in list(self.taken) if path == f"/v1/{signal}")


@pytest.fixture
def collector():
    one = Collector()
    yield one
    one.server.shutdown()
    one.server.server_close()


def exporting(monkeypatch, address, **more):
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_BLRP_SCHEDULE_DELAY": "20",
                 "OTEL_METRIC_EXPORT_INTERVAL": "50", **more}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def variables(answer):
    return dict(line.split("=", 1) for line in answer.text.splitlines() if "=" in line)


def test_a_request_is_followed_from_its_caller_into_the_guest_and_to_the_collector(make_node, monkeypatch, collector):
    exporting(monkeypatch, collector.address, OTEL_SERVICE_NAME="the-mill")
    node = make_node()
    app = node.deploy("traced", {name: name for name in ("env", "stderr")})
    answer = app.call("env", headers={"traceparent": PARENT, "tracestate": "a=1"})
    seen = variables(answer)["HTTP_TRACEPARENT"]
    version, trace, span, flags = seen.split("-")
    assert (version, trace, flags) == ("00", TRACE, "01")
    assert span != CALLER, "the guest is called by its invocation, not by the invocation's caller"
    assert variables(answer)["HTTP_TRACESTATE"] == "a=1"
    wanted = [bytes.fromhex(TRACE), bytes.fromhex(CALLER), bytes.fromhex(span), answer.headers["X-Request-Id"].encode(),
              b"traced.env", b"the-mill", b"queue", b"boot", b"run", b"write"]
    eventually(lambda: all(one in collector.posted("traces") for one in wanted), "the spans arrive")

    answer = app.call("stderr", headers={"traceparent": PARENT})
    request = answer.headers["X-Request-Id"].encode()
    eventually(lambda: request in collector.posted("logs"), "its line arrives")
    assert bytes.fromhex(TRACE) in collector.posted("logs")
    eventually(lambda: b"faas.invoke_duration" in collector.posted("metrics"), "the metrics arrive")


def test_without_a_caller_each_request_begins_a_trace(make_node, monkeypatch, collector):
    exporting(monkeypatch, collector.address)
    app = make_node().deploy("fresh", {"env": "env"})
    seen = [variables(app.call("env"))["HTTP_TRACEPARENT"] for _ in range(2)]
    assert all(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", one) for one in seen)
    assert seen[0][3:35] != seen[1][3:35]


def test_a_client_that_leaves_is_an_outcome_of_its_own(make_node, monkeypatch, collector):
    exporting(monkeypatch, collector.address)
    node = make_node()
    node.deploy("left", {"f": ("http-component", {"response_body": "64MiB"})})
    with node.wire() as wire:
        wire.send(get("/function/left.f/stream-long?60000000"))
        assert wire.socket.recv(1)
    eventually(lambda: b"client-closed" in collector.posted("traces"), "the span says so")
    assert b"function-trap" not in collector.posted("traces")


def test_what_waits_is_sent_when_the_node_ends(make_node, monkeypatch, collector):
    hour = "3600000"
    exporting(monkeypatch, collector.address, OTEL_BSP_SCHEDULE_DELAY=hour, OTEL_BLRP_SCHEDULE_DELAY=hour,
              OTEL_METRIC_EXPORT_INTERVAL=hour)
    node = make_node()
    answer = node.deploy("late", {"ping": "ping"}).call("ping")
    assert collector.taken == []
    node.stop()
    assert answer.headers["X-Request-Id"].encode() in collector.posted("traces")
    assert b"faas.invocations" in collector.posted("metrics")


def test_a_dead_collector_fails_no_request_and_is_told_once(make_node, monkeypatch):
    exporting(monkeypatch, "http://127.0.0.1:9")
    node = make_node()
    app = node.deploy("alone", {"ping": "ping"})
    warned = lambda: [line for line in node.log.read_text().splitlines() if "failed to export telemetry" in line]
    eventually(warned, "the node says so")
    # Metrics are tried twenty times a second: had each try its line, there would be more by then.
    for _ in range(200):
        assert app.call("ping").status == 200
    node.stop()
    assert len(warned()) == 1
    assert json.loads(warned()[0])["level"] == "WARN"


def test_nothing_is_touched_when_nothing_is_exported(suite):
    assert "HTTP_TRACEPARENT" not in variables(suite.call("env"))
    seen = variables(suite.call("env", headers={"traceparent": PARENT}))
    assert seen["HTTP_TRACEPARENT"] == PARENT


def test_what_cannot_be_exported_is_an_error_at_the_start(tmp_path):
    said = subprocess.run([MILLPOND, "serve", "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"],
                          env=clean_environment() | {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://collector:4318"}, capture_output=True,
                          text=True, timeout=60)
    assert said.returncode == 2 and "TLS" in said.stderr and "OTEL_EXPORTER_OTLP_ENDPOINT" in said.stderr


def test_up_exports_too_and_says_where(tmp_path, collector):
    (tmp_path / "ping.wasm").write_bytes(guest("ping"))
    (tmp_path / "millpond.toml").write_text('[application]\nname = "told"\n[function.ping]\nsource = "ping.wasm"\n')
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_BSP_SCHEDULE_DELAY": "20", "OTEL_LOGS_EXPORTER": "none"}
    command = [MILLPOND, "up", "-o", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    up = subprocess.Popen(command, cwd=tmp_path, env=clean_environment() | variables, stdout=subprocess.PIPE, text=True)
    try:
        events = {}
        while "deployed" not in events:
            event = json.loads(up.stdout.readline())
            events[event["event"]] = event
        told = {signal: f"{collector.address}/v1/{signal}" for signal in ("traces", "metrics")}
        assert events["exporting"] == {"event": "exporting"} | told
        address = events["listening"]["listen"]
        with urllib.request.urlopen(f"{address}/function/ping", timeout=60) as answer:
            request = answer.headers["X-Request-Id"].encode()
        eventually(lambda: request in collector.posted("traces"), "the span arrives")
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(timeout=60) == 130


def test_each_metric_of_the_dashboard_is_on_the_page(node, suite):
    dashboard = json.loads((ROOT / "docs" / "grafana-dashboard.json").read_text())
    suite.call("ping")
    on_page = {line.split()[2] for line in node.control("GET", "/metrics").text.splitlines() if line.startswith("# TYPE")}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    expressions += [variable["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    assert len(expressions) > 12
    for expression in expressions:
        used = set(re.findall(r"\b(?:faas|millpond|process)_[a-z_]+\b(?!\s*=)", re.sub(r"\{[^}]*\}|by \([^)]*\)", "", expression)))
        used.discard("faas_name")
        families = {re.sub("_(bucket|count|sum)$", "", name) for name in used}
        assert families and families <= on_page, f"{families - on_page} of {expression}"
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
