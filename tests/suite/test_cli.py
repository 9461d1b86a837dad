"""The command: what it prints, with which code it leaves, and what its errors say."""

import json
import socket
import subprocess

import pytest
from harness import GUESTS, MILLPOND, PHASES, clean_environment, cli

MANIFEST = """\
[application]
name = "walk"

[function.hello]
source = "hello.wasm"

[[trigger.http]]
function = "hello"
path = "/hello/{name}"
"""


@pytest.fixture
def walk(tmp_path):
    """A folder with an application."""
    (tmp_path / "millpond.toml").write_text(MANIFEST)
    (tmp_path / "hello.wasm").write_bytes((GUESTS / "hello-rust.wasm").read_bytes())
    return tmp_path


def ok(said):
    assert said.returncode == 0, said.stderr.decode()
    return said.stdout.decode()


def failed(said, code):
    text = said.stderr.decode()
    assert said.returncode == code, (said.returncode, text)
    assert text, "an error without a word"
    assert "panicked" not in text
    return text


def test_the_walk(node, walk):
    """What the README shows: plan, deploy, invoke, list, describe, roll back, delete."""
    assert "hello" in ok(node.cli("deploy", "--plan", folder=walk))
    failed(node.cli("invoke", "walk.hello"), 1)
    assert "walk.hello" in ok(node.cli("deploy", folder=walk))
    assert ok(node.cli("invoke", "walk.hello", "--data", "pond")) == "Hello, pond!\n"
    (walk / "name").write_text("file")
    assert ok(node.cli("invoke", "walk.hello", "--data", "@name", folder=walk)) == "Hello, file!\n"
    assert ok(node.cli("invoke", "walk.hello", "--data", "-", given=b"pipe")) == "Hello, pipe!\n"
    assert "walk.hello" in ok(node.cli("list"))
    assert "/hello/{name}" in ok(node.cli("describe", "walk.hello"))

    (walk / "millpond.toml").write_text(MANIFEST.replace('"hello.wasm"', '"hello.wasm"\ntimeout = "7s"'))
    text = ok(node.cli("deploy", "--plan", folder=walk))
    assert "timeout" in text and "7s" in text
    ok(node.cli("deploy", walk))
    assert "7s" in ok(node.cli("describe", "walk.hello"))
    ok(node.cli("rollback", "walk.hello"))
    assert "7s" not in ok(node.cli("describe", "walk.hello"))
    ok(node.cli("delete", "walk", "--yes"))
    failed(node.cli("describe", "walk.hello"), 1)


def test_answers_for_machines(node, walk):
    def document(*words):
        return json.loads(ok(node.cli(*words, "-o", "json", folder=walk)))

    planned = document("deploy", "--plan")
    assert planned["changes"][0]["action"] == "create"
    deployed = document("deploy")
    assert deployed["application"] == "walk" and deployed["changes"][0]["to"] == planned["changes"][0]["to"]
    assert deployed["urls"]["walk.hello"]
    invoked = document("invoke", "walk.hello", "--data", "json")
    assert (invoked["status"], invoked["body"]) == (200, "Hello, json!\n")
    assert "walk.hello" in json.dumps(document("list"))
    assert document("describe", "walk.hello")["function"] == "walk.hello"
    ok(node.cli("deploy", "-f", "millpond.toml", folder=walk))
    error = json.loads(failed(node.cli("rollback", "walk.hello", "-o", "json"), 1))["error"]
    assert error["code"] and error["detail"]
    assert document("delete", "walk", "--yes")["deleted"] == "walk"


def test_timing(suite):
    said = suite.node.cli("invoke", "suite.ping", "--timing")
    assert said.stdout == b"pong\n"
    text = said.stderr.decode()
    assert all(phase in text for phase in PHASES) and "total" in text


def test_exit_code_of_a_functions_error(suite):
    text = failed(suite.node.cli("invoke", "suite.exit3"), 1)
    assert "exited with code 3" in text and "millpond logs" in text


def test_exit_code_of_a_timeout(suite):
    text = failed(suite.node.cli("invoke", "suite.spin"), 124)
    assert "timeout" in text and "1s" in text
    text = failed(suite.node.cli("--timeout", "100ms", "invoke", "suite.sleep", "--path", "?ms=5000"), 124)
    assert "100ms" in text


@pytest.mark.parametrize("words", [
    [], ["frobnicate"], ["deploy", "--frob"], ["invoke"], ["invoke", "Not A Name"], ["invoke", "suite.ping", "--data", "@/no/such/file"],
    ["invoke", "suite.ping", "--path", "no-slash"], ["list", "-o", "yaml"], ["--admin", "https://x", "list"], ["--timeout", "soon", "list"],
    ["serve", "--listen", "nowhere"],
])
def test_exit_code_of_wrong_usage(node, words):
    failed(node.cli(*words), 2)


