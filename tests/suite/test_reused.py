"""Functions in Python with `reuse`: one process serves several requests, one after the other."""

import base64
import json
import os
from pathlib import Path

import pytest
from harness import eventually
from test_lambda import client_of
from test_objects import descendants
from test_preimported import THREADED
from test_python import function, has_engine  # noqa: F401

CODE = """
import logging, os, time
logging.getLogger().setLevel(logging.INFO)
state = {"requests": 0}
kept = []

def handler(event, context):
    state["requests"] += 1
    how = event.get("how")
    print("asked by", event.get("who"))
    logging.info("the same")
    os.write(1, b"by descriptor\\n")
    found = sorted(os.listdir("/tmp"))
    open("/tmp/left", "w").close()
    if how == "raise":
        raise ValueError("no luck")
    if how == "leave":
        os._exit(3)
    if how == "busy":
        while True:
            pass
    if how == "hoard":
        kept.append(b"x" * (40 << 20))
    if how == "burn":
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
    return {
        "requests": state["requests"],
        "found": found,
        "id": context.aws_request_id,
        "left": context.get_remaining_time_in_millis(),
        "trace": os.environ.get("_X_AMZN_TRACE_ID"),
        "event": event,
    }
"""


def ask(app, name="f", **event):
    return app.call(name, json.dumps(event).encode())


@pytest.mark.parametrize("code", [CODE, THREADED + CODE], ids=["forked", "preimported"])
def test_a_process_serves_as_many_requests_as_reuse_says(node, code):
    app = node.deploy(f"reused-{len(code)}", {"f": function(code, reuse=3)})
    answers = [ask(app, number=number) for number in range(7)]
    said = [answer.document for answer in answers]
    assert [one["requests"] for one in said] == [1, 2, 3, 1, 2, 3, 1]
    assert [one["event"]["number"] for one in said] == list(range(7))
    # What a request has left in /tmp is there for the next one.
    assert [("left" in one["found"]) for one in said] == [False, True, True, False, True, True, False]
    assert [one["id"].replace("-", "") for one in said] == [answer.headers["X-Request-Id"] for answer in answers]


def test_without_it_each_request_has_a_process(node):
    app = node.deploy("reused-not", {"f": function(CODE)})
    assert [ask(app).document["requests"] for _ in range(3)] == [1, 1, 1]


def test_after_a_failure_nothing_of_the_process_is_used_again(node):
    app = node.deploy("reused-fails", {"f": function(CODE, reuse=100, timeout="30s", cpu_time="300ms")})
    for how, problem in [("raise", (502, "function-raised")), ("leave", (502, "function-exit")), ("busy", (504, "limit-cpu-time"))]:
        assert ask(app).document["requests"] == 1
        assert ask(app).document["requests"] == 2
        ask(app, how=how).problem(*problem)
    assert ask(app).document["requests"] == 1


def test_the_limits_of_each_request_hold(node):
    app = node.deploy("reused-limits", {"f": function(CODE, reuse=100, timeout="20s", cpu_time="700ms", memory="128MiB")})
    # Each has its own time on a core,
    said = [ask(app, how="burn").document for _ in range(6)]
    assert [one["requests"] for one in said] == [1, 2, 3, 4, 5, 6]
    assert all(15_000 < one["left"] <= 20_000 for one in said), said
    # and memory is the process's: what one request keeps, the next ones do not have.
    kept = [ask(app, how="hoard").status for _ in range(5)]
    assert kept[0] == 200 and 502 in kept
    assert ask(app).status == 200


def test_what_each_request_says_is_its_own_log(node):
    node.deploy("reused-says", {"f": function("print('imported')\n" + CODE, reuse=100)})
    client = client_of(node)
    for number, who in enumerate(["one", "other", "third"]):
        answer = client.invoke(FunctionName="reused-says.f", Payload=json.dumps({"who": who}), LogType="Tail")
        lines = base64.b64decode(answer["LogResult"]).decode().splitlines()
        assert ("imported" in lines) == (number == 0), lines
        assert [line for line in lines if line.startswith("asked by")] == [f"asked by {who}"]
        assert lines.count("by descriptor") == 1
        [logged] = [line for line in lines if line.endswith("the same")]
        assert answer["ResponseMetadata"]["RequestId"] in logged


def test_a_trace_is_that_of_its_request(node):
    app = node.deploy("reused-trace", {"f": function(CODE, reuse=100)})
    call = lambda **headers: node.request("POST", app.path("f"), b"{}", headers=headers).document
    assert call(**{"X-Amzn-Trace-Id": "Root=1"})["trace"] == "Root=1"
    assert call()["trace"] is None
    said = call(**{"X-Amzn-Trace-Id": "Root=2"})
    assert (said["trace"], said["requests"]) == ("Root=2", 3)


