"""Roles: a function's calls are signed with keys that can do what was granted to it and nothing else, and it is S3 that says so (`roles`)."""

import json
import threading
import urllib.request

import pytest
from botocore.exceptions import ClientError
from harness import PATIENCE, cli, eventually
from objects import SECRET, granted
from roles import ROLE, RoleServer, Sts, fails, hangs, refuses, speaks_nonsense
from test_embedded import NOTE
from test_objects import objects

HANDLER = """
import boto3
from botocore.exceptions import BotoCoreError, ClientError

s3 = boto3.client("s3")


def parts(**of):
    upload = of | {"UploadId": s3.create_multipart_upload(**of)["UploadId"]}
    etag = s3.upload_part(PartNumber=1, Body=b"x", **upload)["ETag"]
    assert [part["PartNumber"] for part in s3.list_parts(**upload)["Parts"]] == [1]
    s3.complete_multipart_upload(MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]}, **upload)


def abandoned(**of):
    s3.abort_multipart_upload(UploadId=s3.create_multipart_upload(**of)["UploadId"], **of)


TAGS = {"TagSet": [{"Key": "a", "Value": "b"}]}

DO = {
    "get": lambda **of: s3.get_object(**of)["Body"].read().decode(),
    "head": lambda **of: s3.head_object(**of)["ContentLength"],
    "attributes": lambda **of: s3.get_object_attributes(ObjectAttributes=["ObjectSize"], **of)["ObjectSize"],
    "put": lambda **of: s3.put_object(Body=b"put", **of) and None,
    "upload in parts": parts,
    "abandon": abandoned,
    "copy": lambda Bucket, Key: s3.copy_object(Bucket=Bucket, Key=Key + ".copy", CopySource=f"{Bucket}/{Key}") and None,
    "tag": lambda **of: s3.put_object_tagging(Tagging=TAGS, **of) and None,
    "tags": lambda **of: s3.get_object_tagging(**of)["TagSet"],
    "untag": lambda **of: s3.delete_object_tagging(**of) and None,
    "list": lambda Bucket, Key: [one["Key"] for one in s3.list_objects_v2(Bucket=Bucket, Prefix=Key).get("Contents", [])],
    "where": lambda Bucket, Key: s3.get_bucket_location(Bucket=Bucket) and None,
    "delete": lambda **of: s3.delete_object(**of) and None,
    "delete many": lambda Bucket, Key: [one["Key"] for one in s3.delete_objects(Bucket=Bucket, Delete={"Objects": [{"Key": Key}]})["Deleted"]],
    "url": lambda **of: s3.generate_presigned_url("get_object", Params=of),
}


def handler(event, context):
    try:
        return {"got": DO[event["do"]](Bucket=event.get("bucket", "pond"), Key=event["key"])}
    except ClientError as error:
        return {"error": error.response["Error"]["Code"]}
    except BotoCoreError as error:
        return {"error": type(error).__name__, "said": str(error)}
"""


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    server = RoleServer(tmp_path_factory.mktemp("s3")).start()
    for bucket in ("pond", "sea"):
        server.client().create_bucket(Bucket=bucket)
        for key in ("in/a", "in/b", "out/a"):
            server.client().put_object(Bucket=bucket, Key=key, Body=f"{bucket}/{key}".encode())
    yield server
    server.stop()


@pytest.fixture
def sts(s3):
    sts = Sts(s3)
    yield sts
    sts.close()
    assert sts.wrong == [], "what STS is asked is signed"


@pytest.fixture
def node(s3, sts, make_node, tmp_path):
    node = make_node(config=s3.configuration(tmp_path, role=ROLE, sts=sts.endpoint, poll="100ms"))
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    return node


def do(app, what, key, function="f", **more):
    answer = app.call(function, json.dumps({"do": what, "key": key} | more).encode())
    assert answer.status == 200, answer.body[:2000]
    return answer.document


def log(node):
    return node.log.read_text(errors="replace")


def denied(call, **of):
    with pytest.raises(ClientError) as caught:
        call(**of)
    assert caught.value.response["Error"]["Code"] == "AccessDenied", (call, of)


