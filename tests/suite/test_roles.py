"""Roles: a function's calls are signed with keys that can do what was granted to it and nothing else, and it is S3 that says so.

The S3 server is a real one, with users and policies of buckets. What it does not have is STS, which is here: a role session is a user of the S3 server, its session policy becomes
part of the policies of the buckets, and when it ends the user is no more. Of policies, the server knows no conditions, and of `DeleteObjects` it wants that it may be done to the bucket:
what they say of these is looked at where they are asked for, and in `services/s3/src/session/tests.rs`.
"""

import hashlib
import json
import secrets
import threading
import time
import urllib.request
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import boto3
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from harness import PATIENCE, cli, eventually
from objects import KEY, SECRET, S3Server, granted
from signed import is_signed, scope
from test_objects import objects

ROLE = "arn:aws:iam::123456789012:role/pond"


class Sts:
    """STS on loopback, before an S3 server. `fault` answers in its place."""

    def __init__(self, s3):
        self.s3, self.lifetime, self.fault = s3, 3600, None
        # What was asked for, the keys that were given, how many of them have ended, and requests that were not signed.
        self.asked, self.keys, self.ended, self.wrong = [], {}, 0, []
        # By bucket, what users are allowed.
        self.statements = {}
        self.lock, self.over, self.server, self.port = threading.Lock(), threading.Event(), None, 0
        self.up()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def up(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Answers)
        self.server.sts, self.port = self, self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def down(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def close(self):
        self.over.set()
        self.down()

    def session(self, asked):
        """Gives keys that can do what is asked for, and no more."""
        policy = json.loads(asked["Policy"])
        key, secret, token = f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(20), secrets.token_hex(40)
        ends = time.time() + self.lifetime
        with self.lock:
            self.asked.append({"name": asked["RoleSessionName"], "policy": policy, "text": asked["Policy"], "seconds": int(asked["DurationSeconds"])})
            self.keys[key] = (secret, token)
            self._admin("create-user", f"<Account><Access>{key}</Access><Secret>{secret}</Secret><Role>user</Role></Account>")
            for statement in policy["Statement"]:
                for resource in each(statement["Resource"]):
                    bucket = resource.removeprefix("arn:aws:s3:::").partition("/")[0]
                    allowed = {"Effect": "Allow", "Principal": {"AWS": key}, "Action": each(statement["Action"]), "Resource": resource}
                    self.statements.setdefault(bucket, []).append(allowed)
            self._allow()
        timer = threading.Timer(ends - time.time(), self.end, [key])
        timer.daemon = True
        timer.start()
        told = datetime.fromtimestamp(ends, UTC).isoformat().replace("+00:00", "Z")
        return (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
            f"<AssumedRoleUser><Arn>{ROLE}/x</Arn><AssumedRoleId>A:x</AssumedRoleId></AssumedRoleUser>"
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>"
            f"<Expiration>{told}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )

    def end(self, key):
        """The keys of a session are nobody's from now on."""
        with self.lock:
            if self.over.is_set():
                return
            for bucket, statements in self.statements.items():
                self.statements[bucket] = [statement for statement in statements if statement["Principal"]["AWS"] != key]
            self._allow()
            self._admin(f"delete-user?access={key}", "")
            self.ended += 1

    def _allow(self):
        client = self.s3.client()
        for bucket, statements in self.statements.items():
            if statements:
                client.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
            else:
                client.delete_bucket_policy(Bucket=bucket)

    def _admin(self, what, text):
        digest = hashlib.sha256(text.encode()).hexdigest()
        request = AWSRequest("PATCH", f"{self.s3.endpoint}/{what}", headers={"x-amz-content-sha256": digest}, data=text)
        SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(request)
        request = urllib.request.Request(request.url, data=text.encode(), headers=dict(request.headers), method="PATCH")
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            response.read()

    def client(self, which=-1):
        """S3's, with the keys of a session: what could be done by whoever had them."""
        key, (secret, token) = list(self.keys.items())[which]
        return boto3.client("s3", endpoint_url=self.s3.endpoint, aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, region_name="us-east-1")

    def named(self, name):
        """What was asked for in the name of a function."""
        return [asked for asked in self.asked if asked["name"] == name]


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        sts, body = self.server.sts, self.rfile.read(int(self.headers["content-length"]))
        if sts.fault:
            return sts.fault(self)
        if scope(self.headers)[2:] != ["us-east-1", "sts"] or not is_signed("POST", self.path, self.headers, body, KEY, SECRET):
            sts.wrong.append(dict(self.headers))
            return self.answer(403, refusal("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."))
        asked = dict(parse_qsl(body.decode()))
        if (asked["Action"], asked["Version"], asked["RoleArn"]) != ("AssumeRole", "2011-06-15", ROLE) or len(asked["Policy"]) > 2048:
            return self.answer(400, refusal("ValidationError", "that is no AssumeRole"))
        self.answer(200, sts.session(asked))

    def answer(self, status, text, media_type="text/xml"):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def each(one_or_more):
    return [one_or_more] if isinstance(one_or_more, str) else one_or_more


def refusal(code, message):
    return f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"


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
    server = S3Server(tmp_path_factory.mktemp("s3"), users=True).start()
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
    node = make_node(config=s3.configuration(tmp_path, role=ROLE, sts=sts.endpoint))
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
    return caught.value.response["Error"]["Code"] == "AccessDenied"


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
    # It is S3 that says no, too.
    stolen = sts.client()
    assert stolen.get_object(Bucket="pond", Key="in/a")["Body"].read() == b"pond/in/a"
    for bucket, key in (("pond", "out/a"), ("sea", "in/a")):
        assert denied(stolen.get_object, Bucket=bucket, Key=key)
    for call in (stolen.put_object, stolen.delete_object):
        assert denied(call, Bucket="pond", Key="in/a")
    assert denied(stolen.list_objects_v2, Bucket="pond", Prefix="in/")

    reads = [(who, key) for who, operation, key in s3.requests()[before:] if "GetObject" in operation]
    assert {"in/a", "in/b"} <= {key for _, key in reads} and {who for who, _ in reads} == set(sts.keys), "nothing is read with the node's own keys"
    said = log(node)
    assert not any(secret in said for secret in (SECRET, *(secret for both in sts.keys.values() for secret in both)))


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
        ("delete", None),
        ("list", [f"{key}.copy"]),
    ):
        assert do(app, what, key) == {"got": expected}, what
    key, (_, token) = list(sts.keys.items())[-1]
    url = do(app, "url", "all/k")["got"]
    assert f"X-Amz-Credential={key}%2F" in url and f"X-Amz-Security-Token={token}" in url
    assert len(sts.named("all.f")) == 1, "one session is enough for all of it"


def test_functions_have_sessions_of_their_own(node, sts):
    app = node.deploy("two", {
        "f": objects(HANDLER, granted("pond", "get", "list", prefix="in/")),
        "g": objects(HANDLER, granted("sea", "get", "put", prefix="out/")),
    })
    assert do(app, "get", "in/a") == {"got": "pond/in/a"} and do(app, "list", "in/") == {"got": ["in/a", "in/b"]}
    assert do(app, "get", "out/a", "g", bucket="sea") == {"got": "sea/out/a"}
    ([f], [g]) = (sts.named(f"two.{name}") for name in "fg")
    assert "pond" in f["text"] and "sea" not in f["text"] and "pond" not in g["text"]
    listing = [statement for statement in f["policy"]["Statement"] if "s3:ListBucket" in each(statement["Action"])]
    assert [statement["Condition"] for statement in listing] == [{"StringLike": {"s3:prefix": "in/*"}}]
    assert denied(sts.client(0).get_object, Bucket="sea", Key="out/a")
    assert denied(sts.client(1).get_object, Bucket="pond", Key="in/a")

    # A version that was granted something else has another session; what differs in nothing of that has the same.
    settings = granted("pond", "get", "list", prefix="in/")
    again = node.deploy("two", {"f": objects(HANDLER + "\n", settings), "g": objects(HANDLER, granted("pond", "get", prefix="in/"))})
    assert do(again, "get", "in/a") == {"got": "pond/in/a"} and do(again, "get", "in/a", "g") == {"got": "pond/in/a"}
    assert (len(sts.named("two.f")), len(sts.named("two.g"))) == (1, 2)


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
        assert do(app, "get", "in/a") == {"got": "pond/in/a"}
        return sts.ended

    eventually(has_ended, "the first keys have ended")
    assert do(app, "get", "in/a") == {"got": "pond/in/a"}
    assert len(sts.named("renewed.f")) >= 2
    assert denied_as_nobody(sts), "those that have ended open nothing"


def denied_as_nobody(sts):
    with pytest.raises(ClientError) as caught:
        sts.client(0).get_object(Bucket="pond", Key="in/a")
    return caught.value.response["Error"]["Code"] == "InvalidAccessKeyId"


def refuses(handler):
    handler.answer(403, refusal("AccessDenied", f"User: arn:of:the:node is not authorized to perform: sts:AssumeRole on resource: {ROLE}"))


def speaks_nonsense(handler):
    handler.answer(200, "<html>this is no STS</html>", "text/html")


def fails(handler):
    handler.answer(503, "overloaded", "text/plain")


def hangs(handler):
    handler.server.sts.over.wait(PATIENCE)
    handler.close_connection = True


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
    sts.over.set()
    sts.over = threading.Event()

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
