"""What Millpond's boto3 does with answers that no server can be asked for: run alone, over a backend that says what it is told to.

    PYTHONPATH=python/guest python3 -S tests/suite/boto3_faults.py FOLDER

prints, in JSON, what failed by the names of the checks. The folder has the real boto3, as a function might bring it.
"""

import copy
import datetime
import io
import json
import sys
import time
import traceback
import types
from urllib.parse import parse_qsl
from xml.etree import ElementTree
from xml.sax.saxutils import escape

backend = types.ModuleType("millpond.backend")


class Failed(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind, self.message, self.data = kind, message, b""


class Reply:
    """An answer; one whose body is longer than what comes breaks off, as `breaks` says."""

    breaks = "broken"

    def __init__(self, status=200, headers=(), body=b"", length=None):
        self.status, self._body = status, io.BytesIO(body)
        self.length = len(body) if length is None else length
        self.headers = [("content-length", str(self.length)), ("x-amz-request-id", "R"), ("x-amz-id-2", "H"), *headers]
        self._left, self.is_closed = self.length, False

    def read(self, n=-1):
        data = self._body.read(n)
        self._left -= len(data)
        if self._left and (n < 0 or len(data) < n):
            failure = Failed(self.breaks, "it broke off")
            failure.data = data
            raise failure
        return data

    def readinto(self, buffer):
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        self.is_closed = True


class Backend:
    """Answers one after the other, and keeps what was asked."""

    def __init__(self, *answers):
        self.answers, self.calls, self.patience, self.services = list(answers), [], [], []

    def __call__(self, service, operation, target, parameters, body=b"", length=None, patience=None):
        self.patience.append(patience)
        self.services.append(service)
        body = body.read(length) if hasattr(body, "read") else bytes(body)
        self.calls.append((operation, target, dict(parameters), body, length))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return type(answer)(answer.status, answer.headers[3:], answer._body.getvalue(), answer.length) if self.answers == [answer] else answer


backend.Failed, backend.Reply = Failed, Reply
sys.modules["millpond.backend"] = backend

import boto3  # noqa: E402
import botocore.client  # noqa: E402
import millpond  # noqa: E402
from botocore import _real, exceptions  # noqa: E402
from botocore.config import Config  # noqa: E402

millpond.backend = backend
botocore.client._BACKOFF = 0.001


def answered(*answers, **options):
    """A client, and the backend behind it."""
    backend.call = Backend(*answers)
    return boto3.client("s3", config=Config(**options)), backend.call


def document(status, **members):
    return Reply(status, [("content-type", "application/json")], json.dumps(members).encode())


def raises(kind, function, **arguments):
    try:
        function(**arguments)
    except kind as error:
        return error
    raise AssertionError(f"nothing raises {kind.__name__}")


def check_a_call_is_one_message():
    s3, asked = answered(Reply(headers=[("etag", '"e"')]))
    answer = s3.put_object(Bucket="b", Key="a b/+%é", Body=b"x", Metadata={"Name": "v"}, ContentType="t/x")
    assert asked.calls == [
        (
            "PUT",
            "/b/a%20b/%2B%25%C3%A9",
            {"x-millpond-document": "json", "x-amz-meta-name": "v", "content-type": "t/x", "x-millpond-checksum": "crc32"},
            b"x",
            None,
        )
    ]
    assert answer["ETag"] == '"e"' and answer["ResponseMetadata"]["RequestId"] == "R" and answer["ResponseMetadata"]["RetryAttempts"] == 0


def check_a_document_is_escaped():
    s3, asked = answered(document(200))
    s3.delete_objects(Bucket="b", Delete={"Objects": [{"Key": 'a&<b>"\r\n'}], "Quiet": True})
    method, target, fields, body, _ = asked.calls[0]
    assert (method, target, fields["x-millpond-checksum"]) == ("POST", "/b?delete", "crc32")
    assert body == (
        b'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Object><Key>a&amp;&lt;b&gt;&quot;&#xD;&#xA;</Key></Object>'
        b"<Quiet>true</Quiet></Delete>"
    ), body


def check_encoded_keys_are_decoded():
    listed = document(
        200,
        EncodingType="url",
        Prefix="a%20b%2F",
        Delimiter="%2F",
        IsTruncated="true",
        NextContinuationToken="%2F",
        KeyCount="1",
        Contents={"Key": "a%20b%2F%C3%A9+c", "Size": "3", "LastModified": "2024-02-03T04:05:06.000Z"},
        CommonPrefixes=[{"Prefix": "x%26"}],
    )
    s3, asked = answered(listed)
    answer = s3.list_objects_v2(Bucket="b", Prefix="a b/", MaxKeys=5)
    assert asked.calls[0][1] == "/b?list-type=2&prefix=a%20b%2F&max-keys=5&encoding-type=url"
    assert answer["Contents"][0]["Key"] == "a b/é c" and answer["CommonPrefixes"] == [{"Prefix": "x&"}]
    assert (answer["Prefix"], answer["Delimiter"], answer["NextContinuationToken"]) == ("a b/", "/", "%2F")
    assert answer["Contents"][0]["LastModified"].isoformat() == "2024-02-03T04:05:06+00:00"
    assert repr(answer["Contents"][0]["LastModified"].tzinfo) == "tzutc()"


def check_keys_encoded_by_choice_are_not():
    s3, _ = answered(document(200, EncodingType="url", Contents={"Key": "a%20b"}))
    assert s3.list_objects_v2(Bucket="b", EncodingType="url")["Contents"] == [{"Key": "a%20b"}]


def check_it_tries_again():
    s3, asked = answered(document(503, Code="SlowDown", Message="slow"), Failed("unavailable", "no"), Reply())
    body = io.BytesIO(b"0123")
    body.read(1)
    assert s3.put_object(Bucket="b", Key="k", Body=body)["ResponseMetadata"]["RetryAttempts"] == 2
    assert [call[3] for call in asked.calls] == [b"123"] * 3


def check_it_gives_up():
    s3, asked = answered(document(503, Code="SlowDown", Message="slow"))
    error = raises(exceptions.ClientError, s3.get_object, Bucket="b", Key="k")
    assert str(error) == "An error occurred (SlowDown) when calling the GetObject operation (reached max retries: 2): slow", error
    assert len(asked.calls) == 3 and error.response["ResponseMetadata"]["MaxAttemptsReached"]


def check_attempts_are_bounded_by_config():
    for retries, count in (({"max_attempts": 0}, 1), ({"max_attempts": 4}, 5), ({"total_max_attempts": 2}, 2), ({"mode": "legacy"}, 5)):
        s3, asked = answered(Failed("busy", "no"), retries=retries)
        raises(exceptions.EndpointConnectionError, s3.head_object, Bucket="b", Key="k")
        assert len(asked.calls) == count, (retries, len(asked.calls))


def check_patience_is_what_config_says():
    for options, patience in (({}, None), ({"read_timeout": 60}, None), ({"read_timeout": None}, None), ({"read_timeout": 0.5}, 0.5)):
        s3, asked = answered(Failed("timeout", "no word"), retries={"max_attempts": 1}, **options)
        raises(exceptions.ReadTimeoutError, s3.get_object, Bucket="b", Key="k")
        assert asked.patience == [patience] * 2, (options, asked.patience)


def check_what_may_have_been_done_is_done_again_where_that_does_no_harm():
    of, upload = {"Bucket": "b", "Key": "k"}, {"Bucket": "b", "Key": "k", "UploadId": "u"}
    delete = lambda **more: {"Bucket": "b", "Delete": {"Objects": [{"Key": "k", "VersionId": "v"}, {"Key": "l"} | more]}}
    day = datetime.datetime(2024, 2, 29, tzinfo=datetime.UTC)
    for name, params, is_repeated in (
        ("get_object", of | {"IfMatch": "e"}, True),
        ("head_object", of | {"IfNoneMatch": "e"}, True),
        ("put_object", of | {"Body": b"x"}, True),
        ("put_object", of | {"Body": b"x", "IfNoneMatch": "*"}, False),
        ("put_object", of | {"Body": b"x", "IfMatch": "e"}, False),
        ("put_object", of | {"Body": b"x", "WriteOffsetBytes": 1}, False),
        ("upload_part", upload | {"PartNumber": 1, "Body": b"x"}, True),
        ("delete_object", of, True),
        ("delete_object", of | {"IfMatch": "e"}, False),
        ("delete_object", of | {"IfMatchSize": 1}, False),
        ("delete_objects", delete(), True),
        ("delete_objects", delete(ETag="e"), False),
        ("delete_objects", delete(LastModifiedTime=day), False),
        ("copy_object", of | {"CopySource": "b/l"}, True),
        ("copy_object", of | {"CopySource": "b/l", "CopySourceIfMatch": "e"}, True),
        ("copy_object", of | {"CopySource": {"Bucket": "b", "Key": "k"}, "CopySourceIfUnmodifiedSince": day}, False),
        ("copy_object", of | {"CopySource": "b/l", "IfNoneMatch": "*"}, False),
        ("upload_part_copy", upload | {"PartNumber": 1, "CopySource": "b/k", "CopySourceIfMatch": "e"}, True),
        ("create_multipart_upload", of, True),
        ("abort_multipart_upload", upload, True),
        ("complete_multipart_upload", upload, True),
        ("complete_multipart_upload", upload | {"IfNoneMatch": "*"}, False),
        ("restore_object", of, False),
    ):
        for kind, error in (
            ("lost", exceptions.UnansweredError),
            ("broken", exceptions.ConnectionClosedError),
            ("timeout", exceptions.ReadTimeoutError),
        ):
            s3, asked = answered(Failed(kind, "it has gone"))
            raised = raises(error, getattr(s3, name), **params)
            assert len(asked.calls) == (3 if is_repeated else 1), (name, params, kind, len(asked.calls))
            assert kind != "lost" or str(raised).endswith("It may have been done or not: it has gone."), raised
        s3, asked = answered(Failed("unavailable", "nobody was asked"))
        raises(exceptions.EndpointConnectionError, getattr(s3, name), **params)
        assert len(asked.calls) == 3, (name, params)


def check_what_is_gone_was_done():
    upload = {"Bucket": "b", "Key": "k", "UploadId": "u"}
    gone, ended = document(404, Code="NoSuchUpload", Message="it is not there"), document(200, ETag='"e-1"', Key="k")
    for doubt in (Failed("lost", "gone"), Failed("broken", "it ended"), Failed("timeout", "late"), document(500, Code="InternalError", Message="oh")):
        # Who asks again says so: the backend looks whether the object is there.
        s3, asked = answered(doubt, ended)
        assert s3.complete_multipart_upload(**upload)["ETag"] == '"e-1"'
        assert [call[2].get("x-millpond-repeated") for call in asked.calls] == [None, "1"], asked.calls
        s3, asked = answered(doubt, gone)
        told = str(raises(exceptions.UnansweredError, s3.complete_multipart_upload, **upload))
        assert "NoSuchUpload" in told and len(asked.calls) == 2, told
        for name, params, code in (("abort_multipart_upload", upload, "NoSuchUpload"), ("delete_bucket", {"Bucket": "b"}, "NoSuchBucket")):
            s3, asked = answered(doubt, document(404, Code=code, Message="it is not there"))
            assert getattr(s3, name)(**params)["ResponseMetadata"]["HTTPStatusCode"] == 204 and len(asked.calls) == 2
    # What was surely not done is not taken for that.
    for undone in (None, Failed("unavailable", "nobody"), document(503, Code="SlowDown", Message="slow")):
        for name in ("complete_multipart_upload", "abort_multipart_upload"):
            s3, asked = answered(*filter(None, [undone]), gone)
            raises(s3.exceptions.NoSuchUpload, getattr(s3, name), **upload)
            assert not any("x-millpond-repeated" in call[2] for call in asked.calls)


def check_failures_have_botocores_names():
    kinds = {
        "unavailable": exceptions.EndpointConnectionError,
        "timeout": exceptions.ReadTimeoutError,
        "broken": exceptions.ConnectionClosedError,
        "lost": exceptions.UnansweredError,
        "credentials": exceptions.CredentialRetrievalError,
        "target": exceptions.HTTPClientError,
    }
    for kind, wanted in kinds.items():
        s3, _ = answered(Failed(kind, "no"), retries={"max_attempts": 0})
        assert type(raises(exceptions.BotoCoreError, s3.head_object, Bucket="b", Key="k")) is wanted
    s3, asked = answered(Failed("credentials", "no keys"))
    error = raises(exceptions.CredentialRetrievalError, s3.head_object, Bucket="b", Key="k")
    assert str(error) == "Error when retrieving credentials from the node: no keys" and len(asked.calls) == 1
    s3, _ = answered(Failed("denied", "not granted"))
    error = raises(s3.exceptions.AccessDenied, s3.head_object, Bucket="b", Key="k")
    assert error.response["Error"] == {"Code": "AccessDenied", "Message": "not granted"}


def check_a_body_that_breaks_off():
    s3, asked = answered(Reply(body=b"0123", length=10))
    body = s3.get_object(Bucket="b", Key="k")["Body"]
    assert body.read(4) == b"0123"
    raises(exceptions.IncompleteReadError, body.read)
    s3, asked = answered(Reply(body=b"0123", length=10))
    raises(exceptions.ResponseStreamingError, s3.get_object(Bucket="b", Key="k")["Body"].read)
    assert len(asked.calls) == 1


def check_a_closed_body_is_let_go():
    reply = Reply(body=b"0123")
    s3, _ = answered(reply, None)
    s3.get_object(Bucket="b", Key="k")["Body"].close()
    assert reply.is_closed


def check_a_download_goes_on_where_it_broke_off():
    head, whole = Reply(), b"0123456789"
    head.headers = [("content-length", "10"), ("etag", '"e"')]
    s3, asked = answered(head, Reply(body=whole[:4], length=10), Reply(body=whole))
    into, told = io.BytesIO(), []
    s3.download_fileobj("b", "k", into, Callback=told.append, Config=boto3.s3.transfer.TransferConfig(io_chunksize=3))
    assert into.getvalue() == whole and sum(told) == 10 and len(asked.calls) == 3


def check_an_error_after_200():
    s3, asked = answered(document(200, Code="InternalError", Message="oh"))
    error = raises(exceptions.ClientError, s3.complete_multipart_upload, Bucket="b", Key="k", UploadId="u")
    assert error.response["Error"]["Code"] == "InternalError" and len(asked.calls) == 3
    s3, asked = answered(document(200, Code="InternalError", Message="oh"), document(200, ETag='"e"'))
    assert s3.copy_object(Bucket="b", Key="k", CopySource="b/a")["CopyObjectResult"] == {"ETag": '"e"'}
    assert [call[2]["x-amz-copy-source"] for call in asked.calls] == ["b/a"] * 2


def check_an_upload_that_fails_is_aborted():
    answers = lambda: [document(200, UploadId="u"), document(403, Code="AccessDenied", Message="no")]
    s3, asked = answered(*answers())
    config = boto3.s3.transfer.TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=2)
    raises(exceptions.ClientError, s3.upload_fileobj, Fileobj=io.BytesIO(bytes(11 << 20)), Bucket="b", Key="k", Config=config)
    assert asked.calls[-1][:2] == ("DELETE", "/b/k?uploadId=u")
    # What went wrong first is what is told, whatever becomes of the abortion.
    s3, asked = answered(*answers(), Failed("lost", "gone"), retries={"max_attempts": 0})
    told = raises(exceptions.ClientError, s3.upload_fileobj, Fileobj=io.BytesIO(bytes(5 << 20)), Bucket="b", Key="k", Config=config)
    assert "AccessDenied" in str(told)