def test_a_function_reads_with_keys_that_can_read_what_it_was_granted_and_nothing_else(node, s3, sts):
    before = len(s3.requests())
    app = node.deploy("roles", {"f": objects(HANDLER, granted("pond", "get", prefix="in/"))})
    for key in ("in/a", "in/b"):
        assert do(app, "get", key) == {"got": f"pond/{key}"}
    assert do(app, "get", "out/a") == {"error": "AccessDenied"}

    [asked] = sts.asked
    assert asked["name"] == "roles.f" and asked["seconds"] == 3600
    [statement] = asked["policy"]["Statement"]
    assert statement == {"Effect": "Allow", "Action": "s3:GetObject*", "Resource": "arn:aws:s3:::pond/in/*"}
    reads = [(who, key) for who, operation, key in s3.requests()[before:] if "GetObject" in operation]
    [(key, *hidden)] = sts.keys
    assert reads == [(key, "in/a"), (key, "in/b")], "nothing is read with the node's own keys"
    said = log(node)
    assert not any(secret in said for secret in (SECRET, *hidden))

    # It is S3 that says no, too.
    stolen = sts.client()
    assert stolen.get_object(Bucket="pond", Key="in/a")["Body"].read() == b"pond/in/a"
    for bucket, key in (("pond", "out/a"), ("sea", "in/a")):
        denied(stolen.get_object, Bucket=bucket, Key=key)
    for call in (stolen.put_object, stolen.delete_object):
        denied(call, Bucket="pond", Key="in/a")
    denied(stolen.list_objects_v2, Bucket="pond", Prefix="in/")
    denied(stolen.put_bucket_policy, Bucket="pond", Policy="{}")


def test_what_is_granted_can_be_done(node, sts):
    app = node.deploy("all", {"f": objects(HANDLER, granted("pond", prefix="all/"))})
    key = "all/k"
    for what, expected in (
        ("put", None),
        ("get", "put"),
        ("head", 3),
        ("attributes", 3),
        ("tag", None),
        ("tags", [{"Key": "a", "Value": "b"}]),
        ("untag", None),
        ("copy", None),
        ("list", [key, f"{key}.copy"]),
        ("where", None),
        ("upload in parts", None),
        ("get", "x"),
        ("abandon", None),
        ("delete many", [key]),
        ("delete", None),
        ("list", [f"{key}.copy"]),
    ):
        assert do(app, what, key) == {"got": expected}, what
    [(key, _, token)] = sts.keys
    url = do(app, "url", "all/k.copy")["got"]
    assert f"X-Amz-Credential={key}%2F" in url and f"X-Amz-Security-Token={token}" in url
    with urllib.request.urlopen(url, timeout=PATIENCE) as response:
        assert response.read() == b"put"
    assert len(sts.named("all.f")) == 1, "one session is enough for all of it"


def test_functions_have_sessions_of_their_own(node, sts):
    app = node.deploy("two", {
        "f": objects(HANDLER, granted("pond", "get", "list", prefix="in/")),
        "g": objects(HANDLER, granted("sea", "get", "put", prefix="out/")),
    })
    assert do(app, "get", "in/a") == {"got": "pond/in/a"} and do(app, "list", "in/") == {"got": ["in/a", "in/b"]}
    assert do(app, "get", "out/a", "g", bucket="sea") == {"got": "sea/out/a"}
    assert [asked["name"] for asked in sts.asked] == ["two.f", "two.g"]
    f, g = (json.dumps(asked["policy"]) for asked in sts.asked)
    assert "pond" in f and "sea" not in f and "sea" in g and "pond" not in g
    f, g = sts.client(0), sts.client(1)
    assert [one["Key"] for one in f.list_objects_v2(Bucket="pond", Prefix="in/")["Contents"]] == ["in/a", "in/b"]
    for prefix in ("", "out/", "i"):
        for lists in (f.list_objects_v2, f.list_objects, f.list_object_versions):
            denied(lists, Bucket="pond", Prefix=prefix)
    denied(f.get_object, Bucket="sea", Key="out/a")
    denied(g.get_object, Bucket="pond", Key="in/a")
    denied(g.list_objects_v2, Bucket="sea", Prefix="out/")

    # A version that was granted something else has another session; what differs in nothing of that has the same.
    settings = granted("pond", "get", "list", prefix="in/")
    again = node.deploy("two", {"f": objects(HANDLER + "\n", settings), "g": objects(HANDLER, granted("pond", "get", prefix="in/"))})
    assert do(again, "get", "in/a") == {"got": "pond/in/a"} and do(again, "get", "in/a", "g") == {"got": "pond/in/a"}
    assert (len(sts.named("two.f")), len(sts.named("two.g"))) == (1, 2)


