"""Functions in Python that use S3 by boto3: what they do is done by the backend, and they hold no key."""

import contextlib
import hashlib
import http.client
import json
import os
import signal
import threading
import urllib.parse
from pathlib import Path

import pytest
from conftest import node_with
from harness import eventually
from objects import SECRET, S3Server, granted
from test_processes import children
from test_python import function


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("s3")).start()
    server.client().create_bucket(Bucket="pond")
    server.client().create_bucket(Bucket="sea")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pond(s3, tmp_path_factory):
    """A node with S3."""
    with node_with(s3, tmp_path_factory.mktemp("pond")) as node:
        yield node


def objects(code, *grants, **settings):
    return function(code, grants={"s3": list(grants) or [granted("pond")]}, timeout="20s", **settings)


COPY = """
import boto3
s3 = boto3.client("s3")

def handler(event, context):
    body = s3.get_object(Bucket="pond", Key=event["from"])["Body"].read()
    s3.put_object(Bucket="pond", Key=event["to"], Body=body.upper(), ContentType="text/plain", Metadata={"by": "mill"})
    return {"bytes": len(body)}
"""


def test_a_handler_reads_and_writes_objects(pond, s3):
    s3.client().put_object(Bucket="pond", Key="in.txt", Body=b"water")
    app = pond.deploy("objects", {"copy": objects(COPY)})
    assert app.call("copy", b'{"from": "in.txt", "to": "out.txt"}').document == {"bytes": 5}
    there = s3.client().get_object(Bucket="pond", Key="out.txt")
    assert (there["Body"].read(), there["ContentType"], there["Metadata"]) == (b"WATER", "text/plain", {"by": "mill"})


IMPORTING = """
import boto3
s3 = boto3.client("s3")
model = s3.get_object(Bucket="pond", Key="in.txt")["Body"].read().decode()
unread = s3.get_object(Bucket="pond", Key="in.txt")["Body"]

def handler(event, context):
    late = unread.read().decode()
    return [model, late, s3.get_object(Bucket="pond", Key="in.txt")["Body"].read().decode()]
"""


def test_a_module_reads_objects_when_it_is_imported(pond, s3):
    s3.client().put_object(Bucket="pond", Key="in.txt", Body=b"water")
    app = pond.deploy("importing", {"f": objects(IMPORTING)})
    for _ in range(3):
        assert app.call("f", b"{}").document == ["water", "water", "water"]


def test_large_objects_go_through_whole(pond, s3):
    code = """
import boto3, hashlib, os
def handler(event, context):
    s3 = boto3.client("s3")
    data = os.urandom(1 << 16) * (event["bytes"] >> 16) + b"x" * (event["bytes"] & 0xffff)
    s3.put_object(Bucket="pond", Key="large", Body=data)
    back = s3.get_object(Bucket="pond", Key="large")["Body"]
    digest, count = hashlib.sha256(), 0
    for piece in iter(lambda: back.read(300_001), b""):
        digest.update(piece)
        count += len(piece)
    return [count, digest.hexdigest() == hashlib.sha256(data).hexdigest()]
"""
    app = pond.deploy("large", {"f": objects(code, memory="512MiB")})
    for size in (0, 1, 1 << 20, (1 << 20) + 1, 50_000_001):
        assert app.call("f", b'{"bytes": %d}' % size).document == [size, True]