def check_an_answer_that_is_no_document():
    s3, _ = answered(Reply(500, body=b"<html>"), retries={"max_attempts": 0})
    error = raises(exceptions.ClientError, s3.list_buckets)
    assert error.response["Error"] == {"Code": "500", "Message": "Internal Server Error"}


def check_locations():
    for told, wanted in (("", None), ("eu-west-1", "eu-west-1")):
        s3, _ = answered(Reply(body=json.dumps(told).encode()))
        assert s3.get_bucket_location(Bucket="b")["LocationConstraint"] == wanted


def check_grants():
    grant = {"Grantee": {"Type": "CanonicalUser", "ID": "i"}, "Permission": "READ"}
    s3, asked = answered(document(200, Owner={"ID": "i"}, AccessControlList={"Grant": grant}))
    got = s3.get_bucket_acl(Bucket="b")
    assert got["Grants"] == [grant]
    s3.put_bucket_acl(Bucket="b", AccessControlPolicy={"Grants": got["Grants"], "Owner": got["Owner"]})
    assert b'xsi:type="CanonicalUser"><ID>i</ID></Grantee><Permission>READ</Permission></Grant>' in asked.calls[1][3]


def check_keys_of_customers():
    s3, asked = answered(Reply())
    s3.put_object(Bucket="b", Key="k", Body=b"", SSECustomerAlgorithm="AES256", SSECustomerKey=b"0" * 32)
    fields = asked.calls[0][2]
    assert fields["x-amz-server-side-encryption-customer-key"] == "MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA="
    assert fields["x-amz-server-side-encryption-customer-key-md5"] == "zZ5FnqcIqUjVwvWmyog4zw=="


