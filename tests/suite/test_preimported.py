"""Functions in Python whose import starts threads: they cannot be forked, so each request has a process that has imported the module by itself."""

import base64
import json
import threading
import zipfile
from pathlib import Path

import pytest
from harness import ROOT, eventually
from objects import S3Server, granted
from test_lambda import client_of
from test_processes import children
from test_python import HOSTILE, _read, function, has_engine  # noqa: F401

THREADED = """
import os, queue, random, threading
asked, answered = queue.Queue(), queue.Queue()
state = {"requests": 0}

def work():
    while True:
        what, arguments = asked.get()
        try:
            answered.put((what(*arguments), None))
        except BaseException as error:
            answered.put((None, error))

threading.Thread(target=work, daemon=True).start()
with open("/tmp/imported", "w") as file:
    file.write("x")

def in_thread(what, *arguments):
    asked.put((what, arguments))
    result, error = answered.get(timeout=30)
    if error:
        raise error
    return result

def handler(event, context):
    state["requests"] += 1
    found = sorted(os.listdir("/tmp"))
    open("/tmp/left", "w").close()
    os.environ["LEFT"] = "x"
    return {
        "sum": in_thread(sum, event["numbers"]),
        "requests": state["requests"],
        "found": found,
        "random": random.random(),
        "left": context.get_remaining_time_in_millis(),
        "threads": threading.active_count(),
    }
"""


def origin(app, name):
    return app.node.control("GET", f"/v1/functions/{app.name}.{name}").document["tier"].get("origin")


def test_threads_of_the_import_work_in_requests_of_which_each_has_a_process_of_its_own(node):
    app = node.deploy("preimported", {"f": function(THREADED)})
    event = json.dumps({"numbers": [1, 2, 3]}).encode()
    said = [app.call("f", event).document for _ in range(5)]
    assert all(one["sum"] == 6 and one["requests"] == 1 and one["threads"] == 2 for one in said), said
    # What the import has left is there, and what another request has left is not.
    assert all(one["found"] == ["imported"] for one in said), said
    assert len({one["random"] for one in said}) == 5
    assert origin(app, "f") == "preimported processes, because the import of app started 1 thread"


def test_what_can_be_forked_is(node):
    app = node.deploy("preimported-not", {"f": function("def handler(event, context):\n    return 1")})
    assert origin(app, "f") is None
    assert app.call("f", b"{}").document == 1
    assert "forked" in origin(app, "f")


def test_many_at_once(node):
    app = node.deploy("preimported-many", {"f": function(THREADED)})
    said = [None] * 12

    def call(number):
        said[number] = app.call("f", json.dumps({"numbers": [number]}).encode()).document

    threads = [threading.Thread(target=call, args=(number,)) for number in range(len(said))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one["sum"] for one in said] == list(range(len(said)))
    assert {one["requests"] for one in said} == {1}


def test_each_way_to_fail_is_told_and_the_next_request_is_served(node):
    code = THREADED + """
def fails(event, context):
    how = event["how"]
    if how == "raise":
        raise ValueError("no luck")
    if how == "leave":
        in_thread(os._exit, 3)
    if how == "die":
        in_thread(os.kill, os.getpid(), 9)
    if how == "hungry":
        return len(b"x" * (1 << 30))
    while how == "busy":
        pass
    return os.getpid()
"""
    app = node.deploy("preimported-fails", {
        "f": function(code, "app.fails", cpu_time="1s"),
        "slow": function(code, "app.fails", timeout="2s"),
    })
    ask = lambda how, name="f": app.call(name, json.dumps({"how": how}).encode())
    for how, status, problem in [
        ("raise", 502, "function-raised"),
        ("leave", 502, "function-exit"),
        ("die", 502, "function-trap"),
        ("hungry", 502, "function-out-of-memory"),
        ("busy", 504, "limit-cpu-time"),
    ]:
        ask(how).problem(status, problem)
        assert ask("").status == 200, how
    ask("busy", "slow").problem(504, "limit-timeout")
    assert ask("", "slow").status == 200


def test_its_threads_are_confined_as_forks_are(node):
    code = THREADED + HOSTILE.replace("def handler", "def hostile").replace('"signal to others": lambda: os.kill(2, signal.SIGKILL),', "") + """
def both(event, context):
    return [hostile(event, context), in_thread(hostile, event, context)]
"""
    app = node.deploy("preimported-hostile", {"f": function(code, "app.both")})
    for said in app.call("f", json.dumps({"data": str(node.folder.resolve())}).encode()).document:
        allowed = {name: result for name, result in said.items() if not result.endswith("Error")}
        assert len(said) > 10 and allowed == {}, allowed