def test_a_deletion_of_many_deletes_what_was_granted_and_nothing_else(node, s3, sts):
    app = node.deploy("gone", {"f": objects(HANDLER, granted("pond", "get", "delete", prefix="gone/"))})
    for key in ("gone/a", "gone/b", "stays/a"):
        s3.client().put_object(Bucket="pond", Key=key, Body=b"x")
    assert do(app, "delete many", "gone/a") == {"got": ["gone/a"]}
    stolen = sts.client()
    try:
        both = stolen.delete_objects(Bucket="pond", Delete={"Objects": [{"Key": key} for key in ("gone/b", "stays/a")]})
        assert [one["Key"] for one in both.get("Errors", [])] == ["stays/a"], both
    except ClientError as error:
        # Or all of it.
        assert error.response["Error"]["Code"] == "AccessDenied"
    assert s3.client().get_object(Bucket="pond", Key="stays/a")["Body"].read() == b"x"


# What it is, and what it would be if some of it meant something. What policies write as variables, the server that judges them here does not know.
ODD = {
    "it's \"here\"/": "its here/",
    "größe 水/": "gro/",
    "a+b/%41/": "a b/A/",
}


def test_prefixes_mean_what_they_say(node, s3, sts):
    prefixes = list(ODD)
    functions = {f"f{number}": objects(HANDLER, granted("pond", prefix=prefix)) for number, prefix in enumerate(prefixes)}
    app = node.deploy("odd", functions)
    for number, prefix in enumerate(prefixes):
        function, key = f"f{number}", prefix + "k"
        for what, expected in (("put", None), ("get", "put"), ("list", [key]), ("copy", None), ("delete many", [key])):
            assert do(app, what, key, function) == {"got": expected}, (what, key)
        other = ODD[prefix] + "k"
        s3.client().put_object(Bucket="pond", Key=other, Body=b"x")
        assert do(app, "get", other, function) == {"error": "AccessDenied"}, other
        stolen = sts.client(number)
        assert stolen.get_object(Bucket="pond", Key=key + ".copy")["Body"].read() == b"put"
        denied(stolen.get_object, Bucket="pond", Key=other)
        denied(stolen.list_objects_v2, Bucket="pond", Prefix=ODD[prefix])


def test_new_objects_are_found_with_keys_that_can_list_them_and_nothing_else(node, s3, sts):
    grants = granted("pond", "get", prefix="new/"), granted("sea", "put", prefix="notes/")
    node.deploy("watching", {"note": objects(NOTE, *grants)}, {"object": [{"function": "note", "bucket": "pond", "prefix": "new/"}]})
    eventually(lambda: sts.keys, "the bucket is listed")
    s3.client().put_object(Bucket="pond", Key="new/a", Body=b"water")
    noted = lambda: s3.client().list_objects_v2(Bucket="sea", Prefix="notes/new/a").get("Contents")
    eventually(noted, "the function has run")
    assert len(sts.named("watching.note")) == len(sts.asked) == 2, "one to list, and the function's own"
    lists = sts.client(0)
    assert [one["Key"] for one in lists.list_objects_v2(Bucket="pond", Prefix="new/")["Contents"]] == ["new/a"]
    denied(lists.list_objects_v2, Bucket="pond")
    denied(lists.get_object, Bucket="pond", Key="new/a")


