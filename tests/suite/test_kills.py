"""`kill -9` at every step of what functions do with S3: of the backend, of each process behind a sandbox, and of the S3 server itself.

What a step is, `steps` says. An operation is done again and again, and a victim killed one step later each time, until the operation is over
before. Whenever that is: what was acknowledged is there, whole; what was not is there whole or not at all; the answer comes before the
request's deadline, and says what is so; the next request is served; and nothing is left behind. What a handler reads or gives in pieces it
marks by a request for another object, for the proxy sees nothing of what is said between sandbox and backend.

`make test` has each victim killed at every seventh step, at others for each operation; MILLPOND_TEST_LONG at all.
"""

import contextlib
import ctypes
import hashlib
import io
import itertools
import json
import os
import signal
from pathlib import Path

import pytest
from harness import LONG, eventually
from objects import S3Server
from steps import Steps
from test_objects import is_backend, objects
from test_processes import children, runs
from test_python import namespaces

STRIDE = 1 if LONG else 7

HANDLER = """
import boto3, hashlib, io
from boto3.s3.transfer import TransferConfig

s3 = boto3.client("s3")


def digest(data):
    return hashlib.sha256(data).hexdigest()


def mark(key):
    # The proxy sees it: what is read or given is at this place.
    s3.head_object(Bucket="pond", Key=key + ".mark")


def get(key, data):
    return digest(s3.get_object(Bucket="pond", Key=key)["Body"].read())


def get_in_pieces(key, data):
    mark(key)
    body, got = s3.get_object(Bucket="pond", Key=key)["Body"], b""
    mark(key)
    while piece := body.read(1_000_000):
        got += piece
        mark(key)
    return digest(got)


class Marked(io.BytesIO):
    def read(self, size=-1):
        mark(self.key)
        return super().read(size)


def put(key, data):
    s3.put_object(Bucket="pond", Key=key, Body=data)


def put_in_pieces(key, data):
    body = Marked(data)
    body.key = key
    s3.put_object(Bucket="pond", Key=key, Body=body)


def upload(key, data):
    one_by_one = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, use_threads=False)
    s3.upload_fileobj(io.BytesIO(data), "pond", key, Config=one_by_one)


def download(key, data):
    to = io.BytesIO()
    one_by_one = TransferConfig(multipart_threshold=2 << 20, multipart_chunksize=2 << 20, use_threads=False)
    s3.download_fileobj("pond", key, to, Config=one_by_one)
    return digest(to.getvalue())


def complete(key, data):
    upload = dict(Bucket="pond", Key=key)
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    etag = s3.upload_part(Body=data, PartNumber=1, **upload)["ETag"]
    s3.complete_multipart_upload(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload)


def copy(key, data):
    s3.copy_object(Bucket="pond", Key=key + ".copy", CopySource=f"pond/{key}")


def delete(key, data):
    s3.delete_object(Bucket="pond", Key=key)


def delete_many(key, data):
    both = [{"Key": key}, {"Key": key + ".mark"}]
    gone = s3.delete_objects(Bucket="pond", Delete={"Objects": both})
    assert [one["Key"] for one in gone["Deleted"]] == [key, key + ".mark"] and not gone.get("Errors"), gone


def list(key, data):
    found = s3.list_objects_v2(Bucket="pond", Prefix=key)["Contents"]
    return [[one["Key"].removeprefix(key), one["Size"]] for one in found]


def head(key, data):
    return s3.head_object(Bucket="pond", Key=key)["ContentLength"]


def handler(event, context):
    data = bytes(range(251)) * (event["bytes"] // 251 + 1)
    try:
        return {"got": globals()[event["do"]](event["key"], data[:event["bytes"]])}
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"error": kinds, "said": str(error)}
"""

# What a function of boto3 has to expect anyway.
UNDERSTOOD = {"EndpointConnectionError", "ConnectionClosedError", "ResponseStreamingError", "S3UploadFailedError", "ReadTimeoutError"}


