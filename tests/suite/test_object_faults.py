"""S3 that does wrong, seen by functions: nothing that was acknowledged is lost, nothing wrong is taken for right, nothing waits for ever."""

import contextlib
import hashlib
import itertools
import json
import os
import random
import signal
import threading

import lying
import pytest
from harness import LONG, PATIENCE, eventually
from lying import LyingServer
from objects import S3Server, granted
from test_objects import is_backend, kill_backend, objects
from test_processes import children

HANDLER = """
import boto3, hashlib, io
from boto3.s3.transfer import TransferConfig
from botocore.config import Config

s3 = boto3.client("s3")
of = {"Bucket": "pond", "Key": "k"}


def parts(data):
    small = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=2)
    s3.upload_fileobj(io.BytesIO(data), "pond", "k", Config=small)


def download():
    to = io.BytesIO()
    s3.download_fileobj("pond", "k", to)
    return to.getvalue()


def exact(answer):
    return answer["Body"].read(answer["ContentLength"])


impatient = boto3.client("s3", config=Config(read_timeout=1, retries={"max_attempts": 1}))


DO = {
    "get impatiently": lambda data: impatient.get_object(**of)["Body"].read(),
    "put impatiently": lambda data: impatient.put_object(Body=data, **of) and None,
    "get": lambda data: s3.get_object(**of)["Body"].read(),
    "get exactly": lambda data: exact(s3.get_object(**of)),
    "get in pieces": lambda data: b"".join(s3.get_object(**of)["Body"].iter_chunks(1000)),
    "download": lambda data: download(),
    "put": lambda data: s3.put_object(Body=data, **of) and None,
    "put a file": lambda data: s3.put_object(Body=io.BytesIO(data), **of) and None,
    "upload in parts": parts,
    "head": lambda data: s3.head_object(**of)["ContentLength"],
    "attempts": lambda data: s3.head_object(**of)["ResponseMetadata"]["RetryAttempts"],
}


def begun(data, to="k"):
    upload = dict(Bucket="pond", Key=to)
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    etag = s3.upload_part(Body=data, PartNumber=1, **upload)["ETag"]
    return upload, {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": etag}]}}


def completed(data, **condition):
    upload, parts = begun(data)
    return s3.complete_multipart_upload(**upload, **parts, **condition)["ETag"]


DO |= {
    "begin": lambda data: s3.create_multipart_upload(**of)["UploadId"],
    "complete": completed,
    "complete if there is none": lambda data: completed(data, IfNoneMatch="*"),
    "abort": lambda data: s3.abort_multipart_upload(**begun(data)[0])["ResponseMetadata"]["HTTPStatusCode"],
    "delete": lambda data: s3.delete_object(**of) and None,
    "delete many": lambda data: s3.delete_objects(Bucket="pond", Delete={"Objects": [{"Key": "k"}]})["Deleted"],
    "put if there is none": lambda data: s3.put_object(Bucket="pond", Key="new", Body=data, IfNoneMatch="*") and None,
    "copy": lambda data: s3.copy_object(Bucket="pond", Key="copy", CopySource="pond/k") and None,
    "sign": lambda data: s3.generate_presigned_url("get_object", Params=of)[:4],
}


def handler(event, context):
    try:
        got = DO[event["do"]](bytes(range(256)) * (event.get("bytes", 0) // 256))
    except Exception as error:
        answer = getattr(error, "response", None) or {}
        said = {"said": str(error)} if event.get("says") else {}
        return said | {"error": type(error).__name__, "retries": answer.get("ResponseMetadata", {}).get("RetryAttempts")}
    return {"got": hashlib.sha256(got).hexdigest() if isinstance(got, bytes) else got}
"""

BODY = bytes(range(256)) * 4000
WHOLE = {"got": hashlib.sha256(BODY).hexdigest()}
READS = ["get", "get exactly", "get in pieces", "download"]