class Lost(Reply):
    breaks = "lost"


def check_an_object_goes_on_when_the_backend_is_lost():
    about, data = [("etag", '"e"')], bytes(range(100))
    rest = lambda first, last, body: Reply(206, [("content-range", f"bytes {first}-{last}/100"), ("etag", '"e"')], body, last + 1 - first)
    s3, asked = answered(Lost(200, about, data[:30], 100), Lost(206, [("content-range", "bytes 30-99/100")], data[30:50], 70), rest(50, 99, data[50:]))
    assert s3.get_object(Bucket="b", Key="k", IfNoneMatch="x")["Body"].read() == data
    assert [call[2].get("range") for call in asked.calls] == [None, "bytes=30-99", "bytes=50-99"]
    assert all(call[2]["if-match"] == '"e"' and "if-none-match" not in call[2] for call in asked.calls[1:])
    # Of a part, the rest of that part.
    s3, asked = answered(Lost(206, [*about, ("content-range", "bytes 10-29/100")], data[10:15], 20), rest(15, 29, data[15:30]))
    assert s3.get_object(Bucket="b", Key="k", Range="bytes=10-29")["Body"].read(20) == data[10:30]
    assert asked.calls[1][2]["range"] == "bytes=15-29"
    # Where it is another object by now, or nobody knows which it was, it breaks off.
    for first in (Lost(200, about, data[:30], 100), Lost(200, [], data[:30], 100)):
        s3, _ = answered(first, Reply(412))
        raises(exceptions.ResponseStreamingError, s3.get_object(Bucket="b", Key="k")["Body"].read)


