"""A developer's first steps, with each template: new, up, a request, an edit, a mistake, its repair, and the next day."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import pytest
from harness import LONG, MILLPOND, PATIENCE, ROOT, answer_of, building_environment, cli, eventually, guest


def has_target(target):
    """Whether Rust compiles for it."""
    if not shutil.which("cargo"):
        return False
    asked = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], env=building_environment(), capture_output=True, text=True, check=False)
    return asked.returncode == 0 and Path(asked.stdout.strip()).is_dir()


COMMAND = 'Hello, Ada!\nYou sent POST with the query "x=1" and 3 bytes.\n'
HANDLER = 'Hello, Ada!\nYou sent POST to /pond with the query "x=1" and 3 bytes.\n'


@dataclass
class Template:
    source: str
    toolchain: object
    lacks: str
    answer: str = COMMAND
    # What ends the text that greets.
    quote: str = '"'


TEMPLATES = {
    "c": Template("main.c", lambda: shutil.which(os.environ.get("CLANG", "clang-22")), "clang-22"),
    "go": Template("main.go", lambda: shutil.which("go"), "go"),
    "rust": Template("src/main.rs", lambda: has_target("wasm32-wasip1"), "cargo with the target wasm32-wasip1"),
    "rust-http": Template("src/lib.rs", lambda: has_target("wasm32-wasip2"), "cargo with the target wasm32-wasip2", HANDLER),
    "python-http": Template("app.py", lambda: True, "python3", HANDLER, "'"),
    "js-http": Template("app.js", (ROOT / "build" / "templates" / "js-http.installed").exists, "Node 20", HANDLER, "`"),
}

# Each build of these takes a quarter of a minute: a mistake and its correction are left to the long tests.
SLOW = () if LONG else ("python-http", "js-http")


class Session:
    """A running `millpond up`, and all that it told."""

    def __init__(self, folder, *words):
        self.events = []
        self.errors = folder / ".up-errors"
        command = [MILLPOND, "up", "-o", "json", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *words]
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(command, cwd=folder, env=building_environment(), stdout=subprocess.PIPE, stderr=errors)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.events.append(json.loads(line) | {"arrived": time.monotonic()})

    def told(self, kind, after=0):
        """The first such event after so many."""
        def look():
            found = next((event for event in self.events[after:] if event["event"] == kind), None)
            assert found or self.process.poll() is None, self.last_words()
            return found
        try:
            return eventually(look, f"`up` tells of `{kind}`")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.last_words()}") from error

    def last_words(self):
        told = "\n".join(map(json.dumps, self.events))
        return f"{told}\n{self.errors.read_text(errors='replace')}"

    def ask(self, path, body=b"Ada"):
        host, _, port = self.told("listening")["listen"].removeprefix("http://").rpartition(":")
        connection = HTTPConnection(host, int(port), timeout=PATIENCE)
        connection.request("POST", path, body)
        try:
            return answer_of(connection)
        finally:
            connection.close()

    def answers(self, path, words):
        """Waits until the answer begins with these words; every answer until then is a good one."""
        def look():
            answer = self.ask(path)
            assert answer.status == 200, answer.body
            return answer.text.startswith(words)
        try:
            eventually(look, f"the answer begins with `{words}`")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.last_words()}") from error

    def end(self):
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=PATIENCE)
        self.reader.join(PATIENCE)
        assert code == 130, (code, self.last_words())
        assert "panicked" not in self.last_words()


@contextmanager
def session(folder, *words):
    one = Session(folder, *words)
    try:
        yield one
        one.end()
    finally:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
        one.process.stdout.close()


def edit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


@pytest.mark.limit(300)
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_first_five_minutes(tmp_path, capsys, name):
    template = TEMPLATES[name]
    if not template.toolchain():
        pytest.skip(f"{template.lacks} is not installed")
    made = cli("new", name, "pond", folder=tmp_path)
    assert made.returncode == 0, made.stderr
    folder, path = tmp_path / "pond", "/pond"
    source = folder / template.source

    with session(folder) as up:
        assert up.told("built")["functions"] == ["pond"]
        deployed = up.told("deployed")
        assert any(url.endswith(path) for url in deployed["urls"]["pond.pond"]), deployed
        answer = up.ask(f"{path}?x=1")
        assert answer.text == template.answer
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
        assert up.ask(path, b"").text.startswith("Hello, world!\n")
        eventually(lambda: any(event["event"] == "log" and event["record"]["message"] == "greeted Ada" for event in up.events), "the log is shown")

        count = len(up.events)
        edit(source, "Hello", "Good day")
        up.answers(path, "Good day, Ada!")
        after = time.monotonic() - up.told("built", count)["arrived"]
        with capsys.disabled():
            print(f"\n{name}: the new answer {after:.2f} s after the rebuild's end")
        if name in SLOW:
            return

        count = len(up.events)
        mistake = f"Good night {template.quote} +"
        edit(source, "Good day", mistake)
        failed = up.told("failed", count)
        assert failed["serving"] and failed["error"]["code"] == "build", failed
        assert Path(template.source).name in failed["error"]["output"], failed
        assert up.ask(path).text.startswith("Good day, Ada!")

        edit(source, mistake, "Good evening")
        up.answers(path, "Good evening, Ada!")

    with session(folder) as up:
        up.told("deployed")
        assert not any(event["event"] == "built" for event in up.events), "what is newer than its sources is built again"
        assert up.ask(path).text.startswith("Good evening, Ada!")


def test_a_build_is_told_when_it_begins_and_when_it_ended(tmp_path):
    (tmp_path / "echo").write_bytes(guest("echo"))
    (tmp_path / "millpond.toml").write_text(
        '[application]\nname = "pond"\n[function.f]\nsource = "f.wasm"\n'
        '[function.f.build]\ncommand = "cp echo f.wasm"\nwatch = ["echo"]\n')
    with session(tmp_path) as up:
        built = up.told("built")
        building = next(event for event in up.events if event["event"] == "building")
        assert up.events.index(building) < up.events.index(built)
        assert building["functions"] == built["functions"] == ["f"] and built["seconds"] >= 0
    (tmp_path / "f.wasm").unlink()
    said = tmp_path / "said"
    command = [MILLPOND, "up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with said.open("wb") as out:
        process = subprocess.Popen(command, cwd=tmp_path, env=building_environment(), stdout=out, stderr=out)
    try:
        eventually(lambda: "waiting for changes" in said.read_text(), "`up` waits for changes")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
    assert re.search(r"(?m)^building f: cp echo f\.wasm\nbuilt f: cp echo f\.wasm \(\d+\.\d s\)$", said.read_text()), said.read_text()


def test_every_template_has_a_test():
    listed = json.loads(cli("new", "-o", "json").stdout)["templates"]
    assert {template["template"] for template in listed} == set(TEMPLATES)
    assert all(template["needs"] and template["summary"] for template in listed)


MANIFEST = """\
[application]
name = "pond"

