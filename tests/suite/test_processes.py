"""Native executables: a process for each request, with the answers of the same source as WebAssembly."""

import contextlib
import http.client
import os
import signal
import threading
from pathlib import Path

import pytest
from harness import GUESTS, eventually
from test_pure import MATRICES, TEXTS, WORDS, form, items


@pytest.fixture(autouse=True)
def has_engine(node):
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")


def native(name):
    return (GUESTS / f"{name}.native").read_bytes()


def children(process):
    """Of all its threads. Those that end meanwhile have none."""
    found, tasks = [], []
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{process}/task")
    for task in tasks:
        with contextlib.suppress(OSError):
            found += [int(child) for child in Path(f"/proc/{process}/task/{task}/children").read_text().split()]
    return found


def state(process):
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


def has_begun_one(zygote):
    """Whether it has told the node so: what never began would be ordered again. It waits while a guest starts its program, and for orders afterwards."""
    name, *guests = [Path(f"/proc/{process}/comm").read_text() for process in (zygote, *children(zygote))]
    return any(guest != name for guest in guests) and state(zygote) == "S"


def runs(process):
    """Whether it does: who has taken it in may not have buried it yet."""
    try:
        return state(process) != "Z"
    except OSError:
        return False


def test_the_node_chooses_it_for_an_executable(node):
    app = node.deploy("native", {"auto": (native("echo"), {}), "named": (native("echo"), {"engine": "process"})})
    for name in ("auto", "named"):
        assert app.call(name, b"x" * 100_000).body == b"x" * 100_000
        tier = node.control("GET", f"/v1/functions/native.{name}").document["tier"]
        assert tier.pop("kept").startswith("memory") and tier == {"engine": "process"}
    for engine in ("wasmtime", "aot"):
        problem = node.try_deploy("wrong", {"f": (native("echo"), {"engine": engine})}).problem(422, "code-refused")
        assert "it is a native executable, which this engine does not run" in problem["detail"], problem
    problem = node.try_deploy("wrong", {"f": ("echo", {"engine": "process"})}).problem(422, "code-refused")
    assert "it is no ELF executable" in problem["detail"], problem


def test_native_code_answers_as_webassembly(node):
    names = ["ping", "echo", "env", "cgi", "sleep", "stderr"]
    settings = {"cgi": {"protocol": "cgi"}, "env": {"env": {"MODE": "x"}, "arguments": ["one", "two words"]}}
    native_app = node.deploy("native-same", {name: (native(name), settings.get(name, {})) for name in names})
    wasm_app = node.deploy("native-same-wasm", {name: (name, settings.get(name, {})) for name in names})
    for name in names:
        got, expected = (app.call(name, b"the body", rest="?ms=3") for app in (native_app, wasm_app))
        assert (got.status, got.headers.get("Content-Type")) == (expected.status, expected.headers.get("Content-Type")), name
        neutral = lambda app, answer: answer.body.replace(app.name.encode(), b"APP").replace(answer.headers["X-Request-Id"].encode(), b"ID")
        assert neutral(native_app, got) == neutral(wasm_app, expected), name


def test_each_way_to_end_is_told(node):
    app = node.deploy("native-ends", {
        "exit3": (native("exit3"), {}),
        "trap": (native("trap"), {}),
        "spin": (native("spin"), {"timeout": "200ms"}),
        "busy": (native("spin"), {"cpu_time": "50ms"}),
        "endless": (native("endless"), {"response_body": "1MiB"}),
        "ping": (native("ping"), {}),
    })
    app.call("exit3").problem(502, "function-exit")
    assert "memory that it does not have" in app.call("trap").problem(502, "function-trap")["detail"]
    app.call("spin").problem(504, "limit-timeout")
    app.call("busy").problem(504, "limit-cpu-time")
    # What a process takes of processors counts as its function's.
    used = [value for series, value in node.metrics().items() if series.startswith("faas_cpu_usage_seconds_sum") and "native-ends.busy" in series]
    assert used and used[0] >= 0.05, used
    app.call("endless").problem(502, "limit-response-body")
    assert app.call("ping").text == "pong\n"
    timing = app.call("ping").headers["Server-Timing"]
    assert all(phase in timing for phase in ("queue", "boot", "run", "write")), timing


def test_who_takes_too_long_is_gone(make_node):
    """On a node of its own: its guests are those of the node's spawner."""
    node = make_node()
    app = node.deploy("gone", {"spin": (native("spin"), {"timeout": "300ms"})})
    app.call("spin").problem(504, "limit-timeout")
    [spawner] = children(node.process.pid)
    [zygote] = children(spawner)
    eventually(lambda: not children(zygote), "the guest has ended")


def uncounted(make_node, allow):
    """A node on a host that has no control groups: in a mount namespace without them."""
    node = make_node(start=False, config=f"[process]\nallow_uncounted = {str(allow).lower()}\n")
    script = "for place in $(awk '$3 ~ /^cgroup/ {print $2}' /proc/mounts | sort -r); do umount -l $place; done; exec \"$@\""
    node.command = ["unshare", "--mount", "sh", "-c", script, "sh", *node.command]
    return node.start()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take control groups away from a node")
