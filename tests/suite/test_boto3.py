"""Millpond's boto3 against the real one: the same cases on the same server, and their results compared.

The server is versitygw. The real boto3 talks to it from a process of its own; ours does so from a deployed function, through the node's
backend. What no server can be brought to say is in `boto3_faults`, which needs no node.
"""

import importlib.util
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import boto3_cases
import pytest
from conftest import end, running
from harness import PATIENCE, ROOT, Node, clean_environment
from objects import S3Server, granted
from test_python import function

GUEST = ROOT / "python" / "guest"
REAL_BUCKET, OUR_BUCKET, CARRIED_BUCKET = "cases-real", "cases-ours", "cases-carried"
# Those that cases make and ask for, by what they add to the name.
BUCKETS = ("", "-none", "-versioned", "-new", "-far", "-resource", "-made")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A server with versions, and nothing in it."""
    server = S3Server(tmp_path_factory.mktemp("store")).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def real(store):
    """What each case comes to on the real boto3, in a process that has its environment to itself."""
    environment = clean_environment() | store.environment() | {"AWS_EC2_METADATA_DISABLED": "true"}
    event = {"case": [*boto3_cases.CASES, *boto3_cases.BROUGHT], "bucket": REAL_BUCKET, "prefix": "p/"}
    code = (
        "import json, sys, boto3_cases as cases\n"
        "event = json.load(sys.stdin)\n"
        "for name in (event['bucket'], sys.argv[1]): cases.client().create_bucket(Bucket=name)\n"
        "json.dump(cases.handler(event, None), sys.stdout)\n"
    )
    command = [sys.executable, "-c", code, OUR_BUCKET]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=environment, input=json.dumps(event).encode(), capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ours(store, tmp_path_factory):
    """The function that runs cases on Millpond's boto3."""
    folder = tmp_path_factory.mktemp("boto3")
    node = Node(folder, config=store.configuration(folder))
    running.append(node)
    node.start()
    try:
        if "process" not in node.control("GET", "/v1/node").document["engines"]:
            pytest.skip("the engine process is not here: `millpond doctor` says why")
        code = Path(boto3_cases.__file__).read_text()
        grants = {"s3": [granted(OUR_BUCKET + more) for more in BUCKETS]}
        settings = {"memory": "512MiB", "timeout": "60s", "grants": grants}
        yield node.deploy("boto3", {"cases": function(code, **settings)})
    finally:
        end(node)


# What the node does not let through, whatever is granted: settings of a bucket, which are its owner's matter, and keys that a server on a file
# system takes for paths. And what versitygw takes, and AWS does not.
OTHERWISE = dict.fromkeys(
    ("key_dot", "key_dotdot", "bucket_tags", "bucket_acl_put", "bucket_versioning", "bucket_policy", "bucket_policy_malformed", "bucket_cors")
    + ("bucket_lifecycle", "no_bucket_delete_bucket_policy", "setting_public_access", "setting_ownership", "setting_notification")
    + ("setting_website",),
    "AccessDenied",
) | {"delete_objects_none": "MalformedXML"}


@pytest.mark.limit(400)
@pytest.mark.parametrize("name", boto3_cases.CASES)
def test_a_case_is_the_same_on_both(real, ours, name):
    event = {"case": name, "bucket": OUR_BUCKET, "prefix": "p/"}
    answer = ours.call("cases", json.dumps(event).encode())
    assert answer.status == 200, answer.body[:2000]
    if name in OTHERWISE:
        assert OTHERWISE[name] in answer.text
    else:
        assert answer.document == real[name]


# Cases for the real boto3 where a function brings it: one of each kind of request and answer, transfers and errors.
CARRIED = (
    "put_get put_file_like put_with_all_kinds_of_headers put_sha256 put_wrong_content_md5 put_only_if_absent put_zipped head delete head_range"
    " if_none_match_not_modified list_v2 list_delimiter list_odd_prefix_and_delimiter pages delete_objects delete_objects_odd_keys copy"
    " copy_replacing_metadata copy_of_what_is_not_there multipart multipart_abort multipart_wrong_etag attributes object_tags bucket_head"
    " error_as_caught error_of_head error_no_such_bucket_class body_chunks body_lines body_readinto upload_file upload_fileobj download_file"
    " download_fileobj managed_copy wait_object_exists"
    " threads_one_client handler_of_records handler_that_moves handler_with_threads"
).split()

