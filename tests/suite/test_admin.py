"""The control API: who may speak to it, and what it says about the node."""

import json
import re
from pathlib import Path

import pytest
from harness import PROCESSORS, ROOT, Swarm, cli

PATHS = ["/v1/node", "/v1/counters", "/v1/functions", "/v1/applications", "/metrics", "/openapi.json", "/manifest.schema.json"]


def refused(*words):
    said = cli("serve", "--listen", "127.0.0.1:0", *words)
    assert said.returncode == 2, (said.returncode, said.stderr)
    return said.stderr.decode()


def test_no_listening_beyond_this_machine_without_a_token(tmp_path):
    said = refused("--admin", "0.0.0.0:0", "--data", tmp_path / "data")
    assert "0.0.0.0" in said and "token" in said
    assert not (tmp_path / "data").exists()
    # What it says to set is what the command obeys.
    assert "MILLPOND_TOKEN" in said and "MILLPOND_ADMIN_TOKEN" not in said


def test_an_empty_token_is_none(tmp_path):
    (tmp_path / "c.toml").write_text('admin_token = ""\n')
    refused("--admin", "0.0.0.0:0", "--data", tmp_path / "data", "--config", tmp_path / "c.toml")


@pytest.mark.parametrize("text, words", [
    ('lisen = "127.0.0.1:1"\n', ["lisen", "listen"]),
    ('drain = "soon"\n', ["drain"]),
    ('quantum = "1us"\n', ["quantum", "100us"]),
    ("cores = [99999]\n", ["99999"]),
    ("not toml", []),
])
def test_configurations_that_are_wrong(tmp_path, text, words):
    (tmp_path / "c.toml").write_text(text)
    said = cli("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", tmp_path / "d", "--config", tmp_path / "c.toml")
    assert said.returncode in (1, 2)
    for word in words:
        assert word in said.stderr.decode()


@pytest.fixture
def guarded(make_node):
    return make_node(token="mill-stone")


def test_bearer_token(guarded):
    for path in PATHS:
        assert guarded.control("GET", path).status == 200
        for header in ("Bearer wrong", "Bearer", "Basic mill-stone", "mill-stone", "Bearer mill-ston", "Bearer mill-stones"):
            answer = guarded.control("GET", path, headers={"Authorization": header})
            answer.problem(401, "unauthorized")
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert guarded.deploy("may", {"ping": "ping"}).call("ping").status == 200
    assert guarded.control("DELETE", "/v1/applications/may", headers={"Authorization": "Bearer x"}).status == 401
    assert guarded.request("GET", "/function/may.ping").status == 200


def test_load_balancers_need_no_token(guarded):
    for path in ("/healthz", "/readyz"):
        assert guarded.control("GET", path, headers={"Authorization": ""}).status == 200


def test_the_command_shows_its_token(guarded):
    assert guarded.cli("list").returncode == 0
    without = cli("list", admin="http://{}:{}".format(*guarded.admin))
    assert without.returncode == 1
    assert b"MILLPOND_TOKEN" in without.stderr
    # The token stands in no log and in no process list.
    assert "mill-stone" not in guarded.log.read_text()
    assert b"mill-stone" not in Path(f"/proc/{guarded.process.pid}/cmdline").read_bytes()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""])
def test_dns_rebinding(node, host):
    answer = node.control("GET", "/v1/node", headers={"Host": host})
    assert answer.status in (400, 403), answer.body
    if host:
        answer.problem(403, "host-forbidden")


def test_pages_of_others_are_refused(node):
    answer = node.control("DELETE", "/v1/applications/x", headers={"Origin": "http://evil.example"})
    answer.problem(403, "origin-forbidden")


def test_the_data_plane_has_no_controls_and_the_other_way_round(node):
    for path in PATHS[:4]:
        assert node.request("GET", path).status == 404
    assert node.control("GET", "/function/suite.ping").status == 404


def test_node(node):
    said = node.control("GET", "/v1/node").document
    assert said["listen"] == "{}:{}".format(*node.listen) and said["admin"] == "{}:{}".format(*node.admin)
    assert said["cores"] == PROCESSORS[:1] and said["engines"][:2] == ["wasmtime", "wasmtime-dense"]


@pytest.mark.parametrize("path, file", [("/openapi.json", "docs/openapi.json"), ("/manifest.schema.json", None)])
def test_documents(node, path, file):
    served = node.control("GET", path)
    assert served.status == 200 and served.headers["Content-Type"].startswith("application/json")
    found = [ROOT / file] if file else [p for p in (ROOT / "docs").rglob("*.schema.json")]
    assert found, "the document is not in the repository"
    assert served.document == json.loads(found[0].read_text())


