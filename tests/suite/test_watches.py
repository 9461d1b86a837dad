"""Objects in an S3 elsewhere that make functions run: a real server, which tells nobody of them."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import eventually
from objects import granted
from test_calls import everything
from test_embedded import NOTE
from test_objects import objects

POLL = {"poll": "100ms"}


@pytest.fixture
def pond(s3, make_node, tmp_path):
    return make_node(config=s3.configuration(tmp_path, **POLL))


def looks(node, outcome="ok"):
    return node.metrics()[f'millpond_watch_looks_total{{outcome="{outcome}"}}']


def look_twice(node):
    """One that begins from now on has ended."""
    before = looks(node)
    eventually(lambda: looks(node) >= before + 2, "the bucket has been listed")


def test_new_objects_make_functions_run(pond, s3):
    if "process" not in pond.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    client = s3.client()
    client.put_object(Bucket="pond", Key="new/before.txt", Body=b"x")
    # Times of change are whole seconds, as S3 says its own is: what is little older than the deployment counts as new.
    changed = client.head_object(Bucket="pond", Key="new/before.txt")["LastModified"]
    newer = lambda: client.put_object(Bucket="sea", Key="clock", Body=b"") and (client.head_object(Bucket="sea", Key="clock")["LastModified"] - changed).seconds > 3
    eventually(newer, "it is older than that")
    wanted = [{"function": "note", "bucket": "pond", "prefix": "new/"}, {"function": "note", "bucket": "pond", "suffix": ".txt"}]
    answer = pond.deploy("noting", {"note": objects(NOTE, granted("pond", "get"), granted("sea", "put", prefix="notes/"))}, {"object": wanted})
    assert answer.deployment["objects"] == wanted
    keys = ["new/ä b+c&d.txt", "new/plain", "copied.txt", "new/line\nbreak"]
    for key in ("other/plain", keys[0], keys[1], keys[3]):
        client.put_object(Bucket="pond", Key=key, Body=key.encode())
    client.put_object(Bucket="sea", Key="new/elsewhere.txt", Body=b"")
    client.copy_object(Bucket="pond", Key=keys[2], CopySource={"Bucket": "pond", "Key": "other/plain"})

    def notes():
        return [one["Key"] for one in client.list_objects_v2(Bucket="sea", Prefix="notes/").get("Contents", [])]

    eventually(lambda: sorted(notes()) == sorted("notes/" + key for key in keys), "four notes are written")
    read = {key: json.loads(client.get_object(Bucket="sea", Key="notes/" + key)["Body"].read()) for key in keys}
    assert [read[key][0] for key in keys] == [keys[0], keys[1], "other/plain", keys[3]]
    record = read[keys[0]][1]
    assert (record["eventSource"], record["eventVersion"], record["eventName"]) == ("aws:s3", "2.1", "ObjectCreated:Put")
    assert record["s3"]["object"]["eTag"] == client.head_object(Bucket="pond", Key=keys[0])["ETag"].strip('"')
    assert record["s3"]["object"]["size"] == len(keys[0].encode())
    look_twice(pond)
    # However many of its triggers want an object, a function hears of it once.
    assert len(everything(pond)) == len(keys)

    upload = client.create_multipart_upload(Bucket="pond", Key="new/plain")["UploadId"]
    part = client.upload_part(Bucket="pond", Key="new/plain", UploadId=upload, PartNumber=1, Body=b"in parts")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    client.complete_multipart_upload(Bucket="pond", Key="new/plain", UploadId=upload, MultipartUpload=parts)
    changed = lambda: json.loads(client.get_object(Bucket="sea", Key="notes/new/plain")["Body"].read())
    eventually(lambda: changed()[0] == "in parts", "what is written again runs it again")
    assert changed()[1]["eventName"] == "ObjectCreated:CompleteMultipartUpload"
    assert changed()[1]["s3"]["object"]["sequencer"] > record["s3"]["object"]["sequencer"]
    client.delete_object(Bucket="pond", Key="new/plain")
    look_twice(pond)
    assert len(everything(pond)) == len(keys) + 1


def triggered(node, name="kept", **trigger):
    return node.deploy(name, {"ping": "ping"}, {"object": [{"function": "ping", "bucket": "pond"} | trigger]})


@pytest.mark.limit(300)
def test_no_new_object_is_forgotten_or_told_twice_when_the_node_is_killed(pond, s3):
    triggered(pond)
    client = s3.client()
    written, stop = [], threading.Event()

    def write():
        while not stop.is_set():
            client.put_object(Bucket="pond", Key=f"{len(written):05}", Body=b"x")
            written.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            before = len(written)
            eventually(lambda before=before: len(written) >= before + 30, "objects are written")
            pond.kill()
            pond.start()
    finally:
        stop.set()
        writer.join()
    eventually(lambda: len(everything(pond, "succeeded")) == len(written), "each object has made one call")
    look_twice(pond)
    assert len(everything(pond)) == len(written)


def test_more_than_a_page_is_found_whole_and_once(pond, s3):
    client = s3.client()
    write = lambda number: client.put_object(Bucket="pond", Key=f"{number % 7}/{number:04}", Body=b"")
    triggered(pond)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(2100)))
    eventually(lambda: len(everything(pond, "succeeded")) == 2100, "each object has made one call")
    look_twice(pond)
    assert len(everything(pond)) == 2100


def test_what_is_written_while_the_node_is_away_is_found(pond, s3):
    triggered(pond)
    look_twice(pond)
    pond.stop()
    s3.client().put_object(Bucket="pond", Key="a", Body=b"x")
    pond.start()
    eventually(lambda: len(everything(pond, "succeeded")) == 1, "it has made its call")
    # Another function that comes later is not told of it, nor is it when the same trigger comes again.
    triggered(pond, "later")
    look_twice(pond)
    assert len(everything(pond)) == 1


def test_an_s3_that_goes_is_asked_again(pond, s3):
    triggered(pond)
    look_twice(pond)
    s3.stop()
    eventually(lambda: looks(pond, "failed") >= 2, "it is tried again")
    assert pond.log.read_text().count("new objects are not found now") == 1
    s3.start()
    s3.client().put_object(Bucket="pond", Key="a", Body=b"x")
    eventually(lambda: len(everything(pond, "succeeded")) == 1, "it has made its call")
    assert "new objects are found again" in pond.log.read_text()


def test_a_bucket_may_come_later(pond, s3):
    triggered(pond, bucket="lake")
    eventually(lambda: looks(pond, "failed") >= 1, "it is not there")
    assert "NoSuchBucket" in pond.log.read_text()
    s3.client().create_bucket(Bucket="lake")
    s3.client().put_object(Bucket="lake", Key="a", Body=b"x")
    eventually(lambda: len(everything(pond, "succeeded")) == 1, "it has made its call")


def test_the_backend_may_be_killed(pond, s3):
    from test_objects import kill_backend

    triggered(pond)
    for number in range(3):
        kill_backend(pond)
        s3.client().put_object(Bucket="pond", Key=str(number), Body=b"x")
        eventually(lambda number=number: len(everything(pond, "succeeded")) == number + 1, "it has made its call")
