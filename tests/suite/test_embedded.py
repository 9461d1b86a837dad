"""A node's own S3: the real boto3 on it, functions that use it, objects that make functions run, and the verbs of `millpond s3`."""

import configparser
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import eventually
from objects import granted
from test_calls import everything
from test_objects import COPY, objects

EMBEDDED = '[s3]\nembedded = "127.0.0.1:0"\n'


@pytest.fixture(scope="module")
def pond(tmp_path_factory):
    """A node with an S3 of its own, and two buckets."""
    from conftest import end, running
    from harness import Node

    node = Node(tmp_path_factory.mktemp("pond"), config=EMBEDDED)
    running.append(node)
    node.start()
    for bucket in ("pond", "sea"):
        client(node).create_bucket(Bucket=bucket)
    yield node
    end(node)


@pytest.fixture
def has_processes(pond):
    if "process" not in pond.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")


def client(node):
    """The real boto3 with the node's key, as the file has it that AWS's tools read."""
    import boto3

    path = node.data / "s3-credentials"
    assert os.stat(path).st_mode & 0o777 == 0o600
    file = configparser.ConfigParser()
    file.read(path)
    return boto3.client("s3", endpoint_url=node.s3, region_name="us-east-1", **file["default"])


def cli(node, *words, given=None):
    done = node.cli("s3", *words, given=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_boto3_finds_an_s3(pond):
    s3 = client(pond)
    data = os.urandom(6 << 20)
    s3.put_object(Bucket="pond", Key="boto/a b.bin", Body=data, Metadata={"by": "mill"})
    upload = s3.create_multipart_upload(Bucket="pond", Key="boto/parts")["UploadId"]
    parts = [
        {"PartNumber": number, "ETag": s3.upload_part(Bucket="pond", Key="boto/parts", UploadId=upload, PartNumber=number, Body=body)["ETag"]}
        for number, body in ((1, data), (2, b"end"))
    ]
    s3.complete_multipart_upload(Bucket="pond", Key="boto/parts", UploadId=upload, MultipartUpload={"Parts": parts})
    assert s3.get_object(Bucket="pond", Key="boto/a b.bin")["Body"].read() == data
    assert s3.get_object(Bucket="pond", Key="boto/parts")["Body"].read() == data + b"end"
    listed = s3.list_objects_v2(Bucket="pond", Prefix="boto/")["Contents"]
    assert [(one["Key"], one["Size"]) for one in listed] == [("boto/a b.bin", len(data)), ("boto/parts", len(data) + 3)]


def test_nobody_without_the_key_comes_in(pond):
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.exceptions import ClientError

    def code(**options):
        with pytest.raises(ClientError) as refused:
            boto3.client("s3", endpoint_url=pond.s3, region_name="us-east-1", **options).list_buckets()
        return refused.value.response["Error"]["Code"]

    assert code(config=Config(signature_version=UNSIGNED)) == "AccessDenied"
    assert code(aws_access_key_id="nobody", aws_secret_access_key="nothing") == "InvalidAccessKeyId"


def test_functions_use_it(pond, has_processes):
    client(pond).put_object(Bucket="pond", Key="in.txt", Body=b"water")
    app = pond.deploy("copying", {"copy": objects(COPY)})
    assert app.call("copy", b'{"from": "in.txt", "to": "out.txt"}').document == {"bytes": 5}
    assert client(pond).get_object(Bucket="pond", Key="out.txt")["Body"].read() == b"WATER"


NOTE = """
import boto3, json
from urllib.parse import unquote_plus
s3 = boto3.client("s3")

def handler(event, context):
    for record in event["Records"]:
        key = unquote_plus(record["s3"]["object"]["key"])
        body = s3.get_object(Bucket=record["s3"]["bucket"]["name"], Key=key)["Body"].read().decode()
        s3.put_object(Bucket="sea", Key="notes/" + key, Body=json.dumps([body, record]).encode())
"""


def test_new_objects_make_functions_run(pond, has_processes):
    grants = (granted("pond", "get"), granted("sea", "put", prefix="notes/"))
    wanted = [{"function": "note", "bucket": "pond", "prefix": "new/"}, {"function": "note", "bucket": "pond", "suffix": ".txt"}]
    answer = pond.deploy("noting", {"note": objects(NOTE, *grants)}, {"object": wanted})
    assert answer.deployment["objects"] == wanted and "warnings" not in answer.deployment
    s3 = client(pond)
    keys = ["new/ä b+c.txt", "new/plain", "copied.txt"]
    for key in ("other/plain", keys[0], keys[1]):
        s3.put_object(Bucket="pond", Key=key, Body=key.encode())
    s3.put_object(Bucket="sea", Key="new/elsewhere.txt", Body=b"")
    s3.copy_object(Bucket="pond", Key=keys[2], CopySource={"Bucket": "pond", "Key": "other/plain"})

    def notes():
        return [one["Key"] for one in s3.list_objects_v2(Bucket="sea", Prefix="notes/").get("Contents", [])]

    eventually(lambda: sorted(notes()) == sorted("notes/" + key for key in keys), "three notes are written")
    read = {key: json.loads(s3.get_object(Bucket="sea", Key="notes/" + key)["Body"].read()) for key in keys}
    assert [read[key][0] for key in keys] == [*keys[:2], "other/plain"]
    record = read[keys[0]][1]
    assert (record["eventSource"], record["eventVersion"], record["eventName"]) == ("aws:s3", "2.1", "ObjectCreated:Put")
    assert record["s3"]["bucket"]["arn"] == "arn:aws:s3:::pond"
    assert record["s3"]["object"]["eTag"] == s3.head_object(Bucket="pond", Key=keys[0])["ETag"].strip('"')
    assert read[keys[2]][1]["eventName"] == "ObjectCreated:Copy"
    order = [read[key][1]["s3"]["object"]["sequencer"] for key in keys]
    assert order == sorted(order)
    # However many of its triggers want an object, a function hears of it once.
    assert len([call for call in everything(pond) if call["function"] == "noting.note"]) == len(keys)
    described = pond.control("GET", "/v1/functions/noting.note").document
    assert described["objects"] == wanted


def test_who_may_write_what_makes_it_run_is_warned(pond, has_processes):
    functions = {"note": objects(NOTE, granted("sea", "get", "put", prefix="circle/"))}
    trigger = {"function": "note", "bucket": "sea", "prefix": "circle/in/"}
    planned = pond.deploy("circle", functions, {"object": [trigger]}, plan=True)
    [warning] = planned.deployment["warnings"]
    assert "`note` may write to `sea` what makes it run" in warning


@pytest.mark.limit(300)
def test_no_new_object_is_forgotten_when_the_node_is_killed(make_node):
    node = make_node(config=EMBEDDED)
    client(node).create_bucket(Bucket="pond")
    node.deploy("kept", {"ping": "ping"}, {"object": [{"function": "ping", "bucket": "pond"}]})
    written = 0
    for _ in range(4):
        s3 = client(node)
        for _ in range(20):
            s3.put_object(Bucket="pond", Key=f"{written:04}", Body=b"x")
            written += 1
        node.kill()
        node.start()
    eventually(lambda: len(everything(node, "succeeded")) == written, "each object has made one call")
    assert len(everything(node)) == written


def test_verbs_copy_list_and_remove(pond, tmp_path):
    assert cli(pond, "mb", "s3://verbs") == b"made s3://verbs\n"
    listed = [line.split() for line in cli(pond, "ls").splitlines()]
    assert [line[1] for line in listed if line[1] == b"verbs"] == [b"verbs"]
    (tmp_path / "tree/deep").mkdir(parents=True)
    large = os.urandom(9_000_001)
    for name, data in (("tree/a.txt", b"a"), ("tree/deep/b & c.bin", large), ("tree/none", b"")):
        (tmp_path / name).write_bytes(data)
    cli(pond, "cp", "-r", tmp_path / "tree", "s3://verbs/up")
    cli(pond, "cp", tmp_path / "tree/a.txt", "s3://verbs/", "--content-type", "text/plain")
    assert client(pond).head_object(Bucket="verbs", Key="a.txt")["ContentType"] == "text/plain"
    cli(pond, "cp", "-", "s3://verbs/typed", given=b"by hand")
    cli(pond, "cp", "s3://verbs/typed", "s3://verbs/copies/")
    assert cli(pond, "cp", "s3://verbs/copies/typed", "-") == b"by hand"
    every = json.loads(cli(pond, "ls", "-r", "s3://verbs", "-o", "json"))
    keys = ["a.txt", "copies/typed", "typed", "up/a.txt", "up/deep/b & c.bin", "up/none"]
    assert [(one["key"], one["size"]) for one in every] == list(zip(keys, [1, 7, 7, 1, len(large), 0], strict=True))
    top = json.loads(cli(pond, "ls", "s3://verbs/up/", "-o", "json"))
    assert [one.get("prefix", one.get("key")) for one in top] == ["up/a.txt", "up/none", "up/deep/"]
    assert b"PRE  up/deep/" in cli(pond, "ls", "s3://verbs/up/")

    cli(pond, "cp", "-r", "s3://verbs/up/", tmp_path / "down")
    found = {path.relative_to(tmp_path / "down").as_posix(): path.read_bytes() for path in (tmp_path / "down").rglob("*") if path.is_file()}
    assert found == {"a.txt": b"a", "deep/b & c.bin": large, "none": b""}
    cli(pond, "cp", "s3://verbs/typed", tmp_path)
    assert (tmp_path / "typed").read_bytes() == b"by hand" and not os.access(tmp_path / "typed", os.X_OK)

    refused = pond.cli("s3", "rb", "s3://verbs")
    assert refused.returncode == 1 and b"BucketNotEmpty" in refused.stderr and b"rm --recursive" in refused.stderr
    asked = pond.cli("s3", "rm", "-r", "s3://verbs")
    assert asked.returncode == 2 and b"--yes" in asked.stderr
    assert cli(pond, "rm", "s3://verbs/a.txt") == b"removed s3://verbs/a.txt\n"
    cli(pond, "rm", "-ry", "s3://verbs")
    assert cli(pond, "ls", "s3://verbs") == b""
    cli(pond, "rb", "s3://verbs")
    missing = pond.cli("s3", "ls", "s3://verbs")
    assert missing.returncode == 1 and b"NoSuchBucket" in missing.stderr and b"millpond s3 mb" in missing.stderr


def test_a_page_among_the_objects_is_no_page_of_the_control_api(pond):
    client(pond).put_object(Bucket="pond", Key="page.html", Body=b"<script>fetch('/v1/node')</script>", ContentType="text/html")
    page = pond.control("GET", "/v1/s3/pond/page.html")
    assert (page.status, page.headers["content-type"]) == (200, "text/html")
    assert "sandbox" in page.headers["content-security-policy"] and page.headers["x-content-type-options"] == "nosniff"


def test_more_than_a_page_is_listed_whole(pond):
    s3 = client(pond)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: s3.put_object(Bucket="pond", Key=f"many/{number:04}", Body=b""), range(1003)))
    listed = json.loads(cli(pond, "ls", "s3://pond/many/", "-o", "json"))
    assert [one["key"] for one in listed] == [f"many/{number:04}" for number in range(1003)]