@pytest.fixture(scope="module")
def server():
    server = LyingServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def ask(server, tmp_path_factory):
    """Has the function do something while the server has these faults: what it found, or why it was ended."""
    from conftest import end, running
    from harness import Node

    folder = tmp_path_factory.mktemp("faults")
    keys = folder / "keys"
    keys.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    keys.chmod(0o600)
    node = Node(folder, config=f'[s3]\nendpoint = "{server.endpoint}"\ncredentials_file = "{keys}"\n')
    running.append(node)
    node.start()
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    code, settings = objects(HANDLER, memory="256MiB")
    app = node.deploy("faults", {"f": (code, settings)})
    short = node.deploy("short", {"f": (code, settings | {"timeout": "1s"})})

    def ask(do, *faults, ends=False, **event):
        server.put("k", BODY)
        server.attempts()
        # A transfer asks for the head first.
        server.faults = [None] * (do == "download") + list(faults)
        answer = (short if ends else app).call("f", json.dumps({"do": do} | event).encode())
        server.faults = []
        return answer if ends else answer.document

    ask.node = node
    yield ask
    end(node)


def test_what_comes_slowly_comes_whole(ask):
    for do in READS:
        assert ask(do, lying.drips) == WHOLE, do


def test_what_breaks_off_is_not_taken_for_whole(ask):
    broken = {"ResponseStreamingError", "IncompleteReadError", "BrokenStream"}
    for fault in (lying.truncates, lying.resets_in_its_body):
        for do in READS[:3]:
            assert ask(do, fault).get("error") in broken, (do, fault)
        # Transfers begin again, as boto3's do.
        assert ask("download", fault) == WHOLE


def test_what_follows_an_answer_is_not_taken_for_the_next(ask):
    for _ in range(3):
        for do in READS:
            assert ask(do, lying.goes_on) == WHOLE, do
        assert ask("head", lying.goes_on) == {"got": len(BODY)}
        assert ask("put", lying.goes_on, bytes=1024) == {"got": None}


def test_an_object_that_does_not_have_its_checksum_is_an_error(ask):
    for fault in (lying.damages, lying.damages_the_beginning):
        for do in READS:
            assert ask(do, fault).get("error") == "FlexibleChecksumError", (do, fault)


def test_overload_is_tried_again_and_then_told(ask, server):
    for fault in (lying.says_slow_down, lying.fails_inside):
        for do in READS:
            assert ask(do, fault, fault) == WHOLE, do
        assert ask("attempts", fault, fault) == {"got": 2}
        for do in ("put", "put a file"):
            assert ask(do, fault, fault, bytes=1 << 20) == {"got": None}
            assert server.objects["/pond/k"] == bytes(range(256)) * 4096
        # Three attempts, as boto3's standard mode has them, and each of them is the function's.
        assert ask("put", *[fault] * 3, bytes=1024) == {"error": "ClientError", "retries": 2}
        assert [method for method, _ in server.attempts()] == ["PUT"] * 3


def test_a_connection_that_is_reset_is_tried_again_where_that_does_no_harm(ask, server):
    for fault in (lying.resets_at_once, lying.resets_in_the_body, lying.resets_when_done, lying.resets_in_the_answer, lying.speaks_nonsense):
        for do in READS:
            assert ask(do, fault) == WHOLE, (do, fault)
        for do in ("put", "put a file"):
            assert ask(do, fault, bytes=3 << 20) == {"got": None}, (do, fault)
            assert server.objects["/pond/k"] == bytes(range(256)) * (3 << 12)
    failed = ask("put", *[lying.resets_in_the_body] * 20, bytes=1 << 20)
    assert failed["error"] in ("ConnectionClosedError", "EndpointConnectionError")
    assert server.objects["/pond/k"] == BODY, "what was not acknowledged has not been done"


def test_uploads_in_parts_bear_all_of_it(ask, server):
    data = bytes(range(256)) * (12 << 12)
    for fault in (lying.says_slow_down, lying.fails_inside, lying.resets_in_the_body, lying.drips):
        # The beginning, a part, another, and the end.
        for at in range(5):
            done = ask("upload in parts", *[None] * at, fault, bytes=len(data))
            kept = server.objects["/pond/k"]
            assert (done, kept) == ({"got": None}, data) or ("error" in done and kept == BODY), (done, fault, at, len(kept))