def test_what_the_import_has_said_and_what_each_request_says_is_its_log(node):
    code = 'print("while it was imported")\n' + THREADED + """
def says(event, context):
    print("by " + event["who"])
    in_thread(print, "in a thread")
"""
    app = node.deploy("preimported-says", {"f": function(code, "app.says")})
    assert app.call("f", b'{"who": "nobody"}').status == 200
    client = client_of(node)
    for who in ("one", "other"):
        answer = client.invoke(FunctionName="preimported-says.f", Payload=json.dumps({"who": who}), LogType="Tail")
        lines = base64.b64decode(answer["LogResult"]).decode().splitlines()
        assert [line for line in lines if not line.startswith(("START ", "END ", "REPORT "))] == ["while it was imported", f"by {who}", "in a thread"]


def test_nothing_is_left_of_a_request(node):
    code = THREADED + """
import subprocess, sys
def leaves(event, context):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3601)"])
"""
    app = node.deploy("preimported-leaves", {"f": function(code, "app.leaves")})
    assert app.call("f", b"{}").status == 200
    asleep = lambda: [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"time.sleep(3601)\0" in _read(path)]
    eventually(lambda: not asleep(), "a child of a request that has been answered is there no more")


def test_a_process_waits_for_the_next_request(make_node):
    """One that has imported the module is there before it is asked for, and what waits is not more than a few."""
    node = make_node()
    app = node.deploy("preimported-waits", {"f": function(THREADED)})
    zygotes = lambda: [zygote for spawner in children(node.process.pid) for zygote in children(spawner)]
    for _ in range(3):
        assert app.call("f", b'{"numbers": []}').document["requests"] == 1
        eventually(lambda: 1 <= len(zygotes()) <= 8, "there are some processes for requests to come")


NUMPY = next(iter(ROOT.glob("build/bench/io/venv/lib/python3*/site-packages/numpy")), None)


@pytest.mark.skipif(NUMPY is None, reason="there is no NumPy here: `make bench-io` brings it")
def test_linear_algebra_with_threads(node, tmp_path):
    code = """
import numpy
def handler(event, context):
    matrix = numpy.full((400, 400), 2.0)
    return {"sum": float((matrix @ matrix).sum()), "random": float(numpy.random.random())}
"""
    archive = tmp_path / "package.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as package:
        package.writestr("app.py", code)
        for folder in [NUMPY, *NUMPY.parent.glob("numpy.libs")]:
            for path in folder.rglob("*"):
                if path.is_file() and "tests" not in path.parts and "__pycache__" not in path.parts:
                    package.write(path, path.relative_to(NUMPY.parent))
    settings = {"handler": "app.handler", "memory": "512MiB", "cpus": 2, "timeout": "60s"}
    app = node.deploy("preimported-numpy", {"f": (archive.read_bytes(), settings)})
    said = [app.call("f", b"{}").document for _ in range(3)]
    assert {one["sum"] for one in said} == {400 * 400 * 400 * 4.0}
    assert len({one["random"] for one in said}) == 3
    # Whether the import starts its threads is the host's cores' to say.
    assert origin(app, "f")


def test_boto3_is_there_while_it_is_imported_and_in_each_request(make_node, tmp_path):
    server = S3Server(tmp_path / "store").start()
    try:
        node = make_node(config=server.configuration(tmp_path))
        code = THREADED + """
import boto3
s3 = boto3.client("s3")
s3.put_object(Bucket="threads", Key="imported", Body=b"while it was imported")

def stores(event, context):
    in_thread(lambda: s3.put_object(Bucket="threads", Key="asked", Body=event["body"].encode()))
    return [s3.get_object(Bucket="threads", Key=key)["Body"].read().decode() for key in ("imported", "asked")]
"""
        server.client().create_bucket(Bucket="threads")
        app = node.deploy("preimported-boto3", {"f": function(code, "app.stores", grants={"s3": [granted("threads")]})})
        for body in ("one", "other"):
            assert app.call("f", json.dumps({"body": body}).encode()).document == ["while it was imported", body]
    finally:
        server.stop()