def test_what_was_not_granted_is_denied(pond, s3):
    code = """
import boto3, botocore
def handler(event, context):
    s3 = boto3.client("s3")
    try:
        getattr(s3, event["do"])(**event["with"])
    except botocore.exceptions.ClientError as error:
        return [error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]]
    return "done"
"""
    app = pond.deploy("denied", {"f": objects(code, granted("pond", "get", "list", prefix="mine/"))})
    s3.client().put_object(Bucket="pond", Key="mine/a", Body=b"x")
    s3.client().put_object(Bucket="pond", Key="theirs", Body=b"x")
    s3.client().put_object(Bucket="sea", Key="mine/a", Body=b"x")

    def ask(do, **arguments):
        return app.call("f", json.dumps({"do": do, "with": arguments}).encode()).document

    denied = ["AccessDenied", 403]
    assert ask("get_object", Bucket="pond", Key="mine/a") == "done"
    assert ask("list_objects_v2", Bucket="pond", Prefix="mine/") == "done"
    assert ask("get_object", Bucket="pond", Key="theirs") == denied
    assert ask("get_object", Bucket="pond", Key="mine/../theirs") in (denied, ["NoSuchKey", 404], ["400", 400])
    assert ask("get_object", Bucket="sea", Key="mine/a") == denied
    assert ask("list_objects_v2", Bucket="pond") == denied
    assert ask("put_object", Bucket="pond", Key="mine/b", Body="x") == denied
    assert ask("delete_object", Bucket="pond", Key="mine/a") == denied
    assert ask("copy_object", Bucket="pond", Key="mine/c", CopySource="sea/mine/a") == denied
    assert ask("delete_bucket", Bucket="pond") == denied
    assert "denied.f" in pond.log.read_text(), "who was denied is in the node's log"


def test_a_function_without_grants_has_no_objects(pond):
    code = """
import boto3
def handler(event, context):
    boto3.client("s3").get_object(Bucket="pond", Key="in.txt")
"""
    app = pond.deploy("none", {"f": function(code)})
    app.call("f", b"{}").problem(502, "function-raised")


def test_grants_need_an_s3(node):
    grants = {"s3": [granted("pond")]}
    for function in (objects(COPY), ("object-component", {"grants": grants})):
        answer = node.try_deploy("objects", {"f": function})
        assert "s3" in answer.problem(422, "grants-unavailable")["detail"]


SCANNED = """
import boto3, time
s3 = boto3.client("s3")

def handler(event, context):
    body = s3.get_object(Bucket="pond", Key="in.txt")["Body"].read()
    s3.put_object(Bucket="pond", Key="scan/here", Body=body)
    s3.get_waiter("object_exists").wait(Bucket="pond", Key="scan/go", WaiterConfig={"Delay": 0.05, "MaxAttempts": 1000})
    return len(body)
"""


def descendants(process):
    for child in children(process):
        yield child
        yield from descendants(child)


def holds(process, needle):
    """Where in a process's memory, environment or arguments this is."""
    found = [name for name in ("environ", "cmdline") if needle in Path(f"/proc/{process}/{name}").read_bytes()]
    with open(f"/proc/{process}/mem", "rb", 0) as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            begin, end = (int(number, 16) for number in place.split("-"))
            while rights[0] == "r" and begin < end:
                try:
                    memory.seek(begin)
                    piece = memory.read(min(end - begin, 1 << 22))
                except (OSError, OverflowError):
                    break
                if needle in piece:
                    found.append(line)
                begin += max(len(piece) - len(needle), 1) if len(piece) == 1 << 22 else end - begin
    return found


def is_backend(process):
    return b"serve-backend" in Path(f"/proc/{process}/cmdline").read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may look into other processes' memory")
def test_the_key_is_in_the_backend_alone(pond, s3):
    s3.client().put_object(Bucket="pond", Key="in.txt", Body=b"water")
    app = pond.deploy("scanned", {"f": objects(SCANNED)})
    s3.client().delete_object(Bucket="pond", Key="scan/go")
    answers = []
    request = threading.Thread(target=lambda: answers.append(app.call("f", b"{}").document))
    request.start()
    s3.client().get_waiter("object_exists").wait(Bucket="pond", Key="scan/here", WaiterConfig={"Delay": 0.05, "MaxAttempts": 1000})
    processes = list(descendants(pond.process.pid))
    backend = [process for process in processes if is_backend(process)]
    others = [process for process in processes if process not in backend]
    assert len(backend) == 1 and len(others) >= 3
    assert holds(backend[0], SECRET.encode()), "what is looked for would be found"
    scanned = 0
    for process in others:
        # Those of requests before may end meanwhile.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            assert holds(process, SECRET.encode()) == [], process
            # What the guests see, not what the spawner does.
            for folder in ("var/task", "opt/millpond", "tmp"):
                for path in Path(f"/proc/{process}/root", folder).rglob("*") if process != others[0] else ():
                    assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path
            scanned += 1
    assert scanned >= 3
    s3.client().put_object(Bucket="pond", Key="scan/go", Body=b"")
    request.join()
    assert answers == [5]


