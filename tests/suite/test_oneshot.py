"""Code that runs once without being deployed: `millpond invoke --code` and `POST /v1/code/SHA256/invoke`."""

import base64
import hashlib
import json

import pytest
from harness import GUESTS, eventually, guest

RAN = "X-Function-Status"


def upload(node, name):
    code = guest(name)
    digest = hashlib.sha256(code).hexdigest()
    assert node.control("PUT", f"/v1/code/{digest}", body=code).status in (200, 201)
    return digest


def run(node, digest, settings=None, body=b"", query="", headers=None):
    headers = dict(headers or {})
    if settings is not None:
        headers["Millpond-Function"] = json.dumps(settings)
    return node.control("POST", f"/v1/code/{digest}/invoke{query}", headers=headers, body=body)


def test_code_answers_and_nothing_is_deployed(node):
    before = node.control("GET", "/v1/functions").document
    answer = run(node, upload(node, "echo"), {"memory": "4MiB", "content_type": "text/x-echo"}, b"hello")
    assert (answer.status, answer.body, answer.headers[RAN]) == (200, b"hello", "200")
    assert answer.headers["Content-Type"] == "text/x-echo"
    phases = [phase.partition(";")[0].strip() for phase in answer.headers["Server-Timing"].split(",")]
    assert phases == ["prepare", "queue", "boot", "run"]
    assert node.control("GET", "/v1/functions").document == before
    assert not [series for series in node.metrics() if "oneshot" in series]


@pytest.mark.parametrize("engine", ["wasmtime", "wasmtime-dense", "aot", "rwasm"])
def test_every_engine_runs_it(node, engine):
    if engine not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip(f"the engine {engine} is not here: `millpond doctor` says why")
    answer = run(node, upload(node, "echo"), {"engine": engine}, b"x" * 100_000)
    assert (answer.status, answer.body) == (200, b"x" * 100_000), answer.body


def test_a_request_has_its_method_path_and_headers(node):
    settings = {"protocol": "cgi", "env": {"MODE": "x"}}
    query = "?method=PUT&path=/some%20/where".replace("%20", "%2520") + "%3Fa=b"
    answer = run(node, upload(node, "cgi"), settings, b"", query, {"X-More": "yes", "Cookie": "for=the API"})
    assert answer.status == 200, answer.body
    deployed = node.deploy("oneshot-cgi", {"it": ("cgi", settings)})
    assert answer.headers[RAN] == str(deployed.call("it").status)


def test_its_log_comes_with_the_answer(node):
    answer = run(node, upload(node, "stderr"))
    assert answer.status == 200, answer.body
    deployed = node.deploy("oneshot-log", {"it": "stderr"})
    request = deployed.call("it").headers["X-Request-Id"]
    records = lambda: node.records("oneshot-log.it", f"?request={request}")
    said = [record["message"] for record in eventually(records, "the request has logged") if record["stream"] == "stderr"]
    assert base64.b64decode(answer.headers["X-Function-Log"]).decode().splitlines() == said


def test_faults_and_refusals_are_those_of_deployed_code(node):
    run(node, upload(node, "exit3")).problem(502, "function-exit")
    run(node, upload(node, "spin"), {"cpu_time": "50ms"}).problem(504, "limit-cpu-time")
    run(node, upload(node, "echo"), {"request_body": "1KiB"}, b"x" * 2000).problem(413, "limit-request-body")
    run(node, upload(node, "echo"), {"memory": "64KiB"}).problem(422, "memory-too-small")
    run(node, upload(node, "echo"), {"memory": "much"}).problem(422, "manifest-invalid")
    run(node, upload(node, "echo"), {"source": "x"}).problem(400, "document-invalid")
    digest = upload(node, "echo")
    node.control("POST", f"/v1/code/{digest}/invoke", headers={"Millpond-Function": "no"}).problem(400, "document-invalid")
    run(node, digest, query="?method=A%20B").problem(400, "query-invalid")
    run(node, digest, query="?path=x").problem(400, "query-invalid")
    run(node, "0" * 64).problem(409, "code-missing")
    run(node, "no").problem(400, "name-invalid")
    code = b"no code at all"
    digest = hashlib.sha256(code).hexdigest()
    node.control("PUT", f"/v1/code/{digest}", body=code)
    run(node, digest).problem(422, "code-refused")


def test_native_code_runs_so_too(node):
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    code = (GUESTS / "echo.native").read_bytes()
    digest = hashlib.sha256(code).hexdigest()
    node.control("PUT", f"/v1/code/{digest}", body=code)
    assert run(node, digest, None, b"hello").body == b"hello"


def test_the_command_runs_a_file(node, tmp_path):
    words = ["invoke", "--code", GUESTS / "echo.wasm", "--set", "memory=4MiB", "--data", "hello", "--timing"]
    done = node.cli(*words)
    assert (done.returncode, done.stdout) == (0, b"hello"), done.stderr
    assert b"prepare" in done.stderr and b"run" in done.stderr
    document = json.loads(node.cli("invoke", "--code", GUESTS / "echo.wasm", "--data", "hello", "-o", "json").stdout)
    assert (document["status"], document["body"]) == (200, "hello")
    done = node.cli("invoke", "--code", GUESTS / "stderr.wasm")
    assert done.returncode == 0 and done.stderr, "what it says on standard error is told"
    done = node.cli("invoke", "--code", GUESTS / "exit3.wasm")
    assert done.returncode != 0 and b"code 3" in done.stderr
    done = node.cli("invoke", "--code", tmp_path / "none.wasm")
    assert done.returncode == 2 and b"cannot read" in done.stderr
    done = node.cli("invoke", "--code", GUESTS / "echo.wasm", "some.function")
    assert done.returncode == 2 and b"cannot be used with" in done.stderr
    assert b"--code" in node.cli("invoke").stderr