def test_who_never_answers_is_waited_for_until_the_requests_deadline(ask):
    for do, fault in (("get", lying.hangs), ("put a file", lying.hangs), ("put", lying.hangs_when_done), ("get", lying.hangs_in_its_body)):
        ask(do, fault, ends=True, bytes=20 << 20).problem(504, "limit-timeout")
    assert ask("get") == WHOLE, "others are served"


def test_who_never_answers_is_waited_for_as_long_as_the_client_says(ask):
    for do, fault in (("get", lying.hangs), ("put", lying.hangs_when_done)):
        assert ask(f"{do} impatiently", fault, fault, bytes=1 << 20)["error"] == "ReadTimeoutError", do
        assert "error" not in ask(f"{do} impatiently", fault, bytes=1 << 20), "it is tried once more"
    assert ask("get impatiently", lying.hangs_in_its_body)["error"] == "ReadTimeoutError"


def replaced(server):
    """By another, as soon as it was done."""
    server.put("k", b"another's")


# What is done when the backend is killed; the requests before it; what the server sees of it, by method; and what the handler does.
DOUBTFUL = {
    "begin": (0, "POST POST", {"got": "2"}),
    "complete": (2, "POST POST HEAD", {"got": f'"{hashlib.md5(hashlib.md5(b"").digest()).hexdigest()}-1"'}),
    "complete if there is none": (2, "POST", "UnansweredError"),
    "abort": (2, "DELETE DELETE", {"got": 204}),
    "delete many": (0, "POST POST", {"got": [{"Key": "k"}]}),
    "put": (0, "PUT PUT", {"got": None}),
    "put if there is none": (0, "PUT", "UnansweredError"),
    "copy": (0, "PUT PUT", {"got": None}),
    "get": (0, "GET GET", WHOLE),
}


def lost(ask, server, do, before, fault):
    """What comes of this if the backend is killed once the server has done it, and the methods that the server has seen of it."""
    server.uploads.clear()
    server._numbers = itertools.count(1)
    server.objects.pop("/pond/new", None)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(ask(do, *[None] * before, fault, says=True)))
    asking.start()
    assert fault.is_done.wait(PATIENCE), do
    kill_backend(ask.node)
    asking.join()
    return answers[0], [method for method, _ in server.attempts()[before:]]


@pytest.mark.parametrize("do", DOUBTFUL)
def test_what_was_done_when_the_backend_is_killed_is_not_done_twice_unless_that_does_no_harm(ask, server, do):
    before, seen, expected = DOUBTFUL[do]
    answer, methods = lost(ask, server, do, before, lying.HangsWhenDone())
    assert methods == seen.split(), (answer, methods)
    if expected == "UnansweredError":
        assert answer["error"] == expected and "It may have been done or not" in answer["said"]
    else:
        assert answer == expected
    # It was done.
    assert "/pond/new" in server.objects or do != "put if there is none"
    assert not server.uploads or do == "begin"
    assert ask("sign") == {"got": "http"}


def test_an_upload_that_became_another_object_is_not_taken_for_done(ask, server):
    answer, methods = lost(ask, server, "complete", 2, lying.HangsWhenDone(replaced))
    assert methods == ["POST", "POST", "HEAD"] and server.objects["/pond/k"] == b"another's"
    assert answer["error"] == "UnansweredError" and "NoSuchUpload" in answer["said"], answer


UPLOADS = """
import boto3, io
from boto3.s3.transfer import TransferConfig
s3 = boto3.client("s3")
small = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=2)

def handler(event, context):
    data = bytes([event["with"]]) * event["bytes"]
    try:
        s3.upload_fileobj(io.BytesIO(data), "pond", event["key"], Config=small)
    except Exception as error:
        return type(error).__name__
    return "kept"
"""