def test_the_api_is_what_its_description_says(node):
    paths = node.control("GET", "/openapi.json").document["paths"]
    assert {"/v1/code/{sha256}", "/v1/applications/{application}/deployments", "/v1/functions/{function}/logs"} <= paths.keys()
    for path, operations in paths.items():
        concrete = re.sub(r"\{[a-z0-9_]+\}", "nobody", path)
        for method in operations:
            if method in ("get", "put", "post", "delete"):
                status = node.control(method.upper(), concrete, {} if method in ("put", "post") else None).status
                assert status not in (405, 500, 501), (method, concrete, status)


def test_problems_of_the_api(node):
    node.control("GET", "/v1/nothing").problem(404, "not-found")
    node.control("PATCH", "/v1/functions").problem(405, "method-not-allowed")
    node.control("GET", "/v1/functions/Not.A:Name").problem(400, "name-invalid")
    assert node.control("POST", "/v1/applications/x/deployments", body="{").status in (400, 415)
    answer = node.control("POST", "/v1/applications/x/deployments", {"manifest": {"application": {"name": "x"}, "functoin": {}}, "code": {}})
    assert answer.status == 422
    assert "functoin" in answer.text and "function" in answer.text


SETTINGS = {
    "memory": ["12 parsecs", "0B", "8GiB"], "timeout": ["0s", "-1s", "x"], "cpu_time": ["0s"], "concurrency": [0, -1, "x"], "queue": [-1, 1.5],
    "reuse": [0], "protocol": ["fcgi"], "engine": ["v8"], "memroy": ["1MiB"], "env": [{"PATH_INFO": "x"}, {"MILLPOND_X": "y"}, {"A=B": "c"}],
    "arguments": ["--not-a-list", ["a\0b"]], "content_type": ["text/plain\r\nX: y", ""],
    "grants": [{"s3": [{"bucket": "pictures", "actions": ["get"]}]}],
}


@pytest.mark.parametrize("key, value", [(key, value) for key, values in SETTINGS.items() for value in values])
def test_settings_that_are_refused(node, key, value):
    answer = node.try_deploy("strict", {"ping": ("ping", {key: value})})
    assert answer.status == 422, answer.body
    assert key in answer.text, answer.text
    assert node.control("GET", "/v1/applications/strict").status == 404


def test_metrics_count_what_was_sent(make_node):
    node = make_node()
    app = node.deploy("counted", {
        "ping": "ping", "echo": "echo", "exit3": "exit3", "spin": ("spin", {"timeout": "50ms"}), "full": ("sleep", {"concurrency": 1, "queue": 0}),
    })
    with Swarm(node, app.path("ping"), 3) as swarm:
        swarm.served(300)
    assert not swarm.errors
    for _ in range(5):
        app.call("echo", b"x" * 1000)
        app.call("exit3")
    app.call("spin")
    series = node.metrics()

    def of(name, function, **labels):
        rest = "".join(f',{key}="{value}"' for key, value in labels.items())
        return series[f'{name}{{faas_name="counted.{function}"{rest}}}']

    assert of("faas_invocations_total", "ping") == swarm.count
    assert of("faas_invocations_total", "echo") == 5
    assert of("faas_invocations_total", "exit3") == 0
    errors = {name: value for name, value in series.items() if name.startswith("faas_errors_total")}
    assert sum(value for name, value in errors.items() if "counted.exit3" in name and "function-exit" in name) == 5
    assert sum(value for name, value in errors.items() if "counted.spin" in name) == 1
    assert of("faas_timeouts_total", "spin") == 1
    # Right after a deploy the first requests may come before the image, wait for it, and be counted as such.
    kinds = {kind: of("faas_coldstarts_total", "ping", kind=kind) for kind in ("sandbox", "image")}
    assert sum(kinds.values()) == swarm.count and kinds["image"] <= 3, kinds
    assert of("faas_invoke_duration_seconds_count", "ping") == swarm.count
    assert of("faas_init_duration_seconds_count", "ping", kind="sandbox") == kinds["sandbox"]
    assert of("faas_net_io_bytes_sum", "echo") == 5 * 2000
    assert of("faas_cpu_usage_seconds_sum", "spin") > 0
    assert of("faas_mem_usage_bytes_count", "echo") == 5
    for phase in ("queue", "boot", "run", "write"):
        assert of("millpond_phase_seconds_count", "ping", phase=phase) == swarm.count
    assert series['millpond_image_seconds_count{phase="compile"}'] == 5


def test_metrics_are_prometheus_text(suite):
    answer = suite.node.control("GET", "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    known, seen = {}, set()
    for line in answer.text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert family not in known, f"{family} is declared twice"
            known[family] = kind
        elif not line.startswith("#"):
            match = re.fullmatch(r'([a-z_0-9]+)(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? (\S+)', line)
            assert match, line
            float(match[4])
            assert line.rpartition(" ")[0] not in seen, f"{line} stands twice"
            seen.add(line.rpartition(" ")[0])
            family = re.sub(r"_(bucket|sum|count)$", "", match[1])
            assert family in known or match[1] in known, line