def check_presigning():
    s3, asked = answered(Reply(body=b"http://signed"))
    assert s3.generate_presigned_url("put_object", Params={"Bucket": "b", "Key": "k", "ContentType": "a/b"}, ExpiresIn=9) == "http://signed"
    assert asked.calls[0][:3] == ("PUT", "/b/k", {"content-type": "a/b", "x-millpond-presign": "9", "x-millpond-document": "json"})
    s3, asked = answered(Failed("lost", "gone"), Failed("unavailable", "gone"), Reply(body=b"http://signed"))
    assert s3.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"}) == "http://signed", "nothing is sent"
    s3, asked = answered(Failed("lost", "gone"))
    raises(exceptions.UnansweredError, s3.generate_presigned_post, Bucket="b", Key="k")
    assert len(asked.calls) == 3
    s3, _ = answered(Reply(403, body=b'{"Code": "AccessDenied", "Message": "Access Denied"}'))
    denied = raises(exceptions.ClientError, s3.generate_presigned_url, ClientMethod="get_object", Params={"Bucket": "b", "Key": "k"})
    assert denied.response["Error"]["Code"] == "AccessDenied"


def check_what_is_not_here_says_so():
    s3, _ = answered(Reply())
    assert "add boto3 to the function's requirements" in str(raises(exceptions.BotoCoreError, lambda: s3.select_object_content))
    assert not hasattr(s3, "select_object_content")


def check_clients_of_other_services_can_be_made():
    """As a module makes them beside S3's: what fails is what is asked of them, by botocore's name for it."""
    sns = boto3.client("sns", region_name="eu-west-1", config=Config(read_timeout=3))
    assert (sns.meta.region_name, sns.meta.config.read_timeout, sns.meta.service_model.service_name) == ("eu-west-1", 3, "sns")
    told = raises(exceptions.EndpointConnectionError, sns.publish, TopicArn="t", Message="m")
    assert str(told).startswith("sns.publish: ") and "does not reach the network" in str(told)
    pages = sns.get_paginator("list_topics").paginate(PaginationConfig={"PageSize": 1})
    raises(exceptions.EndpointConnectionError, lambda: list(pages))
    raises(exceptions.EndpointConnectionError, boto3.client("ec2").get_waiter("instance_running").wait, InstanceIds=["i"])
    try:
        raise exceptions.ClientError({"Error": {"Code": "X"}}, "Y")
    except (sns.exceptions.NotFoundException, sns.exceptions.InvalidParameterException):
        raise AssertionError from None
    except sns.exceptions.ClientError:
        pass
    table = boto3.resource("dynamodb").Table("movies")
    assert "movies" in repr(table) and table.meta.client.meta.service_model.service_name == "dynamodb"
    uses = [table.put_item, lambda: str(table.item_count), lambda: list(boto3.resource("ec2").instances.filter(Filters=[]))]
    for use in (*uses, lambda: table.batch_writer().__enter__(), lambda: boto3.client("ssm").get_parameter(Name="n")["Parameter"]):
        raises(exceptions.EndpointConnectionError, use)
    assert not hasattr(sns, "__len__") and copy.copy(sns).meta is sns.meta
    sns.close()


def check_names_that_programs_import():
    import boto3.session
    from botocore import UNSIGNED
    from botocore.errorfactory import ClientError
    from botocore.exceptions import EndpointResolutionError, InvalidRegionError, UnauthorizedSSOTokenError
    from botocore.handlers import disable_signing

    assert ClientError is exceptions.ClientError and boto3.session.Config is Config and disable_signing() is UNSIGNED
    assert issubclass(InvalidRegionError, exceptions.ValidationError) and issubclass(UnauthorizedSSOTokenError, exceptions.SSOError)
    assert issubclass(EndpointResolutionError, exceptions.EndpointProviderError) and not hasattr(exceptions, "Nonsense")
    assert not hasattr(botocore.handlers, "validate_bucket_name") and not hasattr(botocore.errorfactory, "ClientExceptionsFactory")


# --- each operation, as the real one's own description of S3 has it ---


def sample(shape, inside=()):
    """A value of this shape, with all that it may have."""
    if shape.type_name == "structure":
        inside = (*inside, shape.name)
        return {name: sample(member, inside) for name, member in shape.members.items() if member.name not in inside}
    if shape.type_name == "list":
        return [sample(shape.member, inside)] * 2
    if shape.type_name == "map":
        return {"key": "value"}
    if shape.type_name == "timestamp":
        return datetime.datetime(2024, 2, 29, 1, 2, 3, tzinfo=datetime.UTC)
    return {"boolean": True, "integer": 7, "long": 8, "blob": b"bytes"}.get(shape.type_name, f"{shape.name} <&")