def test_versions_share_nothing(node):
    app = node.deploy("reused-versions", {"f": function(CODE, reuse=100)})
    assert [ask(app).document["requests"] for _ in range(2)] == [1, 2]
    app = node.deploy("reused-versions", {"f": function(CODE, reuse=100, env={"A": "1"})})
    assert ask(app).document["requests"] == 1


def test_large_events_and_pieces_come_whole_in_each_request(node):
    code = """
state = {"requests": 0}
def handler(event, context):
    state["requests"] += 1
    if "pieces" in event:
        return (f"{state['requests']}:{piece};" for piece in range(event["pieces"]))
    return [state["requests"], len(event["text"])]
"""
    app = node.deploy("reused-large", {"f": function(code, reuse=100)})
    assert ask(app, text="x" * 300_000).document == [1, 300_000]
    assert ask(app, pieces=2).text == "2:0;2:1;"
    assert ask(app, text="x").document == [3, 1]
    assert ask(app, text="x" * 200_000).document == [4, 200_000]


def test_one_that_speaks_between_requests_is_not_used_again(node):
    code = """
import os, threading, time
state = {"requests": 0}
def later(written):
    os.read(written, 1)
    for descriptor in range(3, 32):
        try:
            os.write(descriptor, b'A{"forged": true}')
        except OSError:
            pass

def handler(event, context):
    state["requests"] += 1
    if event.get("arm"):
        read, write = os.pipe()
        threading.Thread(target=later, args=(read,), daemon=True).start()
        threading.Timer(0.05, os.write, (write, b"x")).start()
    return state["requests"]
"""
    app = node.deploy("reused-forged", {"f": function(code, reuse=1000)})
    for _ in range(3):
        ask(app, arm=True)
        # Until the words have come, it serves; with them between two requests, another one does.
        eventually(lambda: ask(app).document == 1, "another process serves")


def test_processes_that_wait_go_with_their_node(make_node):
    node = make_node()
    app = node.deploy("reused-goes", {"f": function("import os\ndef handler(event, context):\n    return os.getpid()", reuse=100)})
    assert app.call("f", b"{}").status == 200
    from test_processes import children

    spawners = children(node.process.pid)
    zygotes = [zygote for spawner in spawners for zygote in children(spawner)]
    processes = [process for zygote in zygotes for process in children(zygote)]
    assert processes
    node.stop()
    eventually(lambda: not [one for one in processes if os.path.exists(f"/proc/{one}")], "no process of a function is left")


HEAP = """
import resource

def handler(event, context):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [bytearray(256 << 10) for _ in range(4 * event["mebibytes"])]
    del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""


def test_what_a_request_frees_is_the_next_ones_and_goes_once_there_is_none(node):
    others = set(descendants(node.process.pid))
    app = node.deploy("heap", {"f": function(HEAP, reuse=10_000)})
    bytes_freed = 16 << 20

    def has_kept():
        ask(app, mebibytes=16)
        process = max(set(descendants(node.process.pid)) - others, key=peak)
        return peak(process) > bytes_freed and below_peak(process) < bytes_freed // 4

    def has_given_back():
        return any(below_peak(one) > bytes_freed * 3 // 4 for one in set(descendants(node.process.pid)) - others)

    # A second may pass between a request and a look at it.
    eventually(has_kept, "what a request has freed is there for the next one")
    eventually(has_given_back, "an idle process gives back what is free")
    eventually(has_kept, "it takes it anew")


def test_a_process_of_one_request_keeps_little_that_it_has_freed(node):
    """What its heap keeps would be memory of those that wait, and there is but the rest of a request that would use it: 12.5 MiB, unless it frees larger blocks."""
    code = HEAP + "\ndef rounds(event, context):\n    return [handler(event, context) for _ in range(3)]\n"
    app = node.deploy("fresh-heap", {"f": function(code, handler="app.rounds", memory="256MiB")})
    for mebibytes in (16, 128):
        _, *later = ask(app, mebibytes=mebibytes).document
        assert all(faults >= ((mebibytes - 4) << 20) // os.sysconf("SC_PAGE_SIZE") for faults in later), later


def peak(process):
    """Bytes that a process has had in memory."""
    return sizes(process)[0]


def below_peak(process):
    """Bytes that a process has had in memory and has no more."""
    most, now = sizes(process)
    return most - now


def sizes(process):
    """Bytes that a process has had in memory, and has now."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    fields = dict(line.split(":", 1) for line in lines)
    return [int(fields.get(name, "0 kB").split()[0]) << 10 for name in ("VmHWM", "VmRSS")]