[function.pond]
source = "pond.wasm"

[[trigger.http]]
function = "pond"
path = "/pond"
"""


@pytest.fixture
def pond(tmp_path):
    """An application whose code is brought, not built."""
    folder = tmp_path / "pond"
    folder.mkdir()
    (folder / "millpond.toml").write_text(MANIFEST)
    (folder / "pond.wasm").write_bytes(guest("ping"))
    return folder


def test_code_and_manifest_that_change(pond):
    manifest = pond / "millpond.toml"
    with session(pond) as up:
        up.told("deployed")
        assert up.ask("/pond").text == "pong\n"
        count = len(up.events)
        (pond / "pond.wasm").write_bytes(b"\x7fELF, surely")
        assert "WebAssembly" in up.told("failed", count)["error"]["detail"]
        assert up.ask("/pond").text == "pong\n"
        (pond / "pond.wasm").write_bytes(guest("echo"))
        eventually(lambda: up.ask("/pond").text == "Ada", "the new code answers")

        count = len(up.events)
        edit(manifest, "[function.pond]", "[function.pond]\nmemroy = \"1MiB\"")
        assert up.told("failed", count)["error"]["code"] == "manifest"
        assert up.ask("/pond").text == "Ada"
        edit(manifest, "memroy = \"1MiB\"", "content_type = \"image/png\"")
        eventually(lambda: up.ask("/pond").headers["Content-Type"] == "image/png", "the new settings are in force")

        edit(manifest, "path = \"/pond\"", "path = \"/lake\"")
        eventually(lambda: up.ask("/lake").status == 200, "the new route leads to the function")
        assert up.ask("/pond").status == 404


def test_a_first_build_that_fails(pond):
    """Nothing is served yet, and the session waits for the repair."""
    (pond / "millpond.toml").write_text(MANIFEST + '\n[function.pond.build]\ncommand = "cp given.wasm pond.wasm"\nwatch = ["given.*"]\n')
    (pond / "pond.wasm").unlink()
    with session(pond) as up:
        failed = up.told("failed")
        assert not failed["serving"] and "given.wasm" in failed["error"]["output"]
        (pond / "given.wasm").write_bytes(guest("ping"))
        up.told("deployed")
        assert up.ask("/pond").text == "pong\n"


def test_an_interruption_ends_a_build(pond):
    (pond / "millpond.toml").write_text(MANIFEST + '\n[function.pond.build]\ncommand = "echo $$ > pid; sleep 1000; true"\n')
    with session(pond) as up:
        pid = eventually(lambda: (pond / "pid").exists() and (pond / "pid").read_text().strip(), "the build runs")
        up.end()
        assert not Path("/proc", pid).exists()
        up.end = lambda: None


def test_a_taken_port_is_said(pond):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = "127.0.0.1:{}".format(server.getsockname()[1])
        for words, flag in ((["--listen", taken, "--admin", "127.0.0.1:0"], "--listen"), (["--listen", "127.0.0.1:0", "--admin", taken], "--admin")):
            said = cli("up", *words, folder=pond)
            text = said.stderr.decode()
            assert said.returncode == 1 and taken in text and flag in text, text


def test_a_folder_without_a_manifest(tmp_path):
    said = cli("up", tmp_path)
    assert said.returncode == 2 and "millpond.toml" in said.stderr.decode()
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