def tree(element):
    """An element without what its names are short for."""
    kind = [value for name, value in element.attrib.items() if name.endswith("type")]
    return [element.tag.rpartition("}")[2], kind, (element.text or "") if not len(element) else "", [tree(inner) for inner in element]]


def as_json(element):
    """A document as the backend gives it."""
    if not len(element) and not element.attrib:
        return element.text or ""
    found = {"Type": value for name, value in element.attrib.items() if name.endswith("type")}
    for inner in element:
        name, value = inner.tag.rpartition("}")[2], as_json(inner)
        if name not in found:
            found[name] = value
        else:
            found[name] = [*(found[name] if isinstance(found[name], list) else [found[name]]), value]
    return found


def written(name, value, shape):
    """An element of an answer."""
    if shape.type_name == "list" and shape.serialization.get("flattened"):
        return "".join(written(name, one, shape.member) for one in value)
    if shape.type_name == "list":
        inner = "".join(written(shape.member.serialization.get("name", "member"), one, shape.member) for one in value)
    elif shape.type_name == "structure":
        members = {name: one for name, one in shape.members.items() if name in value and not one.serialization.get("xmlAttribute")}
        inner = "".join(written(one.serialization.get("name", member), value[member], one) for member, one in members.items())
        if shape.name == "Grantee":
            schema = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"'
            return f"<{name} {schema}>{inner}</{name}>"
    else:
        inner = value.strftime("%Y-%m-%dT%H:%M:%S.000Z") if shape.type_name == "timestamp" else escape(str(value).replace("True", "true"))
    return f"<{name}>{inner}</{name}>"


def described():
    """The real one's client, and its descriptions of what ours can do, too."""
    theirs = _real.client("it", "s3", region_name="us-east-1")
    model = theirs.meta.service_model
    ours = boto3.client("s3").meta.service_model.operation_names
    return theirs, [model.operation_model(name) for name in ours]


def check_what_is_asked_is_what_the_real_one_asks():
    sys.path.append(sys.argv[1])
    try:
        theirs, operations = described()
        assert len(operations) > 90
        for operation in operations:
            params = sample(operation.input_shape) if operation.input_shape else {}
            params |= {name: "b1b" for name in params if name == "Bucket"}
            # Whoever sends it makes the sum.
            params.pop("ChecksumAlgorithm", None)
            wanted = theirs._serializer.serialize_to_request(params, operation)
            ours = botocore.client.Request(botocore.client.operation_of(operation.name), params, Config())
            path, _, query = ours.target.partition("?")
            wanted_path, _, wanted_query = wanted["url_path"].partition("?")
            assert (ours.method, path) == (wanted["method"], wanted_path), (operation.name, ours.target, wanted)
            asked = dict(parse_qsl(query, keep_blank_values=True))
            fixed = dict(parse_qsl(wanted_query, keep_blank_values=True))
            assert asked == fixed | {name: str(value) for name, value in wanted["query_string"].items()}, (operation.name, asked, wanted)
            fields = {name: value for name, value in ours.fields if not name.startswith("x-millpond-")}
            if ours.length is not None:
                fields["content-length"] = str(ours.length)
            for name in ("content-type", "expect"):
                if operation.input_shape and name not in {
                    str(one.serialization.get("name")).lower() for one in operation.input_shape.members.values()
                }:
                    wanted["headers"].pop(name.title(), None)
            assert fields == {name.lower(): value for name, value in wanted["headers"].items()}, (operation.name, fields, wanted)
            body, wanted_body = bytes(ours.body), wanted["body"]
            if wanted_body and wanted_body[:1] == b"<":
                assert tree(ElementTree.fromstring(body)) == tree(ElementTree.fromstring(wanted_body)), (operation.name, body, wanted_body)
            else:
                assert body == (wanted_body.encode() if isinstance(wanted_body, str) else wanted_body), (operation.name, body, wanted_body)
    finally:
        sys.path.remove(sys.argv[1])


def check_what_is_answered_is_what_the_real_one_reads():
    sys.path.append(sys.argv[1])
    try:
        theirs, operations = described()
        for operation in operations:
            shape = operation.output_shape
            # One's document has no name but its root's, two others' are text, or bytes, and in the last one's two members have one name.
            if shape is None or operation.name in ("GetBucketLocation", "GetBucketPolicy", "GetObject", "GetBucketNotification"):
                continue
            value, fields, inner = sample(shape), {"x-amz-request-id": "R", "x-amz-id-2": "H"}, ""
            for name, member in shape.members.items():
                where = member.serialization.get("location")
                field = member.serialization.get("name", name).lower()
                if where == "headers":
                    fields |= {field + key: text for key, text in value[name].items()}
                elif where:
                    one = value[name]
                    is_time = isinstance(one, datetime.datetime)
                    fields[field] = one.strftime("%a, %d %b %Y %H:%M:%S GMT") if is_time else str(one).replace("True", "true")
                else:
                    inner += written(member.serialization.get("name", name), value[name], member)
            is_payload = shape.serialization.get("payload")
            text = inner if is_payload else f'<Result xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inner}</Result>'
            text = text if inner else ""
            answer = {"status_code": 200, "headers": _real._modules["botocore.awsrequest"].HeadersDict(fields), "body": text.encode()}
            wanted = theirs._response_parser.parse(answer, shape)
            document = json.dumps(as_json(ElementTree.fromstring(text))).encode() if text else b""
            ours = botocore.client._answer(botocore.client.operation_of(operation.name), 200, fields, document)
            for one in (ours, wanted):
                one.pop("ResponseMetadata"), one.pop("ExpiresString", None), one.pop("Expires", None)
            assert ours == wanted, (operation.name, ours, wanted)
    finally:
        sys.path.remove(sys.argv[1])