@contextlib.contextmanager
def at_versitygw(folder):
    """A node and a real S3."""
    from conftest import end, running
    from harness import Node

    s3 = S3Server(folder / "s3").start()
    s3.client().create_bucket(Bucket="pond")
    node = Node(folder, config=s3.configuration(folder))
    running.append(node)
    node.start()
    try:
        if "process" not in node.control("GET", "/v1/node").document["engines"]:
            pytest.skip("the engine process is not here: `millpond doctor` says why")
        yield s3, node
    finally:
        end(node)
        s3.stop()


@contextlib.contextmanager
def load(app, function, events, threads):
    """Requests without a pause, each after the answer to the one before. Gives the list of events with their answers."""
    answers, stop = [], threading.Event()

    def run():
        while not stop.is_set():
            event = next(events)
            answers.append((event, app.call(function, json.dumps(event).encode())))

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in running:
            thread.join()


def uploads():
    for number in range(1_000_000):
        # In one piece, and in parts.
        yield {"key": f"k{number}", "with": number % 251, "bytes": (6 << 20) + number if number % 3 == 0 else 100_000 + number}


class Locked:
    """An iterator for many threads."""

    def __init__(self, of):
        self._of, self._lock = of, threading.Lock()

    def __next__(self):
        with self._lock:
            return next(self._of)


def test_what_a_killed_s3_has_acknowledged_is_there_when_it_is_back(tmp_path):
    with at_versitygw(tmp_path) as (s3, node):
        app = node.deploy("uploads", {"f": objects(UPLOADS, memory="256MiB")})
        with load(app, "f", Locked(uploads()), 3) as answers:
            for _ in range(3):
                before = len(answers)
                eventually(lambda: len(answers) >= before + 6, "uploads end")  # noqa: B023
                s3.stop(signal.SIGKILL)
                before = len(answers)
                eventually(lambda: len(answers) > before, "calls end though nobody is there")  # noqa: B023
                s3.start()
        kept = 0
        for event, answer in answers:
            said = answer.document
            if said == "kept":
                data = s3.client().get_object(Bucket="pond", Key=event["key"])["Body"].read()
                assert data == bytes([event["with"]]) * event["bytes"], event
                kept += 1
            else:
                assert said in ("EndpointConnectionError", "ConnectionClosedError", "S3UploadFailedError", "ClientError"), said
        assert kept >= 15


COPY = """
import boto3
s3 = boto3.client("s3")

def handler(event, context):
    body = s3.get_object(Bucket="pond", Key="in")["Body"].read()
    s3.put_object(Bucket="pond", Key=event["to"], Body=body)
    return len(body)
"""


IDEMPOTENT = """
import boto3, hashlib
s3 = boto3.client("s3")
there = lambda key: s3.get_object(Bucket="pond", Key=key)["Body"].read()

def copy(key, data):
    s3.put_object(Bucket="pond", Key=key + "/copy", Body=there("in"))
    return there(key + "/copy") == b"x" * 300_000

def in_parts(key, data):
    of, pieces = {"Bucket": "pond", "Key": key + "/parts"}, [data[:5 << 20], data[5 << 20:]]
    of["UploadId"] = s3.create_multipart_upload(ContentType="a/b", **of)["UploadId"]
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(PartNumber=number, Body=piece, **of)["ETag"]}
        for number, piece in enumerate(pieces, 1) if piece
    ]
    etag = s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **of)["ETag"]
    sums = b"".join(hashlib.md5(piece).digest() for piece in pieces if piece)
    whole = s3.get_object(Bucket="pond", Key=key + "/parts")
    about = (etag, whole["ETag"], whole["ContentType"])
    return about == (*[f'"{hashlib.md5(sums).hexdigest()}-{len(parts)}"'] * 2, "a/b") and whole["Body"].read() == data

def within(key, data):
    s3.put_object(Bucket="pond", Key=key + "/one", Body=data)
    s3.copy_object(Bucket="pond", Key=key + "/two", CopySource=f"pond/{key}/one")
    return there(key + "/two") == data

def delete(key, data):
    keys = [f"{key}/{number}" for number in range(5)]
    for one in keys:
        s3.put_object(Bucket="pond", Key=one, Body=one)
    gone = s3.delete_objects(Bucket="pond", Delete={"Objects": [{"Key": one} for one in keys[1:]]})
    left = s3.list_objects_v2(Bucket="pond", Prefix=key + "/")["Contents"]
    return ([one["Key"] for one in left], {one["Key"] for one in gone["Deleted"]}) == (keys[:1], set(keys[1:])) and "Errors" not in gone

def handler(event, context):
    is_right = globals()[event["do"]](event["key"], bytes([event["number"] % 251]) * event["bytes"])
    left = s3.list_objects_v2(Bucket="pond", Prefix=event["key"] + "/").get("Contents", [])
    s3.delete_objects(Bucket="pond", Delete={"Objects": [{"Key": one["Key"]} for one in left]})
    return is_right
"""


