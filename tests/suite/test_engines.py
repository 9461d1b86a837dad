"""Engines that a manifest can name give the same answers, and the node changes from one to the other while a function is called."""

import subprocess
import threading

import pytest
from harness import LONG, ROOT, Swarm, eventually

AHEAD = ["aot", "aot-software", "aot-mask", "rwasm", "rwasm-mask"]
EXAMPLES = ["digits", "gps-ekf", "ocr", "plate", "resize"]


def engines(node):
    return node.control("GET", "/v1/node").document["engines"]


@pytest.fixture(autouse=True)
def has_compiler(request, node):
    """Of the engine that a test is for."""
    parameters = getattr(request.node, "callspec", None)
    wanted = parameters.params.get("engine", "aot") if parameters else "aot"
    if wanted not in engines(node):
        pytest.skip(f"the engine {wanted} is not here: `millpond doctor` says how to get its compiler")


def tier(node, function):
    return node.control("GET", f"/v1/functions/{function}").document["tier"]


def vectors(example):
    """Pairs of input and output."""
    folder = ROOT / "examples" / example / "vectors"
    pairs = []
    for given in sorted(folder.glob("*.input.*")):
        name = given.name.partition(".input.")[0]
        pairs += [(given.read_bytes(), expected.read_bytes()) for expected in folder.glob(f"{name}.output.*")]
    assert pairs, folder
    return pairs


@pytest.mark.limit(300)
@pytest.mark.parametrize("engine", ["aot", "aot-software"])
def test_the_examples_answer_byte_for_byte(node, engine):
    code = {name: (ROOT / "build" / "examples" / f"{name}.wasm").read_bytes() for name in EXAMPLES}
    settings = {"engine": engine, "memory": "256MiB"}
    app = node.deploy(f"examples-{engine}", {name: (wasm, settings) for name, wasm in code.items()})
    for name in EXAMPLES:
        for given, expected in vectors(name):
            answer = app.call(name, given)
            assert answer.status == 200, (name, answer.body[:200])
            assert answer.body == expected, name


@pytest.mark.limit(300)
@pytest.mark.parametrize("engine", ["rwasm", *LONG * ["rwasm-mask"]])
def test_the_examples_in_c_do_so_without_simd(node, engine, tmp_path):
    settings = {"engine": engine, "memory": "256MiB"}
    vectorised = (ROOT / "build" / "examples" / "digits.wasm").read_bytes()
    problem = node.try_deploy(f"simd-{engine}", {"digits": (vectorised, settings)}).problem(422, "code-refused")
    assert "SIMD" in problem["detail"] and "-mno-simd128" in problem["detail"], problem
    clang = "clang-22 --target=wasm32-wasi -Wno-deprecated -std=c11 -O3 -ffp-contract=off -Wl,--strip-all".split()
    code = {}
    for name in ("digits", "gps-ekf"):
        out = tmp_path / f"{name}.wasm"
        subprocess.run([*clang, f"{name}/{name}.c", "-o", out, "-lm"], cwd=ROOT / "examples", check=True)
        code[name] = (out.read_bytes(), settings)
    app = node.deploy(f"plain-{engine}", code)
    for name in code:
        for given, expected in vectors(name):
            answer = app.call(name, given)
            assert answer.status == 200, (name, answer.body[:200])
            assert answer.body == expected, name


@pytest.mark.parametrize("engine", ["wasmtime", *AHEAD])
def test_every_way_to_end_is_told_alike(node, engine):
    limits = {"engine": engine}
    app = node.deploy(f"ends-{engine}", {
        **{name: (name, limits) for name in ("ping", "echo", "exit3", "trap", "recurse", "sleep", "env")},
        "rust": ("hello-rust", limits),
        "spin": ("spin", limits | {"timeout": "100ms"}),
        "busy": ("spin", limits | {"cpu_time": "50ms"}),
        "grow": ("grow", limits | {"memory": "4MiB"}),
        "endless": ("endless", limits | {"response_body": "1MiB"}),
    })
    assert app.call("ping").text == "pong\n"
    assert app.call("rust").status == 200
    assert app.call("echo", b"x" * 100_000).body == b"x" * 100_000
    assert app.call("sleep", rest="?ms=20").text == "slept 20 ms\n"
    app.call("exit3").problem(502, "function-exit")
    if engine.endswith("-mask"):
        assert app.call("trap").status == 200, "what is outside is somewhere inside, or zeros"
    else:
        assert "out of bounds" in app.call("trap").problem(502, "function-trap")["detail"]
    app.call("recurse").problem(502, "function-stack-overflow")
    app.call("spin").problem(504, "limit-timeout")
    app.call("busy").problem(504, "limit-cpu-time")
    app.call("grow").problem(502, "function-out-of-memory")
    app.call("endless").problem(502, "limit-response-body")
    # Nothing of all that is left in the next sandbox.
    for _ in range(3):
        assert app.call("ping").text == "pong\n"
        assert app.call("env").status == 200


def test_each_request_has_a_fresh_sandbox_unless_it_says_otherwise(make_node):
    """On a node of its own: what is reused stays."""
    app = make_node().deploy("fresh", {"once": ("counter", {"engine": "aot"}), "again": ("counter", {"engine": "aot", "reuse": 1000})})
    once = [app.call("once").text for _ in range(5)]
    assert len(set(once)) == 1, once
    again = [app.call("again").text for _ in range(5)]
    assert len(set(again)) > 1, again


