"""The manual tells the truth: its commands are run, the outputs it shows compared, its tables held against a node.

In the pages of `docs/src` a fenced block that is marked takes part, in the order of the page:

- `c,file=NAME`: is written to a file in the current folder;
- `sh,run`: is run by bash and must succeed; with `fails` it must not. `cd` holds for later blocks;
- `sh,up`: is a `millpond up` that serves the blocks after it, until one that is marked `down`;
- `text,output`: is what the block before it printed; `…` stands for anything in a line, and alone in a line for any lines.
  With `soon` the block before it is run again until it prints this;
- `toml,config`: is a configuration file with every key.

The marks `answer`, `refused` and `told` are those of `test_errors.py`.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import LONG, MILLPOND, PATIENCE, ROOT, building_environment, certificate, cli, eventually

PAGES = ROOT / "docs" / "src"
MARKS = {"run", "fails", "up", "down", "output", "soon", "config", "file", "answer", "refused", "told"}
# What some pages need, and whether it is here.
NEEDS = {
    "tutorials/go.md": ("go", shutil.which("go")),
    "tutorials/js-http.md": ("Node 20", (ROOT / "build" / "templates" / "js-http.installed").exists()),
}


@dataclass
class Block:
    """A fenced block of a page."""

    language: str
    marks: dict
    text: str
    place: str


def blocks(page):
    """The marked blocks of a page, in order."""
    found, block = [], None
    for number, line in enumerate((PAGES / page).read_text().splitlines(), 1):
        if block is not None and line == "```":
            if block.marks:
                found.append(block)
            block = None
        elif block is not None:
            block.text += line + "\n"
        elif line.startswith("```"):
            language, *marks = line.removeprefix("```").split(",")
            marks = dict(mark.partition("=")[::2] for mark in marks)
            assert marks.keys() <= MARKS, f"{page}:{number}: a mark that this test does not know: {line}"
            block = Block(language, marks, "", f"docs/src/{page}:{number}")
    assert block is None, f"{page} ends in a block"
    return found


def all_pages():
    return sorted(str(path.relative_to(PAGES)) for path in PAGES.rglob("*.md"))


def matches(shown, printed):
    """Whether a program printed what the manual shows: `…` is anything in a line, alone in a line any lines or none."""
    pattern = ""
    for line in shown.strip().split("\n"):
        if line == "…":
            pattern += "(?:.*\n)*"
        else:
            pattern += ".*".join(re.escape(part) for part in line.split("…")) + "\n"
    return re.fullmatch(pattern, printed.strip() + "\n")


class Reader:
    """Does what a page says, on a node whose ports are not those of the page."""

    def __init__(self, node, folder):
        self.folder = folder
        self.state = folder / ".folder"
        self.said = folder / ".up"
        self.ran = self.printed = self.up = None
        self.environment = building_environment() | {"PATH": f"{MILLPOND.parent}{os.pathsep}{os.environ['PATH']}"}
        self.node = ["{}:{}".format(*node.listen), "{}:{}".format(*node.admin)]
        self.speak_to(self.node)

    def speak_to(self, addresses):
        self.addresses = list(zip(["127.0.0.1:8080", "127.0.0.1:9080"], addresses, strict=True))
        self.environment["MILLPOND_ADMIN"] = addresses[1]

    def do(self, block):
        if "file" in block.marks:
            (self.folder / block.marks["file"]).write_text(block.text)
        elif "up" in block.marks:
            self.bring_up(block)
        elif "run" in block.marks:
            if "down" in block.marks:
                self.bring_down(block)
            self.run(block)
        elif "output" in block.marks:
            assert self.printed is not None, f"{block.place} is the output of nothing"
            if "soon" in block.marks:
                eventually(lambda: matches(block.text, self.printed) or self.run(self.ran), f"{block.place} is printed")
            assert matches(block.text, self.printed), f"{block.place} shows\n{block.text}\nbut this was printed:\n{self.printed}"
            self.printed = None

    def run(self, block):
        script = block.text
        for written, real in self.addresses:
            script = script.replace(written, real)
        done = subprocess.run(
            ["bash", "-e", "-c", f"trap 'pwd > {self.state}' EXIT\n{script}"],
            cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False,
        )
        self.ran = block
        self.printed = self.as_written(done.stdout.decode().replace("\r\n", "\n"))
        assert (done.returncode != 0) == ("fails" in block.marks), f"{block.place} ended with {done.returncode}:\n{self.printed}"
        self.folder = Path(self.state.read_text().strip())

    def as_written(self, text):
        """A program's output with the ports of the page."""
        for written, real in self.addresses:
            text = text.replace(real, written)
        return text

    def bring_up(self, block):
        own = {"MILLPOND_LISTEN": "127.0.0.1:0", "MILLPOND_ADMIN": "127.0.0.1:0"}
        with self.said.open("wb") as said:
            self.up = subprocess.Popen(shlex.split(block.text), cwd=self.folder, env=self.environment | own, stdout=said, stderr=said)

        def look():
            text = self.said.read_text()
            assert self.up.poll() is None, f"{block.place} ended:\n{text}"
            return "waiting for changes" in text and text

        text = eventually(look, f"{block.place} waits for changes")
        self.speak_to(re.findall(r"127\.0\.0\.1:\d+", text)[:2])
        self.printed = self.as_written(text)

    def bring_down(self, block):
        self.up.send_signal(signal.SIGINT)
        assert self.up.wait(timeout=PATIENCE) == 130, f"before {block.place}:\n{self.said.read_text()}"
        self.up = None
        self.speak_to(self.node)

    def end(self):
        if self.up is not None:
            self.up.kill()
            self.up.wait()


