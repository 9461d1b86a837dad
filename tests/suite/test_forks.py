"""Processes that a function in Python forks: services are there in each of them, and only the first one answers."""

import hashlib
import json
import os
import re
from pathlib import Path

import pytest
from harness import eventually
from objects import S3Server, granted
from test_lambda import client_of
from test_processes import children
from test_python import function, interpreters

BUCKET = "forks"

CODE = """
import boto3, json, multiprocessing, os, signal, sys
s3 = boto3.client("s3")
kept = {}

def get(key="given"):
    return s3.get_object(Bucket="forks", Key=key)["Body"].read().decode()

def attempt(what, *arguments):
    try:
        return what(*arguments)
    except Exception as error:
        return type(error).__name__

def started(what, *arguments):
    "A process that does this, and where it says what came of it."
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(write, json.dumps(attempt(what, *arguments)).encode())
        os._exit(0)
    os.close(write)
    return process, read

def ended(process, read):
    with open(read) as file:
        said = file.read()
    os.waitpid(process, 0)
    return json.loads(said) if said else None

def forked(what, *arguments):
    return ended(*started(what, *arguments))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("store")).start()
    client = server.client()
    client.create_bucket(Bucket=BUCKET)
    client.put_object(Bucket=BUCKET, Key="given", Body=b"a pond")
    yield server
    server.stop()


@pytest.fixture
def deploy(make_node, store, tmp_path):
    """A function of this code, on a node with S3."""
    node = make_node(config=store.configuration(tmp_path))
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")

    def made(code, **settings):
        settings = {"timeout": "30s", "memory": "256MiB", "grants": {"s3": [granted(BUCKET)]}} | settings
        app = node.deploy("forks", {"f": function(CODE + code, **settings)})
        return lambda **event: app.call("f", json.dumps(event).encode())

    made.node = node
    return made


@pytest.mark.parametrize("reuse", [1, 2])
def test_threads_and_locks_are_put_right_in_forks_that_need_it(deploy, reuse):
    """In those of a function's, which may have threads; the zygote's own have none, and are spared that."""
    call = deploy(
        """
import logging, threading
lock = threading._active_limbo_lock

def looked():
    logging.getLogger().warning("a fork's word")
    return threading._active_limbo_lock is lock, threading.enumerate() == [threading.main_thread()]

def handler(event, context):
    here, over = looked(), threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    there = forked(looked)
    over.set()
    thread.join()
    return here, there, looked()
""",
        reuse=reuse,
    )
    for _ in range(2):
        answer = call()
        assert answer.document == [[True, True], [False, True], [True, True]], answer.body


@pytest.mark.parametrize("is_used_before", [False, True])
def test_forks_and_the_first_process_call_at_once(deploy, is_used_before):
    ask = deploy("""
def work(name):
    for number in range(20):
        text = f"{name} {number} " * 4000
        s3.put_object(Bucket="forks", Key=f"by/{name}", Body=text)
        if get(f"by/{name}") != text:
            return "something else"
    return name

def handler(event, context):
    if event["is_used_before"]:
        get()
    processes = [started(work, name) for name in "abcd"]
    mine = work("first")
    # A fork of a fork, beside the others.
    return [mine, forked(forked, get), *(ended(*process) for process in processes)]
""")
    assert ask(is_used_before=is_used_before).document == ["first", "a pond", "a", "b", "c", "d"]


def test_multiprocessing_calls(deploy):
    ask = deploy("""
def work(connection, number):
    connection.send([number, get()])

def handler(event, context):
    # What Lambda's functions use of it: there are no semaphores.
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe() for _ in range(3)]
    processes = [context.Process(target=work, args=(pipe[1], number)) for number, pipe in enumerate(pipes)]
    for process in processes:
        process.start()
    said = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join()
    return said, [process.exitcode for process in processes]
""")
    assert ask().document == [[[number, "a pond"] for number in range(3)], [0, 0, 0]]


def test_a_body_goes_on_in_a_fork(deploy, store):
    text = b"0123456789" * 400_000
    store.client().put_object(Bucket=BUCKET, Key="long", Body=text)
    ask = deploy("""
import hashlib
def digest(body, begun):
    return hashlib.sha256(begun + body.read()).hexdigest()

def handler(event, context):
    body = s3.get_object(Bucket="forks", Key="long")["Body"]
    begun = body.read(10)
    return [forked(digest, body, begun), digest(body, begun)]
""")
    [fork, first] = ask().document
    assert fork == first or fork in ("ResponseStreamingError", "IncompleteReadError")
    assert first == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("how", ["returns", "raises", "exits", "is killed"])
def test_only_the_first_process_answers(deploy, how):
    ask = deploy("""
def handler(event, context):
    process = os.fork()
    if process == 0:
        print("by the fork")
        if event["how"] == "raises":
            raise ValueError("in the fork")
        if event["how"] == "exits":
            sys.exit(3)
        if event["how"] == "is killed":
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return "the fork"
    _, status = os.waitpid(process, 0)
    return ["the first", os.waitstatus_to_exitcode(status), get()]
""")
    status = {"returns": 0, "raises": 1, "exits": 3, "is killed": -9}[how]
    assert ask(how=how).document == ["the first", status, "a pond"]
    said = " ".join(record["message"] for record in deploy.node.records("forks.f"))
    assert "by the fork" in said and ("ValueError: in the fork" in said) == (how == "raises"), said


def test_only_the_first_process_goes_on_with_a_stream(deploy):
    ask = deploy("""