def test_wrong_words_are_explained(pond, tmp_path):
    for words, said in (
        (("cp", "a", "b"), b"neither end is an object"),
        (("cp", tmp_path, "s3://pond/x"), b"is a folder"),
        (("cp", "-", "s3://pond"), b"has no name"),
        (("cp", "s3://pond", tmp_path), b"is a bucket"),
        (("cp", "-r", "-", "s3://pond/x"), b"means many"),
        (("rm", "s3://pond"), b"millpond s3 rb"),
        (("mb", "s3://pond/x"), b"more than a bucket"),
        (("ls", "pond"), b"s3://"),
    ):
        done = pond.cli("s3", *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
    gone = pond.cli("s3", "cp", "s3://pond/nothing", tmp_path / "kept")
    assert gone.returncode == 1 and b"NoSuchKey" in gone.stderr
    assert not (tmp_path / "kept").exists()


def test_a_node_without_one_says_so(node, tmp_path):
    done = node.cli("s3", "ls")
    assert done.returncode == 1 and b"no S3 of its own" in done.stderr and b"embedded" in done.stderr
    node.control("PUT", "/v1/s3/pond/key", body=b"x" * 100_000).problem(404, "s3-not-embedded")
    trigger = {"function": "f", "bucket": "pond"}
    refused = node.try_deploy("heard", {"f": "ping"}, {"object": [trigger]})
    refused.problem(422, "trigger-unavailable")


def test_its_objects_outlive_it(make_node):
    node = make_node(config=EMBEDDED)
    client(node).create_bucket(Bucket="pond")
    client(node).put_object(Bucket="pond", Key="kept", Body=b"water")
    before = client(node)._request_signer._credentials.access_key
    node.stop()
    node.start()
    assert client(node).get_object(Bucket="pond", Key="kept")["Body"].read() == b"water"
    assert client(node)._request_signer._credentials.access_key == before