def pattern(length):
    return (bytes(range(251)) * (length // 251 + 1))[:length]


def digest(data):
    return hashlib.sha256(data).hexdigest()


OLD, LARGE = b"old" * 1000, pattern(2_500_000)

# What is there, by what follows the key: before, and when it is done; how many bytes are given; and what the handler finds.
OPERATIONS = {
    "get": ({"": OLD}, {"": OLD}, 0, digest(OLD)),
    "get large": ({"": LARGE}, {"": LARGE}, 0, digest(LARGE)),
    "get_in_pieces": ({"": LARGE, ".mark": b""}, {"": LARGE, ".mark": b""}, 0, digest(LARGE)),
    "download": ({"": LARGE}, {"": LARGE}, 0, digest(LARGE)),
    "put": ({"": OLD}, {"": pattern(100)}, 100, None),
    "put large": ({}, {"": LARGE}, len(LARGE), None),
    "put_in_pieces": ({"": OLD, ".mark": b""}, {"": LARGE, ".mark": b""}, len(LARGE), None),
    "upload": ({"": OLD}, {"": pattern((5 << 20) + 1)}, (5 << 20) + 1, None),
    "complete": ({"": OLD}, {"": pattern(1000)}, 1000, None),
    "copy": ({"": LARGE}, {"": LARGE, ".copy": LARGE}, 0, None),
    "delete": ({"": OLD, ".mark": b""}, {".mark": b""}, 0, None),
    "delete_many": ({"": OLD, ".mark": b""}, {}, 0, None),
    "list": ({"": OLD, ".mark": b""}, {"": OLD, ".mark": b""}, 0, [["", len(OLD)], [".mark", 0]]),
    "head": ({"": LARGE}, {"": LARGE}, 0, len(LARGE)),
}


def below(process):
    for child in children(process):
        yield child
        yield from below(child)


def guests(node, depth):
    """Processes behind sandboxes: 0 is the spawner and zygotes, 1 what a zygote has for its functions, 2 what serves requests or waits to."""
    deep, found = namespaces(os.getpid()) + depth, []
    for process in below(node.process.pid):
        # It may have ended by itself.
        with contextlib.suppress(OSError, ValueError):
            if not is_backend(process) and namespaces(process) == deep:
                found.append(process)
    return found


def is_interpreter(process):
    return b"millpond.zygote" in Path(f"/proc/{process}/cmdline").read_bytes()


# Whom to kill. Each ends what is below it.
VICTIMS = {
    "backend": lambda node: [process for process in children(node.process.pid) if is_backend(process)],
    "sandbox": lambda node: guests(node, 2),
    "interpreter": lambda node: [process for process in guests(node, 1) if is_interpreter(process)],
    "first of the namespace": lambda node: [process for process in guests(node, 1) if not is_interpreter(process)],
    "zygote": lambda node: [zygote for spawner in children(node.process.pid) if not is_backend(spawner) for zygote in children(spawner)],
    "spawner": lambda node: [process for process in children(node.process.pid) if not is_backend(process)],
}
# Started again at once, or when there is an answer.
SERVERS = ["server", "server for good"]

PR_SET_CHILD_SUBREAPER = 36

# A backend that ends sooner is not started again at once.
YOUNG = 1.0


def lives_long_enough(node):
    """Whether there is one that was started so long ago."""
    now = float(Path("/proc/uptime").read_text().split()[0])
    for process in VICTIMS["backend"](node):
        with contextlib.suppress(OSError):
            began = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
            return now - began > YOUNG + 0.1
    return False


# Of a zygote's interpreter, of a process that serves, and of one that waits.
GROUPS = 3


class Pond:
    """A node, an S3 server, and the steps between them."""

    def __init__(self, folder):
        from harness import Node

        self.server = S3Server(folder / "s3").start()
        self.s3 = self.server.client()
        self.s3.create_bucket(Bucket="pond")
        self.steps = Steps(self.server.port)
        self.node = Node(folder, config=self.server.configuration(folder, endpoint=self.steps.endpoint))
        self.numbers, self.others = itertools.count(), set(children(os.getpid()))

    def deploy(self):
        self.app = self.node.deploy("kills", {"f": objects(HANDLER, memory="256MiB")})
        self.put("warm", {"": OLD})
        # Whatever happens for the first time, as that something of a function is logged.
        for victim in VICTIMS:
            self.ask_and_kill("get", "warm", 0, victim, 2)
            self.serves()
        self.is_clean()
        self.descriptors, _ = self.held()

    def put(self, key, objects):
        for rest, data in objects.items():
            self.s3.put_object(Bucket="pond", Key=key + rest, Body=data)

    def there(self, key):
        """What is there, by what follows the key: not as anybody was told, but as it is."""
        found = {}
        for one in self.s3.list_objects_v2(Bucket="pond", Prefix=key).get("Contents", []):
            # A server may still be at a deletion that nobody waits for any more.
            with contextlib.suppress(self.s3.exceptions.NoSuchKey):
                found[one["Key"].removeprefix(key)] = self.s3.get_object(Bucket="pond", Key=one["Key"])["Body"].read()
        return found

    def ask(self, do, key, count):
        event = {"do": do.partition(" ")[0], "key": key, "bytes": count}
        return self.app.call("f", json.dumps(event).encode())

    def ask_and_kill(self, do, key, count, victim, at):
        """The answer, and which steps there were."""
        if victim == "backend":
            eventually(lambda: lives_long_enough(self.node), "the backend would be started again at once")
        self.steps.watch(at, lambda: self.kill(victim))
        answer = self.ask(do, key, count)
        return answer, self.steps.passed()

    def serves(self):
        assert self.ask("get", "warm", 0).document == {"got": digest(OLD)}

    def kill(self, victim):
        """And waits until it has ended."""
        if victim in SERVERS:
            self.server.stop(signal.SIGKILL)
            if victim == "server":
                self.server.start()
            return
        killed = VICTIMS[victim](self.node)
        assert killed or victim == "sandbox", "only what serves a request ends with it"
        for process in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

        def have_ended():
            # The first process of a namespace ends when all others of it are buried.
            self.orphans()
            return not any(map(runs, killed))

        eventually(have_ended, f"a killed {victim} has ended")

    def orphans(self):
        """Processes whose parents have gone, and who have not been ended with them. Those that were are buried."""
        known = {*self.others, self.node.process.pid, self.server.process.pid}
        left = [child for child in children(os.getpid()) if child not in known]
        for child in left:
            if not runs(child):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)
        return [child for child in left if runs(child)]

    def held(self):
        """Of the node's descriptors, how many there are; and of how many groups of processes it keeps some."""
        folder, files = f"/proc/{self.node.process.pid}/fd", []
        for number in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                files.append(os.readlink(f"{folder}/{number}"))
        groups = [file for file in files if "/cgroup/" in file]
        return len(files) - len(groups), len({os.path.dirname(group) for group in groups if "/memory/" in group})

    def has_left_nothing(self):
        """Groups are kept for others: as many as a zygote that ends and its successor have at once."""
        descriptors, groups = self.held()
        return descriptors <= self.descriptors and groups <= 2 * GROUPS

    def is_clean(self):
        eventually(lambda: self.steps.under_way == 0, "nothing is asked of S3 for nobody")
        eventually(lambda: not self.orphans(), "no process is left alone")
        # What waits for the next requests is there: a zygote, its namespace's first process, an interpreter, and forks of it.
        eventually(lambda: [len(guests(self.node, depth)) for depth in (0, 1)] == [2, 2] and len(guests(self.node, 2)) <= 2, "no process is left")


@pytest.fixture(scope="module")
def pond(tmp_path_factory):
    from conftest import end, running

    # What loses its parent becomes this process's child: nothing is hidden from those who look for what was left.
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    pond = Pond(tmp_path_factory.mktemp("kills"))
    running.append(pond.node)
    try:
        pond.node.start()
        if "process" not in pond.node.control("GET", "/v1/node").document["engines"]:
            pytest.skip("the engine process is not here: `millpond doctor` says why")
        pond.deploy()
        yield pond
    finally:
        end(pond.node)
        pond.steps.close()
        pond.server.stop()
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def is_acknowledged(do, victim, answer, passed):
    """Whether it says that it was done. What else it says is so, too."""
    found = OPERATIONS[do][3]
    said = answer.document
    if "got" in said:
        assert (answer.status, said) == (200, {"got": found})
        return True
    # Only what cannot be gone on with is given up: an object that its server has broken off.
    if victim in SERVERS:
        assert answer.status == 200 and UNDERSTOOD & set(said["error"]), said
        assert victim != "server" or ("get" in do and "answered: 200" in passed), (said, passed)
    else:
        assert victim != "backend", (answer.body, "what can be done twice fails for nobody")
        answer.problem(502, "function-trap")
    return False


@pytest.mark.limit(900 if LONG else 120)
@pytest.mark.parametrize("do", OPERATIONS)
def test_whoever_is_killed_at_whichever_step(pond, do):
    before, after, count, _ = OPERATIONS[do]
    victims, shift = [*VICTIMS, *SERVERS], list(OPERATIONS).index(do)
    kept, is_over = {}, False
    for at in itertools.count():
        for victim in victims[-(at + shift) % STRIDE :: STRIDE]:
            key = f"{next(pond.numbers):06}"
            pond.put(key, before)
            answer, passed = pond.ask_and_kill(do, key, count, victim, at)
            where = (do, victim, at, passed)
            if pond.server.process.poll() is not None:
                pond.server.start()
            there = pond.there(key)
            if is_acknowledged(do, victim, answer, passed):
                assert there == after, where
                kept[key] = after
            else:
                assert at < len(passed), where
                for rest in {*before, *after, *there}:
                    assert there.get(rest) in (before.get(rest), after.get(rest)), (where, rest)
            pond.serves()
            is_over |= at >= len(passed)
        if is_over:
            break
    assert all(pond.there(key) == objects for key, objects in kept.items()), "what was acknowledged is there"
    pond.is_clean()
    eventually(lambda: pond.has_left_nothing(), "no descriptor is left")
