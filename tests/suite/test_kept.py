"""Bodies that Python has where the backend has put them: `bytes` in the memory that the two share.

That one lies there, its references tell: nobody ever has so many.
"""

import hashlib
import json
import threading

import pytest
from conftest import node_with
from harness import eventually
from objects import S3Server, granted
from test_objects import kill_backend
from test_preimported import THREADED
from test_python import function

SIZES = {"small": 100_000, "large": 1_000_000, "row": 5_000_003, "huge": 20_000_000}

CODE = """
import boto3, gc, hashlib, io, json, os, pickle, sys, threading
s3 = boto3.client("s3")
MANY = 1 << 32

def get(key="large"):
    return s3.get_object(Bucket="kept", Key=key)["Body"]

def lies(data):
    return sys.getrefcount(data) > MANY

def digest(data):
    return hashlib.sha256(data).hexdigest()

def of(data):
    return [lies(data), digest(data)]
"""


def body_of(size):
    return (b"%08d" % size * (size // 8 + 1))[:size]


def digest(key):
    return hashlib.sha256(body_of(SIZES[key])).hexdigest()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    server = S3Server(tmp_path_factory.mktemp("store")).start()
    server.client().create_bucket(Bucket="kept")
    for key, size in SIZES.items():
        server.client().put_object(Bucket="kept", Key=key, Body=body_of(size))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def pond(store, tmp_path_factory):
    with node_with(store, tmp_path_factory.mktemp("kept")) as node:
        yield node


@pytest.fixture
def deploy(pond):
    def made(code, **settings):
        settings = {"timeout": "30s", "memory": "256MiB", "grants": {"s3": [granted("kept")]}} | settings
        app = pond.deploy("kept", {"f": function(CODE + code, **settings)})
        return lambda **event: app.call("f", json.dumps(event).encode())

    return made


@pytest.mark.parametrize("before", ["", THREADED], ids=["forked", "preimported"])
def test_what_is_large_and_read_at_once_lies_where_it_came(deploy, before):
    ask = deploy(before + """
def handler(event, context):
    by_two = get("row")
    return {
        "small": of(get("small").read()), "large": of(get().read()), "row": of(get("row").read()), "huge": of(get("huge").read()),
        "by bound": of(get().read(2_000_000)), "by two": of(by_two.read(1_000_000) + by_two.read()),
        "by pieces": of(b"".join(get("row").iter_chunks(300_000))),
    }
""")
    for _ in range(2):
        assert ask().document == {
            "small": [False, digest("small")],
            "large": [True, digest("large")],
            "row": [True, digest("row")],
            "huge": [False, digest("huge")],
            "by bound": [True, digest("large")],
            "by two": [False, digest("row")],
            "by pieces": [False, digest("row")],
        }


def test_it_is_as_any_other_bytes(deploy):
    ask = deploy("""
def handler(event, context):
    data, other = get().read(), b"".join(get().iter_chunks(1000))
    assert lies(data) and not lies(other)
    assert type(data) is bytes and len(data) == len(other) and sys.getsizeof(data) == sys.getsizeof(other)
    assert data == other and hash(data) == hash(other) and {data: 1}[other] == 1 and repr(data) == repr(other)
    assert data[10:20] == other[10:20] and data[-1] == other[-1] and data.find(b"1") == 1 and data.upper() == other.upper()
    assert int(data[:8]) == int(other[:8]) and data.split(b"1") == other.split(b"1")
    view = memoryview(data)
    assert view.readonly and bytes(view[5:]) == other[5:]
    assert pickle.loads(pickle.dumps(data)) == other
    file = io.BytesIO(data)
    file.seek(0, 2)
    file.write(b"more")
    assert file.getvalue() == other + b"more" and data == other, "who writes to a file of it has a copy"
    longer = data
    longer += b"more"
    assert longer == other + b"more" and data == other
    same = [data] * 1000
    del same, longer, file, view
    gc.collect()
    assert data == other and lies(data)
    s3.put_object(Bucket="kept", Key="back", Body=data)
    return of(get("back").read())
""")
    assert ask().document == [True, digest("large")]


def test_it_stays_as_it_is_whatever_comes_after_it(deploy):
    ask = deploy("""
def are_so(found):
    return all(text == data for text, data in found.values())

def handler(event, context):
    first, found = get().read(), {}

    def work(name):
        for number in range(12):
            text, key = f"{name} {number} ".encode() * 150_000, f"by/{name}/{number}"
            s3.put_object(Bucket="kept", Key=key, Body=text)
            found[key] = text, get(key).read()

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return of(first), [lies(data) for _, data in found.values()], are_so(found)
""")
    first, lie, are_so = ask().document
    assert first == [True, digest("large")] and are_so and len(lie) == 48
    assert any(lie) and not all(lie), "what stays is bounded, and the rest is copied"


def test_a_backend_that_is_killed_leaves_it(deploy, pond, store):
    ask = deploy("""
def handler(event, context):
    data = get("row").read()
    s3.put_object(Bucket="kept", Key="read")
    while get("turn").read() == b"1":
        pass
    again = get("row").read()
    return of(data), of(again), data == again
""")
    client, said = store.client(), []
    client.put_object(Bucket="kept", Key="turn", Body=b"1")
    asking = threading.Thread(target=lambda: said.append(ask().document))
    asking.start()
    eventually(lambda: client.list_objects_v2(Bucket="kept", Prefix="read")["KeyCount"], "it was read")
    kill_backend(pond)
    client.put_object(Bucket="kept", Key="turn", Body=b"2")
    asking.join()
    assert said == [[[True, digest("row")], [True, digest("row")], True]]


def test_forks_have_it_too(deploy):
    ask = deploy("""
def told(what, *arguments):
    "What comes of it in a fork."
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.write(write, json.dumps(what(*arguments)).encode())
        os._exit(0)
    os.close(write)
    with open(read) as file:
        said = json.loads(file.read())
    assert os.waitpid(process, 0) == (process, 0)
    return said

def referred(data, count):
    for _ in range(count):
        many = [data] * 1000
        del many
    return of(data)

def handler(event, context):
    data = get("row").read()
    in_fork = told(of, data)
    in_its_fork = told(told, of, data)
    # Its own body, which ends with it.
    own = told(lambda: of(get().read()))
    # Both count at once.
    threads = [threading.Thread(target=lambda: told(referred, data, 200)) for _ in range(4)]
    for thread in threads:
        thread.start()
    referred(data, 200)
    for thread in threads:
        thread.join()
    return in_fork, in_its_fork, own, of(data), of(get().read())
""")
    row, large = [True, digest("row")], [True, digest("large")]
    assert ask().document == [row, row, large, row, large]


def test_who_serves_more_than_one_request_copies(deploy):
    ask = deploy("def handler(event, context): return os.getpid(), of(get().read())", reuse=3)
    said = [ask().document for _ in range(4)]
    assert [body for _, body in said] == 4 * [[False, digest("large")]]
    assert len({process for process, _ in said}) < 4, "a process has served several"


def test_what_an_import_reads_is_a_copy(deploy):
    ask = deploy("""
loaded = get().read()

def handler(event, context):
    return of(loaded), of(get().read())
""")
    for _ in range(2):
        assert ask().document == [[False, digest("large")], [True, digest("large")]]