def test_what_computes_gives_way_to_what_is_short(node):
    """A signal takes the core from a guest that never returns by itself."""
    app = node.deploy("ways", {"spin": ("spin", {"engine": "aot", "timeout": "3s"}), "ping": ("ping", {"engine": "aot"})})
    spinning = threading.Thread(target=app.call, args=("spin",))
    spinning.start()
    eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] >= 1, "it spins")
    for _ in range(20):
        assert app.call("ping").text == "pong\n"
    assert spinning.is_alive(), "it was still spinning"
    spinning.join()


def test_one_engine_takes_over_from_the_other_under_load(make_node):
    node = make_node(config='[aot]\ntier_up = "100ms"\n')
    app = node.deploy("climb", {"work": "work", "ping": "ping"})
    assert tier(node, "climb.work") == {"engine": "wasmtime", "next": "aot", "state": "waiting", "after": "100ms"}
    expected = app.call("work", rest="?ms=1").body

    def check(answer):
        assert answer.status == 200 and answer.body == expected, (answer.status, answer.body[:200])

    with Swarm(node, app.path("work", "?ms=1"), clients=4, check=check) as swarm:
        eventually(lambda: tier(node, "climb.work") == {"engine": "aot"}, "the other engine has taken over")
        swarm.served(500)
    assert not swarm.errors, swarm.errors[:3]
    # What is hardly called stays where it is.
    assert tier(node, "climb.ping")["engine"] == "wasmtime"
    # What was compiled serves at once after a restart.
    node.stop()
    node.start()
    assert app.call("work", rest="?ms=1").body == expected
    assert tier(node, "climb.work") == {"engine": "aot"}


def test_what_the_other_engine_does_not_take_stays(make_node):
    node = make_node(config='[aot]\ntier_up = "1us"\n')
    app = node.deploy("stay", {"f": "http-component"})
    app.call("f", b"echo")
    state = eventually(lambda: tier(node, "stay.f").get("state") == "failed" and tier(node, "stay.f"), "it was tried")
    assert state["engine"] == "wasmtime" and "component" in state["reason"], state
    assert app.call("f", b"echo").status == 200
    said = node.cli("describe", "stay.f").stdout.decode()
    assert "state: failed" in said and "component" in said, said


def test_who_turns_it_off_has_one_engine(make_node):
    node = make_node(config='[aot]\ntier_up = "never"\n')
    app = node.deploy("off", {"f": "ping", "g": ("ping", {"engine": "aot"})})
    assert app.call("f").status == 200 and app.call("g").status == 200
    assert tier(node, "off.f") == {"engine": "wasmtime"}
    assert tier(node, "off.g") == {"engine": "aot"}


NO_CLANG = '[aot]\nclang = "/nowhere/clang"\n'
NO_RUSTC = '[rwasm]\nrustc = "/nowhere/rustc"\n'


def test_a_node_without_a_compiler_says_so(make_node, tmp_path):
    node = make_node(config=NO_CLANG + NO_RUSTC)
    assert set(engines(node)) - {"process"} == {"wasmtime", "wasmtime-dense"}
    app = node.deploy("without", {"f": "ping"})
    assert app.call("f").status == 200
    assert tier(node, "without.f") == {"engine": "wasmtime"}
    for engine in ("aot", "rwasm", "rwasm-mask"):
        problem = node.try_deploy("ahead", {"f": ("ping", {"engine": engine})}).problem(422, "engine-unavailable")
        assert f"`{engine}`" in problem["detail"], problem
    (tmp_path / "millpond.toml").write_text(NO_CLANG + NO_RUSTC)
    said = node.cli("doctor", "--config", str(tmp_path / "millpond.toml")).stdout.decode()
    for line in ("/nowhere/clang does not start", "/nowhere/rustc does not start", "rustup.rs", "apt-get install clang-22 lld-22"):
        assert line in said, said


def test_one_compiler_does_without_the_other(node, make_node):
    if "rwasm" not in engines(node):
        pytest.skip("the engine rwasm is not here: `millpond doctor` says how to get its compiler")
    node = make_node(config=NO_CLANG)
    assert set(engines(node)) - {"process"} == {"wasmtime", "wasmtime-dense", "rwasm", "rwasm-mask"}
    app = node.deploy("one", {"f": ("ping", {"engine": "rwasm"}), "g": ("ping", {"engine": "rwasm-mask"}), "spin": ("spin", {"engine": "rwasm", "timeout": "1s"})})
    assert app.call("f").text == app.call("g").text == "pong\n"
    assert tier(node, "one.f") == {"engine": "rwasm"}
    app.call("spin").problem(504, "limit-timeout")
    node = make_node(config=NO_RUSTC)
    assert "aot" in engines(node) and "rwasm" not in engines(node)


def test_what_safe_code_cannot_be_is_refused(node):
    if "rwasm" not in engines(node):
        pytest.skip("the engine rwasm is not here: `millpond doctor` says how to get its compiler")
    problem = node.try_deploy("refused", {"f": ("http-component", {"engine": "rwasm"})}).problem(422, "code-refused")
    assert "component" in problem["detail"], problem


def test_nothing_runs_unchecked_unless_the_operator_allows_it(node, make_node):
    wanted = {"f": ("ping", {"engine": "aot-none"})}
    node.try_deploy("unchecked", wanted).problem(422, "engine-unavailable")
    free = make_node(config="[aot]\nallow_unchecked = true\n")
    assert free.deploy("unchecked", wanted).call("f").text == "pong\n"


def test_compiled_code_that_is_damaged_is_compiled_anew(make_node):
    node = make_node()
    wanted = {"f": ("ping", {"engine": "aot"})}
    app = node.deploy("damaged", wanted)
    assert app.call("f").text == "pong\n"
    node.stop()
    found = [path for path in node.data.glob("artefacts/aot-*/*") if path.is_file()]
    assert found, "an artefact is kept"
    for path in found:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    node.start()
    assert app.call("f").text == "pong\n"