# What the handlers of `boto3_cases` have for a client is the real one's.
WITH_THE_REAL_ONE = """
def carried(event, _context):
    global StreamingBody
    from botocore import _real
    theirs = _real.client("it", "s3", region_name="us-east-1")
    StreamingBody = (StreamingBody, type(theirs.get_object(Bucket=event["bucket"], Key="one")["Body"]))
    return {name: run(theirs, name, event) for name in event["case"]}

def beside(event, _context):
    if "stop" in event:
        return "stopped"
    s3 = client()
    theirs = s3._theirs("operation", "get_bucket_ownership_controls")
    try:
        found = theirs.get_bucket_ownership_controls(Bucket=event["bucket"])["OwnershipControls"]
    except ClientError as error:
        found = error.response["Error"]["Code"]
    denied = []
    for ask in (theirs.get_bucket_website, s3.get_bucket_abac):
        try:
            ask(Bucket="not-granted")
        except ClientError as error:
            denied.append([error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]])
    functions = boto3.client("lambda")
    try:
        names = list(functions.get_paginator("list_functions").paginate())
    except ClientError as error:
        names = error.response["Error"]["Code"]
    stream = functions.invoke_with_response_stream(FunctionName="beside", Payload=json.dumps({"stop": 1}))["EventStream"]
    return [found, denied, names, b"".join(one["PayloadChunk"]["Payload"] for one in stream if "PayloadChunk" in one).decode()]
"""


def brought(*more, code=Path(boto3_cases.__file__).read_text(), models=("s3", "lambda")):
    """A package with cases, or other code, and the real boto3 as pip installs it: of botocore's models, those that are used."""
    folder = Path(importlib.util.find_spec("boto3").origin).parents[1]
    buffer = io.BytesIO(function(code + "".join(more))[0])
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in ("boto3", "botocore", "s3transfer", "jmespath", "urllib3", "dateutil"):
            for path in sorted((folder / name).rglob("*")):
                inside = path.relative_to(folder)
                is_model = inside.parts[1:2] == ("data",) and len(inside.parts) > 3 and inside.parts[2] not in models
                if path.is_file() and path.suffix != ".pyc" and not is_model and "examples" not in inside.parts:
                    archive.write(path, inside)
        archive.write(folder / "six.py", "six.py")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def bringing(store, ours, tmp_path_factory):
    """Functions that bring the real boto3, beside the one that does not."""
    store.client().create_bucket(Bucket=CARRIED_BUCKET)
    store.client().put_object(Bucket=CARRIED_BUCKET, Key="one", Body=b"x")
    grants = {"s3": [granted(CARRIED_BUCKET + more) for more in ("", "-none")], "lambda": {"functions": ["beside"]}}
    code = brought(WITH_THE_REAL_ONE)
    settings = {"memory": "512MiB", "timeout": "120s", "grants": grants}
    names = ("carried", "beside", "handler")
    return ours.node.deploy("brought", {name: (code, {"handler": f"app.{name}"} | settings) for name in names})


@pytest.mark.limit(300)
def test_the_real_boto3_of_a_function_is_carried(real, bringing):
    event = {"case": CARRIED, "bucket": CARRIED_BUCKET, "prefix": "p/"}
    answer = bringing.call("carried", json.dumps(event).encode())
    assert answer.status == 200, answer.body[:2000]
    different = {name: (result, real[name]) for name, result in answer.document.items() if result != real[name]}
    assert not different, json.dumps(different)[:5000]


@pytest.mark.parametrize("name", boto3_cases.BROUGHT)
def test_a_hook_of_the_real_ones_is_called(real, bringing, name):
    answer = bringing.call("handler", json.dumps({"case": name, "bucket": CARRIED_BUCKET, "prefix": "p/"}).encode())
    assert answer.status == 200, answer.body[:2000]
    assert answer.document == real[name]


def test_what_ours_does_not_have_is_the_real_ones(bringing):
    found, denied, functions, streamed = bringing.call("beside", json.dumps({"bucket": CARRIED_BUCKET}).encode()).document
    assert found == "OwnershipControlsNotFoundError" or "Rules" in found
    assert denied == [["AccessDenied", 403]] * 2
    assert (functions, streamed) == ("UnknownOperationException", '"stopped"')


def test_what_no_server_says():
    real = Path(importlib.util.find_spec("boto3").origin).parents[1]
    command = [sys.executable, "-S", Path(__file__).with_name("boto3_faults.py"), real]
    environment = clean_environment() | {"PYTHONPATH": str(GUEST)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode()
    failed = {name: trace for name, trace in json.loads(done.stdout).items() if trace}
    assert not failed, "\n".join(failed.values())


def test_it_costs_little():
    """What a function pays for `boto3.client("s3")`: modules, by which time and memory go, on whatever machine this is."""
    code = (
        "import json, os, sys; before = set(sys.modules); import boto3; boto3.client('s3'); print(json.dumps([*set(sys.modules) - before]))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"PYTHONPATH": str(GUEST)}
    done = subprocess.run([sys.executable, "-S", "-c", code], env=environment, capture_output=True, timeout=PATIENCE, check=True)
    loaded = json.loads(done.stdout)
    heavy = {"asyncio", "concurrent", "email", "hashlib", "http", "inspect", "logging", "socket", "ssl", "typing", "urllib", "xml"}
    assert not heavy & {name.partition(".")[0] for name in loaded}, loaded
    assert len([name for name in loaded if name.startswith("boto")]) < 12, loaded