SLOW = ("tutorials/python-http.md", "tutorials/js-http.md")


@pytest.mark.limit(300)
@pytest.mark.parametrize("page", [page for page in all_pages() if any("run" in block.marks for block in blocks(page))])
def test_what_a_page_shows_happens(page, make_node, tmp_path):
    needed, is_here = NEEDS.get(page, (None, True))
    if not is_here:
        pytest.skip(f"{needed} is not installed")
    if page in SLOW and not LONG:
        pytest.skip("MILLPOND_TEST_LONG is not set: it takes a minute, and test_templates does nearly the same")
    folder = tmp_path / "page"
    folder.mkdir()
    # What pages name of the repository.
    (folder / "sdk").symlink_to(ROOT / "sdk")
    reader = Reader(make_node(), folder)
    try:
        for block in blocks(page):
            reader.do(block)
    finally:
        reader.end()


def test_there_are_pages_to_try():
    assert any("output" in block.marks for block in blocks("getting-started.md"))


def test_outputs_are_compared():
    assert matches("a … c\n", "a b c")
    assert matches("…\nlast\n", "first\nsecond\nlast\n")
    assert matches("…\nlast\n", "last")
    assert not matches("a\n", "a b\n")
    assert not matches("a …\n", "a b\nc\n")


def test_the_configuration_has_every_key(make_node, tmp_path):
    (block,) = (block for page in all_pages() for block in blocks(page) if "config" in block.marks)
    shown = tomllib.loads(block.text)
    # A node names all keys when it is given one that it does not know.
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("not_a_key = 1\n")
    refused = cli("serve", "--config", wrong, "--data", tmp_path / "data")
    assert refused.returncode == 2
    known = set(re.findall(r"`([a-z0-9_]+)`", refused.stderr.decode().partition("expected")[2]))
    assert set(shown) == known
    # The ports are the harness's, and so are the certificate and the file of a secret. The token holds, and so do the keys.
    pair = dict(zip(("certificate", "key"), certificate(tmp_path, "docs"), strict=True)) | {"listen": "127.0.0.1:0"}
    text = block.text
    for key, value in pair.items():
        text = text.replace(f'"{shown["tls"][key]}"', f'"{value}"')
    secret = tmp_path / "secret"
    secret.write_text("hidden\n")
    secret.chmod(0o600)
    text = text.replace(shown["lambda"]["key"][1]["secret_file"], str(secret))
    keys = tmp_path / "s3"
    keys.write_text("[default]\naws_access_key_id = one\naws_secret_access_key = another\n")
    keys.chmod(0o600)
    for table in ("s3", "aws"):
        text = text.replace(shown[table]["credentials_file"], str(keys))
    node = make_node(config=text, token=None)
    assert node.tls
    unsigned = node.request("POST", "/2015-03-31/functions/f/invocations")
    assert unsigned.headers["x-amzn-ErrorType"] == "MissingAuthenticationTokenException"
    assert node.control("GET", "/v1/node").problem(401, "unauthorized")
    assert node.control("GET", "/v1/node", headers={"Authorization": f"Bearer {shown['admin_token']}"}).status == 200


def test_the_metrics_are_those_of_a_node(make_node):
    node = make_node(config='[s3]\nendpoint = "http://127.0.0.1:1"\nanonymous = true\n')
    application = node.deploy("shop", {"ping": "ping", "bad": "exit3"})
    assert application.call("ping").status == 200
    application.call("bad").problem(502, "function-exit")
    node.request("GET", "/nowhere").problem(404, "route-unknown")
    page = node.control("GET", "/metrics").text

    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    labels = {}
    for name, text in re.findall(r"^([a-z_]+)(?:\{(.*)\})? \S+$", page, re.MULTILINE):
        family = name if name in types else re.sub(r"_(bucket|sum|count)$", "", name)
        labels.setdefault(family, set()).update(set(re.findall(r'([a-z_]+)="', text)) - {"le"})
    explained = {}
    for line in (PAGES / "reference" / "metrics.md").read_text().splitlines():
        if line.startswith("| `"):
            name, kind, _, listed, _ = (cell.strip() for cell in line.strip("|").split("|"))
            explained[name.strip("`")] = (kind, set(re.findall(r"`([a-z0-9_]+)`", listed)))
    assert {name: kind for name, (kind, _) in explained.items()} == types
    assert {name: explained[name][1] for name in labels} == labels