def test_a_backend_that_is_killed_fails_nobody(pond, s3):
    s3.client().put_object(Bucket="pond", Key="in.txt", Body=b"water")
    app = pond.deploy("killed", {"copy": objects(COPY)})

    def ask(number):
        answer = app.call("copy", b'{"from": "in.txt", "to": "out-%d"}' % number)
        return None if answer.status == 200 else answer.body

    assert failures_while_the_backend_is_killed(pond, ask) == []


def failures_while_the_backend_is_killed(node, ask):
    """What three threads are told that ask all the time, while the backend is killed three times: `ask(number of the thread)` gives nothing if all is well."""
    failures, done, stop = [], [0], threading.Event()
    starts = node.metrics()["millpond_backend_starts_total"]

    def load(number):
        while not stop.is_set():
            failure = ask(number)
            if failure is not None:
                failures.append(failure)
            done[0] += 1

    threads = [threading.Thread(target=load, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            before = done[0]
            eventually(lambda before=before: done[0] >= before + 20, "requests are served")
            kill_backend(node)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert ask(0) is None
    assert node.metrics()["millpond_backend_starts_total"] >= starts + 3
    return failures


READING = """
import boto3, hashlib
s3 = boto3.client("s3")

def handler(event, context):
    body = s3.get_object(Bucket="pond", Key="read", **event["more"])["Body"]
    if event["how"] == "read":
        data = body.read()
    elif event["how"] == "chunks":
        data = b"".join(body.iter_chunks(300_001))
    else:
        data, buffer = b"", bytearray(300_001)
        while count := body.readinto(buffer):
            data += buffer[:count]
    return hashlib.sha256(data).hexdigest()
"""


def test_a_backend_that_is_killed_breaks_off_no_object(pond, s3):
    data = os.urandom(12_000_001)
    s3.client().put_object(Bucket="pond", Key="read", Body=data)
    app = pond.deploy("reading", {"f": objects(READING, reuse=1000)})
    asked = [
        ({"how": how, "more": more}, hashlib.sha256(data[part]).hexdigest())
        for how in ("read", "chunks", "readinto")
        for more, part in (({}, slice(None)), ({"Range": "bytes=1000-9000000"}, slice(1000, 9_000_001)))
    ]

    def ask(number):
        for event, expected in asked[2 * number : 2 * number + 2]:
            answer = app.call("f", json.dumps(event).encode())
            if (answer.status, answer.body) != (200, json.dumps(expected).encode()):
                return event, answer.status, answer.body
        return None

    for _ in range(3):
        assert failures_while_the_backend_is_killed(pond, ask) == []


def kill_backend(node):
    """The processes that were killed: one, unless the next has not been started yet."""
    killed = [process for process in children(node.process.pid) if is_backend(process)]
    for process in killed:
        os.kill(process, signal.SIGKILL)
    return killed


KEEPING = """
import boto3, os, stat
s3 = boto3.client("s3")
kept = []

def handler(event, context):
    body = s3.get_object(Bucket="pond", Key="in.txt")["Body"]
    unread = s3.get_object(Bucket="pond", Key="in.txt")["Body"]
    before, kept[:] = [one.read().decode() for one in kept], [unread] if event.get("leave") else []
    return {"text": body.read().decode(), "before": before, "sockets": sockets()}

def sockets():
    found = set()
    for descriptor in range(64):
        try:
            about = os.fstat(descriptor)
        except OSError:
            continue
        if stat.S_ISSOCK(about.st_mode):
            found.add(about.st_ino)
    return sorted(found)
"""


def test_a_process_that_stays_keeps_its_link_unless_a_request_is_traced(pond, s3):
    s3.client().put_object(Bucket="pond", Key="in.txt", Body=b"water")
    app = pond.deploy("keeping", {"f": objects(KEEPING, reuse=100)})

    def ask(trace=None, leave=False):
        headers = {"traceparent": f"00-{trace * 32}-{'b' * 16}-01"} if trace else None
        said = app.call("f", json.dumps({"leave": leave}).encode(), headers=headers).document
        assert said["text"] == "water" and said["sockets"], said
        return tuple(said["sockets"]), said["before"]

    first, _ = ask(leave=True)
    assert ask() == (first, ["water"]), "what a request left unread is there for the next one"
    assert ask() == (first, [])
    traced, _ = ask(trace="1")
    again, _ = ask(trace="2")
    untraced, _ = ask()
    assert len({first, traced, again, untraced}) == 4
    assert ask()[0] == untraced

    kill_backend(pond)
    anew, _ = ask()
    assert anew != untraced and ask()[0] == anew


def component(*grants, **settings):
    return ("object-component", {"grants": {"s3": list(grants)}, "timeout": "20s", **settings})


FORM = """
import boto3
from botocore.exceptions import ClientError
s3 = boto3.client("s3")

def handler(event, context):
    try:
        return s3.generate_presigned_post("pond", event["key"], Fields=event.get("fields"), Conditions=event.get("conditions"))
    except ClientError as error:
        return error.response["Error"]["Code"]
"""


def test_a_form_is_signed_for_what_was_granted(pond, s3):
    app = pond.deploy("forms", {"f": objects(FORM, granted("pond", "put", prefix="in/")), "all": objects(FORM, granted("pond", "put"))})

    def ask(key, conditions=(), function="f", **fields):
        event = {"key": key, "conditions": list(conditions), "fields": fields}
        return app.call(function, json.dumps(event).encode()).document

    def post(form, body):
        parts = [f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode() for name, value in form["fields"].items()]
        parts += [b'--x\r\nContent-Disposition: form-data; name="file"; filename="f.txt"\r\n\r\n', body, b"\r\n--x--\r\n"]
        target = urllib.parse.urlsplit(form["url"])
        connection = http.client.HTTPConnection(target.netloc)
        connection.request("POST", target.path, b"".join(parts), {"Content-Type": "multipart/form-data; boundary=x"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body

    form = ask("in/a b", [{"Content-Type": "text/x"}, ["content-length-range", 1, 5]], **{"Content-Type": "text/x"})
    assert post(form, b"water") == (204, b"")
    there = s3.client().get_object(Bucket="pond", Key="in/a b")
    assert (there["Body"].read(), there["ContentType"]) == (b"water", "text/x")
    assert post(form, b"too much of it")[0] == 400
    assert post(form | {"fields": form["fields"] | {"key": "theirs"}}, b"water")[0] == 403
    for refused in (ask("theirs"), ask("in/../theirs"), ask("in/${filename}"), ask("in/a", [{"acl": "public-read"}])):
        assert refused == "AccessDenied"
    completed = ask("in/${filename}", function="all")
    assert post(completed, b"named")[0] == 204
    # Not every server completes the key.
    [other] = {one["Key"] for one in s3.client().list_objects_v2(Bucket="pond", Prefix="in/")["Contents"]} - {"in/a b"}
    assert other in ("in/f.txt", "in/${filename}")


def test_a_component_reads_and_writes_objects(pond, s3):
    """Wasm has S3's REST interface, less what the node knows."""
    f = pond.deploy("wasm-objects", {"f": component(granted("pond"))}).call
    data = os.urandom(1_000_003)
    put = f("f", data, method="PUT", rest="/pond/wasm/a", headers={"x-amz-meta-by": "mill"})
    assert put.status == 200, put.body
    there = s3.client().get_object(Bucket="pond", Key="wasm/a")
    assert (there["Body"].read() == data, there["Metadata"]) == (True, {"by": "mill"})
    got = f("f", method="GET", rest="/pond/wasm/a")
    assert (got.status, got.body == data, got.headers["x-amz-meta-by"]) == (200, True, "mill")
    part = f("f", method="GET", rest="/pond/wasm/a", headers={"range": "bytes=10-19"})
    assert (part.status, part.body) == (206, data[10:20])
    listed = f("f", method="GET", rest="/pond?list-type=2&prefix=wasm/")
    assert (listed.status, b"<Key>wasm/a</Key>" in listed.body) == (200, True)
    head = f("f", method="HEAD", rest="/pond/wasm/a")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(data)))
    assert f("f", method="DELETE", rest="/pond/wasm/a").status == 204
    gone = f("f", method="GET", rest="/pond/wasm/a")
    assert (gone.status, b"NoSuchKey" in gone.body) == (404, True)


def test_a_components_large_objects_go_through_whole(pond, s3):
    sized = {"memory": "64MiB", "request_body": "64MiB", "response_body": "64MiB"}
    f = pond.deploy("wasm-large", {"f": component(granted("pond"), **sized)}).call
    data = os.urandom(1 << 20) * 50 + b"x"
    put = f("f", data, method="PUT", rest="/pond/wasm-large", headers={"x-length": str(len(data))})
    assert put.status == 200, put.body
    assert s3.client().get_object(Bucket="pond", Key="wasm-large")["Body"].read() == data
    assert f("f", method="GET", rest="/pond/wasm-large").body == data


def test_a_component_has_what_was_granted_and_names_no_host(pond, s3):
    s3.client().put_object(Bucket="pond", Key="mine/a", Body=b"x")
    s3.client().put_object(Bucket="pond", Key="theirs", Body=b"x")
    functions = {
        "f": component(granted("pond", "get", prefix="mine/")),
        "none": ("object-component", {}),
        "other": ("object-component", {"grants": {"http": [{"host": "example.org"}]}}),
    }
    app = pond.deploy("wasm-denied", functions)

    def ask(path, method="GET", function="f", **headers):
        answer = app.call(function, method=method, rest=f"/{path}", headers=headers)
        return answer.status, answer.body

    assert ask("pond/mine/a") == (200, b"x")
    for path, method in (("pond/theirs", "GET"), ("sea/mine/a", "GET"), ("pond/mine/b", "PUT"), ("pond?list-type=2", "GET")):
        status, body = ask(path, method)
        assert (status, b"AccessDenied" in body) == (403, True), (path, method, body)
    assert ask("pond/mine/a", **{"x-address": "1"}) == (502, b"ErrorCode::HttpRequestUriInvalid")
    for function in ("none", "other"):
        assert ask("pond/mine/a", function=function) == (502, b"ErrorCode::HttpRequestDenied")
    noted = pond.control("GET", f"/v1/functions/{app.name}.none/logs").body
    assert b"the manifest grants no objects in S3" in noted


def test_a_backend_that_is_killed_fails_no_component(pond, s3):
    s3.client().put_object(Bucket="pond", Key="in.txt", Body=b"water")
    data = os.urandom(9_000_001)
    s3.client().put_object(Bucket="pond", Key="read", Body=data)
    app = pond.deploy("wasm-killed", {"f": component(granted("pond"))})

    def ask(number):
        key, expected = ("read", data) if number == 0 else ("in.txt", b"water")
        answer = app.call("f", method="GET", rest=f"/pond/{key}")
        return None if (answer.status, answer.body == expected) == (200, True) else (answer.status, answer.body[:1000])

    assert failures_while_the_backend_is_killed(pond, ask) == []