def test_however_many_ask_at_once_sts_is_asked_once(node, sts):
    app = node.deploy("many", {"f": objects(HANDLER, granted("pond", "get", prefix="in/"))})
    asked, may_go_on = threading.Event(), threading.Event()

    def slow(handler):
        asked.set()
        may_go_on.wait(PATIENCE)
        sts.fault = None
        handler.answer(500, "")

    sts.fault = slow
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(do(app, "get", "in/a"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert asked.wait(PATIENCE)
    may_go_on.set()
    for thread in threads:
        thread.join()
    assert answers == [{"got": "pond/in/a"}] * 6
    assert len(sts.named("many.f")) == 1, "and asked again after a failure of its own"


def test_keys_are_renewed_before_they_end(node, sts):
    sts.lifetime = 12
    app = node.deploy("renewed", {"f": objects(HANDLER, granted("pond", "get", prefix="in/"))})

    def has_ended():
        """Whether the first keys are nobody's any more; the function has good ones all the time."""
        assert do(app, "get", "in/a") == {"got": "pond/in/a"}
        try:
            sts.client(0).get_object(Bucket="pond", Key="in/a")
        except ClientError as error:
            return error.response["Error"]["Code"] == "InvalidAccessKeyId"

    eventually(has_ended, "the first keys have ended")
    assert do(app, "get", "in/a") == {"got": "pond/in/a"}
    assert len(sts.named("renewed.f")) >= 2


@pytest.mark.parametrize("fault, told, logged", [
    (refuses, "STS refuses it (AccessDenied)", "arn:of:the:node is not authorized"),
    (speaks_nonsense, "STS does not answer with one", "is of no use"),
    (fails, "STS does not answer with one", "status 503"),
    (hangs, "STS does not answer", "it has not answered within"),
    (None, "STS is not reached", "it is not reached"),
])
def test_without_sts_a_function_is_told_and_goes_on_once_it_is_there(node, s3, sts, fault, told, logged):
    app = node.deploy("failing", {"f": objects(HANDLER, granted("pond", "get", "put", prefix="in/"))})
    if fault:
        sts.fault = fault
    else:
        sts.down()
    before = len(s3.requests())
    for what in ("get", "put"):
        failed = do(app, what, "in/a")
        assert failed["error"] == "CredentialRetrievalError" and told in failed["said"], failed
        # What is the operator's is in the operator's log.
        assert ROLE not in failed["said"] and str(sts.port) not in failed["said"] and "arn:of" not in failed["said"]
    said = log(node)
    assert logged in said and ROLE in said and "failing.f" in said
    assert s3.requests()[before:] == [], "nothing is sent that is not signed"
    sts.fault = None
    if not fault:
        sts.up()
    eventually(lambda: do(app, "get", "in/a") == {"got": "pond/in/a"}, "the function has keys once STS is there")


def test_who_waits_for_sts_does_not_wait_beyond_the_requests_deadline(node, sts):
    code, settings = objects(HANDLER, granted("pond", "get", prefix="in/"))
    app = node.deploy("late", {"f": (code, settings | {"timeout": "1s"})})
    sts.fault = hangs
    app.call("f", b'{"do": "get", "key": "in/a"}').problem(504, "limit-timeout")
    sts.fault = None
    sts.let_go()

    def reads():
        answer = app.call("f", b'{"do": "get", "key": "in/a"}')
        return answer.status == 200 and answer.document == {"got": "pond/in/a"}

    eventually(reads, "the function has keys once STS is there")


def test_grants_that_no_session_policy_has_room_for_are_refused(node):
    grants = [granted("pond", "get", prefix=f"tenants/{number:03}/") for number in range(100)]
    problem = node.try_deploy("long", {"f": objects(HANDLER, *grants)}).problem(422, "grants-unavailable")
    assert "`long.f`" in problem["detail"] and "2048" in problem["detail"] and "[[function.f.grants.s3]]" in problem["hint"]
    assert node.try_deploy("long", {"f": objects(HANDLER, *grants[:20])}).status == 200


@pytest.mark.parametrize("keys, told", [
    ({"role": "pond", "sts": "http://127.0.0.1:1"}, "is not the ARN of a role"),
    ({"role": ROLE, "sts": "http://192.0.2.1"}, "without TLS"),
    ({"role": ROLE, "sts": "http://127.0.0.1:1/path"}, "is not the endpoint of STS"),
    ({"role": ROLE}, "needs `sts`"),
    ({"sts": "http://127.0.0.1:1"}, "gives keys of a `role`"),
])
def test_a_role_that_cannot_be_taken_is_told_before_anything_is_served(s3, tmp_path, keys, told):
    path = tmp_path / "config.toml"
    path.write_text(s3.configuration(tmp_path, **keys))
    done = cli("serve", "--config", path, "--data", tmp_path / "data", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
    assert done.returncode != 0 and told in done.stderr.decode(), done.stderr.decode()


def test_doctor_says_which_role_is_taken(s3, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(s3.configuration(tmp_path, role=ROLE, sts="http://127.0.0.1:1"))
    findings = json.loads(cli("doctor", "--config", path, "-o", "json").stdout)
    [finding] = [finding for finding in findings if finding["capability"] == "S3"]
    assert finding["state"] == "ok" and f"in the role {ROLE}" in finding["found"], finding
