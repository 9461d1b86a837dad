"""What functions see, and what comes of what they say."""

import hashlib
import os
import threading

import pytest
from harness import Swarm, eventually


def test_ping(suite):
    answer = suite.call("ping")
    assert (answer.status, answer.body) == (200, b"pong\n")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Content-Length"] == "5"
    assert answer.headers["Date"]


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 10 << 20])
def test_echo_gives_back_what_it_gets(suite, size):
    body = os.urandom(size)
    answer = suite.call("echo", body)
    assert answer.status == 200
    assert hashlib.sha256(answer.body).digest() == hashlib.sha256(body).digest()


def test_rust_standard_library(suite):
    assert suite.call("hello", b"pond").text == "Hello, pond!\n"


def test_content_type_of_the_manifest(suite):
    assert suite.call("png", b"x").headers["Content-Type"] == "image/png"


def environment(answer):
    assert answer.status == 200
    return dict(line.split("=", 1) for line in answer.text.splitlines() if not line.startswith("argument "))


def test_cgi_metadata(suite):
    answer = suite.call("env", b"{}", "/a%20b/c?x=1&y=%2F", "PUT", {"Content-Type": "application/json", "X-Level": "7"})
    said = environment(answer)
    assert said["REQUEST_METHOD"] == "PUT"
    assert said["PATH_INFO"] == "/a b/c"
    assert said["QUERY_STRING"] == "x=1&y=%2F"
    assert said["CONTENT_TYPE"] == "application/json"
    assert said["CONTENT_LENGTH"] == "2"
    assert said["HTTP_X_LEVEL"] == "7"
    assert said["SCRIPT_NAME"] == "/function/suite.env"
    assert said["SERVER_PROTOCOL"] == "HTTP/1.1"
    assert said["GATEWAY_INTERFACE"] == "CGI/1.1"
    assert said["SERVER_PORT"] == str(suite.node.listen[1])
    assert said["REMOTE_ADDR"] == "127.0.0.1"
    assert said["SERVER_SOFTWARE"].startswith("millpond/")
    assert said["MILLPOND_FUNCTION"] == "suite.env"
    assert said["MILLPOND_REQUEST_ID"] == answer.headers["X-Request-Id"]
    # RFC 3875 section 4.1.18 and the httpoxy hole: neither credentials twice nor a proxy of the client's choice.
    assert "HTTP_CONTENT_LENGTH" not in said and "HTTP_CONTENT_TYPE" not in said


def test_headers_that_could_be_mistaken_are_not_shown(suite):
    headers = {"Proxy": "evil:1", "X_Real_Ip": "1.2.3.4", "X-Kept": "yes"}
    # `http.client` sends a list in chunks.
    said = environment(suite.call("env", [b"a", b"b"], method="POST", headers=headers))
    assert said["HTTP_X_KEPT"] == "yes"
    assert said["CONTENT_LENGTH"] == "2"
    assert not {"HTTP_PROXY", "HTTP_X_REAL_IP", "HTTP_TRANSFER_ENCODING"} & said.keys()


def test_environment_and_arguments_of_the_manifest(suite):
    answer = suite.call("told")
    assert environment(answer)["LEVEL"] == "3"
    arguments = [line for line in answer.text.splitlines() if line.startswith("argument ")]
    assert arguments[1:] == ["argument 1 --fast", "argument 2 two words"]


def test_nothing_of_the_host_is_visible(suite):
    answer = suite.call("reach")
    assert answer.status == 200
    attempts = [line.rpartition(": ") for line in answer.text.splitlines()]
    assert len(attempts) >= 9
    assert [what for what, _, came in attempts if came != "refused"] == []
    # Of the environment only what the request and the manifest say.
    names = environment(suite.call("env")).keys()
    allowed = {"GATEWAY_INTERFACE", "PATH_INFO", "QUERY_STRING", "REMOTE_ADDR", "REMOTE_HOST", "REQUEST_METHOD", "REQUEST_SCHEME", "SCRIPT_NAME"}
    allowed |= {"CONTENT_LENGTH", "CONTENT_TYPE"}
    assert [n for n in names if n not in allowed and not n.startswith(("HTTP_", "MILLPOND_", "SERVER_"))] == []
    assert not names & os.environ.keys() - {"HTTP_PROXY"}


def test_cgi_protocol(suite):
    answer = suite.call("cgi", rest="/x", method="DELETE")
    assert (answer.status, answer.text) == (201, "DELETE /x\n")
    assert answer.headers["X-Guest"] == "cgi"
    assert answer.headers["Content-Type"] == "text/plain"


def test_cgi_protocol_wants_headers(node):
    bad = node.deploy("badcgi", {"ping": ("ping", {"protocol": "cgi"})})
    problem = bad.call("ping").problem(502, "function-bad-output")
    assert "header" in problem["hint"]


def test_exit_code_is_a_function_error(suite):
    problem = suite.call("exit3").problem(502, "function-exit")
    assert "3" in problem["detail"]
    assert b"half an answer" not in suite.call("exit3").body


def test_closed_output_is_the_whole_answer(suite):
    answer = suite.call("closeout")
    assert (answer.status, answer.body) == (200, b"before\n")
    logged = node_log(suite, "closeout", answer)
    assert "write after close: EBADF" in logged


def node_log(application, function, answer):
    query = f"?request={answer.headers['X-Request-Id']}"
    records = eventually(lambda: application.node.records(f"{application.name}.{function}", query), "the request has logged")
    return [record["message"] for record in records]


def counts(node, function, clients, requests):
    """What a counting function says under load from several clients at once."""
    seen, lock = [], threading.Lock()

    def check(answer):
        assert answer.status == 200, answer.body
        with lock:
            seen.append(int(answer.text))

    with Swarm(node, function, clients, check) as swarm:
        swarm.served(requests)
    assert not swarm.errors
    return seen


def test_a_static_counter_reads_1_for_ever(suite):
    assert set(counts(suite.node, suite.path("counter"), 8, 3000)) == {1}


def test_a_static_counter_reads_1_for_ever_on_two_cores(two_cores):
    """Also when cores steal from each other: burning neighbours keep both busy."""
    app = two_cores.deploy("fresh", {"counter": "counter", "burn": "burn"})
    with Swarm(two_cores, app.path("burn", "?n=3000000"), 6) as burning:
        assert set(counts(two_cores, app.path("counter"), 8, 2000)) == {1}
    assert not burning.errors
    series = two_cores.metrics()
    served = [series[f'millpond_http_requests_total{{core="{core}"}}'] for core in (0, 1)]
    assert min(served) > 0, "one core did nothing"


def test_reuse_opts_out(node):
    app = node.deploy("again", {"counter": ("counter", {"reuse": 3})})
    said = [int(app.call("counter").text) for _ in range(9)]
    assert said == [1, 2, 3] * 3


def test_reuse_is_never_exceeded_under_load(node):
    app = node.deploy("again-loaded", {"counter": ("counter", {"reuse": 5})})
    said = counts(node, app.path("counter"), 8, 1000)
    assert set(said) == {1, 2, 3, 4, 5}
    # With their version go the sandboxes that were kept.
    node.control("DELETE", "/v1/applications/again-loaded")
    eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] == 0, "no sandbox is kept")


def test_a_failed_sandbox_is_not_reused(node):
    app = node.deploy("again-failed", {"exit3": ("exit3", {"reuse": 100}), "trap": ("trap", {"reuse": 100})})
    for _ in range(3):
        app.call("exit3").problem(502, "function-exit")
        app.call("trap").problem(502, "function-trap")