def check_the_real_one_works_beside():
    sys.path.append(sys.argv[1])
    try:
        dynamodb = boto3.client("dynamodb", region_name="us-east-1", config=Config(retries={"max_attempts": 0}))
        from boto3.dynamodb.conditions import Key
        from botocore.auth import SigV4Auth
        from botocore.errorfactory import ClientExceptionsFactory
        from botocore.handlers import validate_bucket_name

        assert type(dynamodb).__name__ == "DynamoDB" and Key("a").eq(1) and SigV4Auth and ClientExceptionsFactory
        raises(exceptions.ParamValidationError, validate_bucket_name, params={"Bucket": "a/b"})
        assert issubclass(dynamodb.exceptions.ResourceNotFoundException, exceptions.ClientError)
        raises(exceptions.ParamValidationError, dynamodb.list_tables, Nonsense=1)
        check_what_it_asks_of_other_services_is_carried()
        assert repr(boto3.resource("dynamodb", region_name="us-east-1").Table("t")) == "dynamodb.Table(name='t')"
        check_what_it_asks_of_s3_is_carried()
        raises(exceptions.UnknownServiceError, boto3.client, service_name="nonsense", region_name="us-east-1")
    finally:
        sys.path.remove(sys.argv[1])


def check_what_it_asks_of_s3_is_carried():
    if sys.argv[1] not in sys.path:
        return
    xml = b"<AbacStatus><Status>Enabled</Status></AbacStatus>"
    s3, asked = answered(Reply(headers=[("content-type", "application/xml")], body=xml), retries={"total_max_attempts": 2, "mode": "standard"})
    assert s3.get_bucket_abac(Bucket="b1b")["AbacStatus"] == {"Status": "Enabled"}
    method, target, fields, body, _ = asked.calls[0]
    assert (method, target, body) == ("GET", "/b1b?abac", b"") and "authorization" not in fields
    assert s3.head_object(Bucket="b", Key="k")["ContentLength"] == len(xml)
    theirs = s3._real
    assert type(theirs) is not type(s3) and theirs.get_object(Bucket="b1b", Key="a b")["Body"].read() == xml
    # Bodies of each kind; what is uploaded has a sum in its head, and no framing of its own.
    for given in (b"data", bytearray(b"data"), io.BytesIO(b"data")):
        theirs.put_object(Bucket="b1b", Key="k", Body=given)
        assert asked.calls[-1][0] == "PUT" and asked.calls[-1][3] == b"data"
        assert "x-amz-checksum-crc32" in asked.calls[-1][2] and "content-encoding" not in asked.calls[-1][2]
    # Its failures are those of both.
    s3, asked = answered(Failed("unavailable", "gone"))
    theirs = s3._theirs("operation", "x")
    raises(exceptions.EndpointConnectionError, theirs.get_bucket_website, Bucket="b1b")
    assert len(asked.calls) == 3
    s3, asked = answered(Failed("denied", "nothing <granted>"))
    error = raises(exceptions.ClientError, s3._theirs("operation", "x").get_bucket_website, Bucket="b1b")
    assert error.response["Error"] == {"Code": "AccessDenied", "Message": "nothing <granted>"}
    s3, asked = answered(Reply(body=b"abc", length=9))
    raises(exceptions.ResponseStreamingError, s3._theirs("operation", "x").get_object(Bucket="b1b", Key="k")["Body"].read)
    arn = "arn:aws:s3:us-east-1:123456789012:accesspoint/point"
    assert raises(exceptions.ClientError, s3._theirs("operation", "x").get_object, Bucket=arn, Key="k").response["Error"]["Code"] == "AccessDenied"
    # Lambda's, as S3's.
    client, asked = boto3.client("lambda", region_name="us-east-1"), Backend(Reply(404, [("x-amzn-errortype", "ResourceNotFoundException")], b"{}"))
    backend.call = asked
    error = raises(exceptions.ClientError, client.get_function, FunctionName="f")
    assert error.response["Error"]["Code"] == "ResourceNotFoundException" and asked.calls[0][1] == "/2015-03-31/functions/f"


def check_what_it_asks_of_other_services_is_carried():
    if sys.argv[1] not in sys.path:
        return
    config = Config(retries={"max_attempts": 0})
    dynamodb, sns = (boto3.client(name, region_name="us-east-1", config=config) for name in ("dynamodb", "sns"))
    backend.call = asked = Backend(Reply(headers=[("content-type", "application/x-amz-json-1.0")], body=b'{"TableNames":["t"]}'))
    assert dynamodb.list_tables()["TableNames"] == ["t"]
    method, target, fields, body, _ = asked.calls[0]
    assert (asked.services, method, target, body) == (["aws"], "POST", "/", b"{}")
    assert (fields["x-millpond-service"], fields["x-amz-target"]) == ("dynamodb", "DynamoDB_20120810.ListTables")
    assert "authorization" not in fields
    for client, ask, code in ((dynamodb, "list_tables", "AccessDeniedException"), (sns, "list_topics", "AccessDenied")):
        backend.call = Backend(Failed("denied", "nothing <granted>"))
        error = raises(exceptions.ClientError, getattr(client, ask))
        assert error.response["Error"]["Code"] == code and error.response["Error"]["Message"] == "nothing <granted>", error.response
    backend.call = Backend(Failed("unavailable", "gone"))
    raises(exceptions.EndpointConnectionError, dynamodb.list_tables)
    check_what_it_asks_of_a_lost_backend_is_asked_again_if_it_changes_nothing()