def idempotent():
    """Work of each kind, each on keys of its own."""
    for number in range(1_000_000):
        do = ("copy", "in_parts", "within", "delete")[number % 4]
        # In one part, and in two.
        size = (5 << 20) + number if number % 16 == 1 else 50_000 + number
        yield {"do": do, "number": number, "key": f"load/{number}", "bytes": size}


def killed_under_load(folder, kills, pause):
    """Kills the backend so often while four clients have idempotent work done, and calls `pause` with the answers before each time. No work may
    fail, or find anything that is not so."""
    with at_versitygw(folder) as (s3, node):
        s3.client().put_object(Bucket="pond", Key="in", Body=b"x" * 300_000)
        # A folder that becomes empty is removed by versitygw, be it that it is about to put an object there, which it refuses then (`ExistingObjectIsDirectory`).
        s3.client().put_object(Bucket="pond", Key="load/stays", Body=b"")
        app = node.deploy("killed", {"f": objects(IDEMPOTENT, memory="256MiB")})
        with load(app, "f", Locked(idempotent()), 4) as answers:
            for _ in range(kills):
                pause(answers)
                kill_backend(node)
        wrong = [(event, answer.status, answer.body) for event, answer in answers if (answer.status, answer.body) != (200, b"true")]
        assert wrong == [] and len(answers) > 5 * kills
        assert node.metrics()["millpond_backend_starts_total"] >= kills


@pytest.mark.limit(300)
def test_a_backend_killed_three_times_fails_nobody(tmp_path):
    def answered(answers):
        before = len(answers)
        eventually(lambda: len(answers) >= before + 12, "requests are answered")

    killed_under_load(tmp_path, 3, answered)


@pytest.mark.skipif(not LONG, reason="MILLPOND_TEST_LONG is not set: it takes a minute")
@pytest.mark.limit(300)
def test_a_backend_killed_every_five_seconds_fails_nobody(tmp_path):
    killed_under_load(tmp_path, 12, lambda _answers: threading.Event().wait(5))


def test_processes_that_are_killed_while_they_call_end_their_request_and_no_later_one(tmp_path):
    with at_versitygw(tmp_path) as (s3, node):
        s3.client().put_object(Bucket="pond", Key="in", Body=b"x" * 3_000_000)
        app = node.deploy("killed", {"f": objects(COPY)})
        assert app.call("f", b'{"to": "first"}').document == 3_000_000

        def below(process):
            for child in children(process):
                yield child
                yield from below(child)

        chance = random.Random(7)
        events = Locked({"to": f"out-{number % 20}"} for number in range(1_000_000))
        with load(app, "f", events, 3) as answers:
            for _ in range(12):
                before = len(answers)
                eventually(lambda: len(answers) > before + 2, "requests are answered")  # noqa: B023
                # The spawner, a zygote, an interpreter, or a request's own process.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    processes = [process for process in below(node.process.pid) if not is_backend(process)]
                    if processes:
                        os.kill(chance.choice(processes), signal.SIGKILL)
        wrong = [answer.body for _, answer in answers if answer.status == 200 and answer.document != 3_000_000]
        assert wrong == [], "no wrong success"
        assert app.call("f", b'{"to": "last"}').document == 3_000_000
        assert s3.client().get_object(Bucket="pond", Key="last")["Body"].read() == b"x" * 3_000_000