def test_unknown_functions(node):
    text = failed(node.cli("invoke", "no-such-function"), 1)
    assert "no-such-function" in text and "try:" in text
    failed(node.cli("describe", "suite.ping:77"), 1)
    failed(node.cli("rollback", "no-such-function"), 1)
    failed(node.cli("delete", "no-such-function", "--yes"), 1)


def test_delete_asks_first(node, walk):
    """Without a terminal there is nobody to ask, so nothing is deleted."""
    ok(node.cli("deploy", folder=walk))
    text = failed(node.cli("delete", "walk.hello"), 2)
    assert "--yes" in text
    assert ok(node.cli("invoke", "walk.hello")) == "Hello, world!\n"
    ok(node.cli("delete", "walk.hello", "-y"))


def test_a_manifest_error_is_shown_in_its_line(node, walk):
    (walk / "millpond.toml").write_text(MANIFEST.replace('source = "hello.wasm"', 'source = "hello.wasm"\nmemroy = "64MiB"\ntimeout = "5 parsecs"'))
    text = failed(node.cli("deploy", folder=walk), 2)
    assert 'memroy = "64MiB"' in text and "millpond.toml:6:1" in text, text
    assert "memory" in text and "5 parsecs" in text and "2 errors" in text
    faults = json.loads(failed(node.cli("deploy", "-o", "json", folder=walk), 2))["error"]["faults"]
    assert len(faults) == 2 and all(fault["span"] for fault in faults)


def test_files_that_are_missing(node, walk):
    (walk / "hello.wasm").unlink()
    text = failed(node.cli("deploy", folder=walk), 2)
    assert "hello.wasm" in text and "relative to the manifest" in text
    (walk / "millpond.toml").unlink()
    text = failed(node.cli("deploy", folder=walk), 2)
    assert "millpond.toml" in text
    text = failed(node.cli("deploy", "/no/such/folder"), 2)
    assert "/no/such/folder" in text


def test_code_that_is_none(node, walk):
    (walk / "hello.wasm").write_bytes(b"\x7fELF, surely")
    text = failed(node.cli("deploy", folder=walk), 1)
    assert "WebAssembly" in text and "hello" in text


def test_build_commands(node, walk):
    (walk / "millpond.toml").write_text(MANIFEST + '\n[function.hello.build]\ncommand = "cp given.wasm hello.wasm"\n')
    (walk / "hello.wasm").rename(walk / "given.wasm")
    assert "--build" in failed(node.cli("deploy", folder=walk), 2)
    ok(node.cli("deploy", "--build", folder=walk))
    assert ok(node.cli("invoke", "walk.hello")) == "Hello, world!\n"
    (walk / "given.wasm").unlink()
    assert "cp given.wasm" in failed(node.cli("deploy", "--build", folder=walk), 1)
    ok(node.cli("delete", "walk", "-y"))


def test_no_node():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for words in (["list"], ["invoke", "x"], ["logs", "x"], ["delete", "x", "-y"]):
        text = failed(cli(*words, admin=f"http://127.0.0.1:{port}"), 1)
        assert str(port) in text and "millpond serve" in text


def test_something_else_listens_there(node):
    """Such as the same node's data plane: its own words are shown, and where they are from."""
    text = failed(cli("list", admin="http://{}:{}".format(*node.listen)), 1)
    assert str(node.listen[1]) in text and "/v1/functions" in text


def test_help_and_version():
    assert "millpond" in ok(cli("--version"))
    for verb in ("new", "build", "up", "serve", "deploy", "invoke", "logs", "list", "describe", "delete", "rollback", "doctor", "explain", "completions", "man"):
        assert "Usage: millpond" in ok(cli(verb, "--help"))


def test_doctor():
    said = cli("doctor", "-o", "json")
    assert said.returncode in (0, 1)
    assert json.loads(said.stdout)


def test_output_that_nobody_reads(suite):
    """`millpond … | head -1` is no error."""
    environment = clean_environment() | {"MILLPOND_ADMIN": "http://{}:{}".format(*suite.node.admin)}
    words = ["invoke", "suite.echo", "--data", "-"]
    with subprocess.Popen([MILLPOND, *words], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(b"x" * (1 << 20))
        process.stdin.close()
        error = process.stderr.read()
        assert process.wait() == 0 and not error, error


def test_binary_answers(suite):
    body = bytes(range(256)) * 100
    assert suite.node.cli("invoke", "suite.echo", "--data", "-", given=body).stdout == body