def test_what_a_host_does_not_count_does_not_run(make_node):
    node = uncounted(make_node, allow=False)
    from test_python import function

    handler = function("def handler(event, context):\n    return 1")
    for code in ((native("ping"), {}), handler):
        problem = node.try_deploy("uncounted", {"f": code}).problem(422, "limits-unavailable")
        assert "memory" in problem["detail"] and "allow_uncounted" in problem["hint"], problem
    # What has one process, or is counted by the node, runs.
    app = node.deploy("counted", {"wasm": ("ping", {"cpus": 1, "cpu_time": "1s"}), "pure": (native("words"), WORDS | {"memory": "16MiB"})})
    assert app.call("wasm").text == "pong\n"
    kept = lambda node, name: node.control("GET", f"/v1/functions/{name}").document["tier"].get("kept")
    assert kept(node, "counted.wasm") is None and "process" in kept(node, "counted.pure")

    allowed = uncounted(make_node, allow=True)
    app = allowed.deploy("uncounted", {"f": (native("ping"), {"cpus": 2, "cpu_time": "1s"}), "g": handler})
    assert app.call("f").text == "pong\n" and app.call("g", b"{}").document == 1
    for name in ("f", "g"):
        assert "each process by itself" in kept(allowed, f"uncounted.{name}")
    # It was deployed, and may not run any more.
    allowed.stop()
    configuration = allowed.folder / "config.toml"
    configuration.write_text(configuration.read_text().replace("true", "false"))
    allowed.start()
    app.call("f").problem(500, "platform")


def test_a_zygote_or_a_spawner_that_dies_is_replaced(make_node):
    node = make_node()
    app = node.deploy("mend", {"ping": (native("ping"), {}), "sleep": (native("sleep"), {})})
    assert app.call("ping").text == "pong\n"
    for level in ("zygote", "spawner"):
        [spawner] = children(node.process.pid)
        eventually(lambda: not any(children(zygote) for zygote in children(spawner)), "the guests before have ended")
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(app.call("sleep", rest="?ms=20000")))
        waiting.start()
        eventually(lambda: any(has_begun_one(zygote) for zygote in children(spawner)), "it sleeps")
        for process in children(spawner) if level == "zygote" else [spawner]:
            os.kill(process, signal.SIGKILL)
        waiting.join()
        assert "was lost" in answers[0].problem(502, "function-trap")["detail"]
        # Who has ended a spawner sees its zygotes end a moment later.
        eventually(lambda: app.call("ping").body == b"pong\n", "another one has taken its place")
        assert app.call("sleep", rest="?ms=1").text == "slept 1 ms\n"


def test_nothing_is_left_when_the_node_ends(make_node):
    node = make_node()
    app = node.deploy("left", {"sleep": (native("sleep"), {})})

    def call():
        with contextlib.suppress(OSError, http.client.HTTPException):
            app.call("sleep", rest="?ms=60000")

    waiting = threading.Thread(target=call)
    waiting.start()
    [spawner] = eventually(lambda: children(node.process.pid), "there is a spawner")
    [zygote] = eventually(lambda: children(spawner), "there is a zygote")
    [guest] = eventually(lambda: children(zygote), "it sleeps")
    node.kill()
    waiting.join()
    for name, process in (("guest", guest), ("zygote", zygote), ("spawner", spawner)):
        eventually(lambda process=process: not runs(process), f"the {name} has ended")


def test_a_pure_function_in_native_code_gives_what_webassembly_gives(node):
    settings = WORDS | {"memory": "16MiB"}
    app = node.deploy("pure-native", {"native": (native("words"), settings), "wasm": ("words-c", settings)})
    parts = [(f"texts/{name}", text) for name, text in TEXTS.items()]
    body, headers = form(*parts, *((f"matrices/{name}", matrix) for name, matrix in MATRICES.items()))
    got, expected = (items(app.call(way, body, headers=headers)) for way in ("native", "wasm"))
    # The product has NaNs, and theirs are the processor's here.
    assert len(got.pop("product/c")) == len(expected.pop("product/c")) == 72
    assert got == expected
    lonely, headers = form(("matrices/a", MATRICES["a"]))
    for way in ("native", "wasm"):
        assert "exited with code 5" in app.call(way, lonely, headers=headers).problem(502, "function-exit")["detail"]
    # Keys have 64 bits here.
    large, headers = form(("texts/a", b"mill", f"Millpond-Key: {1 << 40}"))
    answer = app.call("native", large, headers=headers)
    assert f"millpond-key: {1 << 40}\r\n".encode() in answer.body


def test_what_is_no_pure_function_is_refused(node):
    problem = node.try_deploy("impure", {"f": (native("echo"), WORDS)}).problem(422, "code-refused")
    assert "`__dandelion_system_data`" in problem["detail"], problem


def test_the_doctor_says_whether_it_can_be_had(node):
    assert "native executables" in node.cli("doctor").stdout.decode()