def check_what_it_asks_of_a_lost_backend_is_asked_again_if_it_changes_nothing():
    if sys.argv[1] not in sys.path:
        return
    key, body, sleep = {"Id": {"S": "1"}}, b"<PublishResponse/>", time.sleep
    # The real one's pauses are of seconds.
    time.sleep = lambda _: None
    for mode in ("legacy", "standard", "adaptive"):
        config = Config(retries={"total_max_attempts": 2, "mode": mode})
        dynamodb, sns = (boto3.client(name, region_name="us-east-1", config=config) for name in ("dynamodb", "sns"))
        theirs = answered(Reply(), retries={"total_max_attempts": 2, "mode": mode})[0]._theirs("operation", "x")
        of = {"Bucket": "b1b", "Key": "k"}
        delete = lambda **more: {"Bucket": "b1b", "Delete": {"Objects": [{"Key": "k"} | more]}}
        for ask, params, is_repeated in (
            (dynamodb.list_tables, {}, True),
            (dynamodb.get_item, {"TableName": "t", "Key": key}, True),
            (dynamodb.query, {"TableName": "t"}, True),
            (dynamodb.put_item, {"TableName": "t", "Item": key}, False),
            (dynamodb.update_item, {"TableName": "t", "Key": key}, False),
            (sns.list_topics, {}, True),
            (sns.publish, {"TopicArn": "t", "Message": "Action=ListTopics"}, False),
            (theirs.get_object, of, True),
            (theirs.put_object, of | {"Body": io.BytesIO(b"x")}, True),
            (theirs.put_object, of | {"Body": b"x", "IfNoneMatch": "*"}, False),
            (theirs.delete_objects, delete(), True),
            (theirs.delete_objects, delete(ETag="e"), False),
            (theirs.create_multipart_upload, of, True),
            (theirs.complete_multipart_upload, of | {"UploadId": "u"}, False),
        ):
            # Before the answer has begun, and in it.
            for answer in (Failed("lost", "it has gone"), Lost(headers=[("content-type", "text/xml")], body=body, length=99)):
                if ask == theirs.get_object and isinstance(answer, Reply):
                    continue
                backend.call = asked = Backend(answer)
                error = raises(exceptions.ConnectionClosedError, ask, **params)
                assert len(asked.calls) == (2 if is_repeated else 1), (mode, ask, params, answer, len(asked.calls))
                assert is_repeated or ("may have been done or not" in str(error) and isinstance(error, exceptions.UnansweredError))
        backend.call = asked = Backend(Failed("unavailable", "nobody was asked"))
        raises(exceptions.EndpointConnectionError, sns.publish, TopicArn="t", Message="m")
        assert len(asked.calls) == 2
    time.sleep = sleep


def check_lambda():
    throttled = Reply(429, [("x-amzn-errortype", "TooManyRequestsException"), ("retry-after", "1")], b'{"Type":"User","message":"m","Reason":"R"}')
    done = Reply(200, [("x-amz-executed-version", "7"), ("x-amzn-requestid", "I")], b"null")
    client = boto3.client("lambda")
    backend.call = asked = Backend(throttled, done)
    answer = client.invoke(FunctionName="f:1", Payload="{}", Qualifier="a/b")
    assert answer["Payload"].read() == b"null" and answer["ExecutedVersion"] == "7" and answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert asked.calls[0][:2] == ("POST", "/2015-03-31/functions/f%3A1/invocations?Qualifier=a%2Fb")
    backend.call = Backend(throttled, throttled, throttled)
    error = raises(client.exceptions.TooManyRequestsException, client.invoke, FunctionName="f")
    assert (error.response["Reason"], error.response["retryAfterSeconds"]) == ("R", "1")
    assert error.response["ResponseMetadata"]["MaxAttemptsReached"] is True
    # What may have run is not run again.
    backend.call = asked = Backend(Failed("broken", "it ended"))
    raises(exceptions.ConnectionClosedError, client.invoke, FunctionName="f")
    assert len(asked.calls) == 1
    for kind in ("RequestResponse", "Event"):
        backend.call = asked = Backend(Failed("lost", "it has gone"))
        error = raises(exceptions.UnansweredError, client.invoke, FunctionName="f", InvocationType=kind)
        assert len(asked.calls) == 1 and "may have been done or not: it has gone" in str(error)
    for given in ({"Qualifier": ""}, {"Payload": 1}, {"X": 1}, {"FunctionName": ""}):
        raises(exceptions.ParamValidationError, client.invoke, **{"FunctionName": "f"} | given)
    raises(exceptions.ParamValidationError, client.invoke)
    assert not client.can_paginate("invoke") and raises(ValueError, client.get_waiter, waiter_name="function_active")


def check_hooks_see_each_attempt():
    s3, asked = answered(Reply(503), Reply(headers=[("etag", '"e"')]))
    seen, events = [], s3.meta.events

    def created(request, **_):
        request.headers["If-Match"] = f'"{len(seen)}"'
        seen.append(request.headers.get("if-match"))

    events.register("request-created.s3", created)
    events.register("after-call.s3", lambda parsed, **_: seen.append(parsed["ResponseMetadata"]["RetryAttempts"]))
    events.register("after-call-error.s3", lambda exception, **_: seen.append(type(exception).__name__))
    events.register("choose-signer.s3", lambda **_: seen.append("signer"))
    s3.put_object(Bucket="b", Key="k", Body=io.BytesIO(b"data"))
    assert seen == ['"0"', '"1"', 1]
    assert [(call[2]["if-match"], call[3], call[2]["x-millpond-checksum"]) for call in asked.calls] == [('"0"', b"data", "crc32"), ('"1"', b"data", "crc32")]
    # With a condition, it is not asked again where it may have been done; and without, it is.
    for step in ("request-created", "before-sign", "before-call", None):
        s3, asked = answered(Failed("lost", "it has gone"), Reply())
        if step:
            s3.meta.events.register(f"{step}.s3", lambda request=None, params=None, **_: (params["headers"] if params else request.headers).update({"if-none-match": "*"}))
            raises(exceptions.UnansweredError, s3.put_object, Bucket="b", Key="k", Body=b"x")
        else:
            s3.put_object(Bucket="b", Key="k", Body=b"x")
        assert len(asked.calls) == (1 if step else 2), step
    s3, _ = answered(Failed("broken", "it ended"))
    s3.meta.events.register("after-call-error.s3.GetObject", lambda exception, **_: seen.append(type(exception).__name__))
    raises(exceptions.ConnectionClosedError, s3.get_object, Bucket="b", Key="k")
    raises(exceptions.ParamValidationError, s3.get_object, Bucket="b", Nonsense=1)
    assert seen[3:] == ["ConnectionClosedError"]