def handler(event, context):
    yield "one "
    process = os.fork()
    if process:
        os.waitpid(process, 0)
    yield "two "
    yield "three"
""")
    assert ask().text == "one two three"


# The rest of a process that ended after it had asked for a link, and before it heard of one.
ENDS = """
def ends():
    from millpond import backend
    backend.receive = lambda *_: os._exit(0)
    get()
"""


@pytest.mark.parametrize("reuse", [1, 100])
def test_a_process_that_ends_while_it_asks_leaves_nothing_to_others(deploy, reuse):
    ask = deploy(ENDS + """
def handler(event, context):
    before = get() if event["is_used_before"] else None
    # What was asked for there would be taken for the answer here: nobody asks any more, and who has a link keeps it.
    return [before, forked(ends), forked(get), attempt(get)]
""", reuse=reuse)
    for is_used_before in (False, True, False, True):
        [before, ends, fork, first] = ask(is_used_before=is_used_before).document
        assert (ends, fork) == (None, "EndpointConnectionError")
        if is_used_before:
            assert before == first == "a pond"
        else:
            assert first in ("a pond", "EndpointConnectionError")
    assert (ask(is_used_before=True).document)[0] == "a pond"


def test_a_process_that_is_left_of_a_request_takes_nothing_of_the_next(deploy):
    ask = deploy("""
def waits(read, write):
    while os.read(read, 1):
        os.write(write, json.dumps(attempt(get)).encode().ljust(64))

def handler(event, context):
    if not kept:
        (read, ask), (answer, write) = os.pipe(), os.pipe()
        if os.fork() == 0:
            waits(read, write)
            os._exit(0)
        kept.update(ask=ask, answer=answer)
    if event["is_asked"]:
        os.write(kept["ask"], b"x")
        return [event["number"], json.loads(os.read(kept["answer"], 64)), get()]
    if event["is_late"]:
        os.write(kept["ask"], b"x")
    return [event["number"]]
""", reuse=1000)
    # It has made no link while it might.
    assert ask(number=0, is_asked=False, is_late=False).document == [0]
    assert ask(number=1, is_asked=True, is_late=False).document == [1, "EndpointConnectionError", "a pond"]
    # Now it tries while requests end and others come.
    for number in range(2, 60):
        assert ask(number=number, is_asked=False, is_late=True).document == [number]


def test_what_an_import_forks_calls_as_well(deploy):
    ask = deploy("""
imported = [forked(get), get(), forked(get)]
if (late := os.fork()) == 0:
    # This one comes to the end of the import, too.
    kept["late"] = True

def handler(event, context):
    return [imported, "late" in kept, get(), forked(get)]
""")
    for _ in range(3):
        assert ask().document == [["a pond"] * 3, False, "a pond", "a pond"]


def test_an_import_whose_fork_ended_while_it_asked_is_told(deploy):
    ask = deploy(ENDS + """
forked(ends)
def handler(event, context):
    return 1
""")
    assert "its interpreter has ended" in ask().problem(502, "function-trap")["detail"]


def test_functions_are_invoked_from_forks(deploy):
    ask = deploy("""
invoker = boto3.client("lambda")
def invoked(number):
    return json.load(invoker.invoke(FunctionName="forks.f", Payload=json.dumps({"number": number}))["Payload"])

def handler(event, context):
    if "number" in event:
        return event["number"]
    processes = [started(invoked, number) for number in range(4)]
    return [ended(*process) for process in processes]
""", grants={"s3": [granted(BUCKET)], "lambda": {"functions": ["forks.f"]}}, concurrency=8)
    assert ask().document == [0, 1, 2, 3]
    client = client_of(deploy.node)
    assert json.load(client.invoke(FunctionName="forks.f", Payload=b'{"number": 7}')["Payload"]) == 7


def groups_of(process):
    """The control group that counts its memory, and that which counts its processes."""
    try:
        said = Path(f"/proc/{process}/cgroup").read_text()
    except OSError:
        return None
    return re.findall(r"^\d+:(?:\S*,)?(?:memory|pids|)(?:,\S*)?:.*(/millpond-\S+)$", said, re.MULTILINE)


def test_a_process_waits_for_its_request_in_its_own_group(deploy):
    call = deploy("""
def handler(event, context):
    return (b"x" * event["bytes"]).count(b"x")
""")
    assert call(bytes=1).document == 1
    [interpreter] = interpreters(deploy.node)
    if not groups_of(interpreter):
        pytest.skip("this host lets the node make no control groups")

    def waiting():
        """Forks are children of the interpreter's zygote, as it is."""
        zygote = int(re.search(r"^PPid:\s*(\d+)", Path(f"/proc/{interpreter}/status").read_text(), re.MULTILINE)[1])
        forks = [process for process in children(zygote) if process != interpreter and b"millpond.zygote" in cmdline(process)]
        return forks if len(forks) == 1 and groups_of(forks[0]) else None

    seen = set()
    for _ in range(5):
        [fork] = eventually(waiting, "one waits")
        eventually(lambda fork=fork: set(groups_of(fork)).isdisjoint(groups_of(interpreter)), "it is in its own group")
        seen.add(fork)
        # That one gets it, and is limited there.
        assert call(bytes=1 << 20).document == 1 << 20
        eventually(lambda fork=fork: not os.path.exists(f"/proc/{fork}"), "it has ended with its request")
    assert len(seen) == 5
    call(bytes=400 << 20).problem(502, "function-out-of-memory")
    assert call(bytes=1).document == 1


def cmdline(process):
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