def check_hooks_of_where_it_goes():
    s3, asked = answered(Reply())

    def elsewhere(params, **_):
        params["url"] = params["url"].replace("https://", "https://cdn.")

    s3.meta.events.register("before-call.s3.GetObject", elsewhere)
    assert "cdn." in str(raises(_real.Missing, s3.get_object, Bucket="b", Key="k")) and not asked.calls
    s3.meta.events.register("before-sign.s3.HeadObject", lambda request, **_: setattr(request, "url", request.url + "&x=1"))
    s3.head_object(Bucket="b", Key="k", PartNumber=1)
    assert asked.calls[0][1] == "/b/k?partNumber=1&x=1"
    s3.meta.events.register("before-sign.s3.PutObject", lambda request, **_: request.headers.update({"Host": "h", "Authorization": "a", "Content-Length": "3"}))
    s3.put_object(Bucket="b", Key="k", Body=b"x")
    assert not asked.calls[1][2].keys() & {"host", "authorization", "content-length"}


def check_hooks_of_the_rest_of_a_body():
    broken = Lost(headers=[("etag", '"e"')], body=b"abc", length=6)
    rest = Reply(206, [("etag", '"e"'), ("content-range", "bytes 3-5/6")], b"def")
    s3, asked = answered(broken, rest)
    s3.meta.events.register("before-sign.s3", lambda request, **_: request.headers.update({"x-amz-request-payer": "requester"}))
    assert s3.get_object(Bucket="b", Key="k")["Body"].read() == b"abcdef"
    assert [call[2]["x-amz-request-payer"] for call in asked.calls] == ["requester"] * 2


def check_hooks_of_lambda():
    client, seen = boto3.client("lambda"), []
    backend.call = asked = Backend(Reply(429, [("x-amzn-errortype", "TooManyRequestsException")], b"{}"), Reply(200, [], b"null"))
    events = client.meta.events
    events.register("before-parameter-build.lambda.Invoke", lambda params, **_: params.update(Payload=b"hook's"))
    events.register("request-created.lambda", lambda request, **_: request.headers.update({"x-amz-log-type": "Tail"}))
    events.register("after-call.lambda", lambda http_response, parsed, **_: seen.append((http_response.status_code, parsed.get("StatusCode"))))
    client.invoke(FunctionName="f", Payload=b"program's")
    assert [(call[2], call[3]) for call in asked.calls] == [({"x-amz-log-type": "Tail"}, b"hook's")] * 2 and seen == [(200, 200)]
    error = {"Error": {"Code": "ServiceException", "Message": "m"}}
    events.register("before-call.lambda", lambda **_: (types.SimpleNamespace(status_code=500), error))
    raises(client.exceptions.ServiceException, client.invoke, FunctionName="f")


def check_hooks_that_only_the_real_one_calls():
    s3, session = boto3.client("s3"), boto3.Session()
    names = ("needs-retry.s3", "before-send.s3.PutObject", "response-received", "*.s3", "getattr.*", "before-parse.*.GetObject")
    for name in names:
        for events in (s3.meta.events, session.events):
            error = raises(_real.Missing, events.register, event_name=name, handler=lambda **_: None)
            assert name in str(error) and "add boto3 to the function's requirements" in str(error)
    raises(_real.Missing, session.events.register_last, event_name="creating-resource-class.s3.Bucket", handler=lambda **_: None)
    # Others' are theirs, and nobody is asked for them.
    session.events.register("needs-retry.dynamodb", lambda **_: None)
    boto3.client("dynamodb", region_name="us-east-1").meta.events.register("before-send", lambda **_: None)
    boto3.client("lambda").meta.events.register("before-send.s3", lambda **_: None)
    s3, _ = answered(Reply(headers=[("content-type", "text/plain")]))
    s3.meta.events.register("after-call.s3", lambda http_response, **_: http_response.content)
    assert "http_response.content" in str(raises(_real.Missing, s3.head_object, Bucket="b", Key="k"))


def check_names_that_are_not_here():
    """Those that a module here does not have are the real one's."""
    import boto3.s3.transfer
    import botocore.session

    names = ((boto3.s3.transfer, "TransferManager"), (botocore.client, "ClientCreator"), (botocore.session, "SessionVarDict"))
    names += ((exceptions, "_exception_from_packed_args"), (botocore.config, "OrderedDict"), (boto3, "utils"), (botocore, "awsrequest"))
    for module, name in names:
        error = None
        try:
            getattr(module, name)
        except AttributeError as failed:
            error = failed
        assert "add boto3 to the function's requirements" in str(error), (module, name, error)
    sys.path.append(sys.argv[1])
    try:
        boto3.resource("dynamodb", region_name="us-east-1")
        for module, name in (*names, (boto3, "dynamodb")):
            assert getattr(module, name), (module, name)
        assert boto3.dynamodb.conditions.Key("a").eq(1)
        for module in (boto3, botocore, botocore.client):
            assert not hasattr(module, "no_such_name") and not hasattr(module, "__no_such__")
    finally:
        sys.path.remove(sys.argv[1])


def check_tracers_find_where_requests_are_made():
    from botocore.endpoint import Endpoint

    assert Endpoint().prepare_request("it") == "it"
    sys.path.append(sys.argv[1])
    try:
        from botocore.endpoint import Endpoint as Theirs

        assert Theirs is not Endpoint and hasattr(Theirs, "make_request")
    finally:
        sys.path.remove(sys.argv[1])


def check_hostile_times():
    s3, _ = answered(Reply(headers=[("expires", "never"), ("last-modified", "Wed, 21 Oct 2015 07:28:00 GMT")]))
    head = s3.head_object(Bucket="b", Key="k")
    assert head["ExpiresString"] == "never" and "Expires" not in head
    assert head["LastModified"].isoformat() == "2015-10-21T07:28:00+00:00"


def main():
    failures = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            failures[name.removeprefix("check_")] = None
            try:
                check()
            except Exception:
                failures[name.removeprefix("check_")] = traceback.format_exc()
    print(json.dumps(failures))


if __name__ == "__main__":
    main()
