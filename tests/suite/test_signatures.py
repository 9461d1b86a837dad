"""Signatures of Lambda's API (AWS Signature Version 4) on a node that has keys: by AWS's own clients, and by hand what they
would not send."""

import base64
import http.client
import json
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import boto3
import pytest
from botocore import UNSIGNED, auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from harness import Node, answer_of, certificate, clean_environment, cli, eventually

SECRETS = {"AKIDINLINE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYinline", "AKIDINFILE": "another/Secret+in-a-file"}
ACCOUNT = "arn:aws:lambda:eu-central-1:123456789012:function:"
ECHO = "/2015-03-31/functions/sealed.echo/invocations"
AWS = Path(sys.executable).with_name("aws")
MISMATCH = "The request signature we calculated does not match the signature you provided."


def configuration(folder):
    secret = folder / "secret"
    secret.write_text(SECRETS["AKIDINFILE"] + "\n")
    secret.chmod(0o600)
    return f"""
[[lambda.key]]
id = "AKIDINLINE"
secret = "{SECRETS["AKIDINLINE"]}"
[[lambda.key]]
id = "AKIDINFILE"
secret_file = "{secret}"
"""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """A node with two keys, by TLS too, and functions on it."""
    folder = tmp_path_factory.mktemp("sealed")
    cert, key = certificate(folder, "sealed")
    tls = f'[tls]\nlisten = "127.0.0.1:0"\ncertificate = "{cert}"\nkey = "{key}"\n'
    node = Node(folder / "node", config=configuration(folder) + tls)
    node.start()
    node.certificate = cert
    node.deploy("sealed", {"echo": ("stderr", {})})
    node.deploy("sealed", {"echo": "echo", "told": "stderr", "env": "env", "small": ("echo", {"request_body": "1KiB"})})
    yield node
    node.stop()


def client_of(node, key="AKIDINLINE", secret=None, tls=False, **options):
    session = boto3.session.Session(key, secret or SECRETS.get(key, "?"), region_name="eu-central-1")
    config = Config(retries={"total_max_attempts": 1}, read_timeout=60, **options)
    if tls:
        return session.client("lambda", endpoint_url="https://{}:{}".format(*node.tls), verify=str(node.certificate), config=config)
    return session.client("lambda", endpoint_url="http://{}:{}".format(*node.listen), config=config)


def invoke(client, name="sealed.echo", payload=None, **more):
    given = {} if payload is None else {"Payload": json.dumps(payload)}
    answer = client.invoke(FunctionName=name, **given, **more)
    answer["Payload"] = answer["Payload"].read()
    return answer


def refused(client, error, status=403, *arguments, **more):
    with pytest.raises(ClientError) as caught:
        invoke(client, *arguments, **more)
    response = caught.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (error, status)
    return response["Error"]["Message"]


def signed(node, path=ECHO, body=b"{}", headers=(), at=None, key="AKIDINLINE", service="lambda", monkeypatch=None):
    """The headers of a request as botocore signs it, at another time if need be."""
    request = AWSRequest("POST", "http://{}:{}".format(*node.listen) + path, data=body, headers=dict(headers))
    request.headers["Host"] = "{}:{}".format(*node.listen)
    if at:
        monkeypatch.setattr(auth, "get_current_datetime", lambda *_, **__: at)
    auth.SigV4Auth(Credentials(key, SECRETS[key]), service, "eu-central-1").add_auth(request)
    return dict(request.headers.items())


def send(node, headers, path=ECHO, body=b"{}", method="POST"):
    connection = http.client.HTTPConnection(*node.listen, timeout=60)
    connection.request(method, path, body, headers)
    return answer_of(connection)


def error_of(answer):
    assert answer.document["message"] == answer.document["Message"] != ""
    return answer.status, answer.headers["x-amzn-ErrorType"]


# --- good signatures ---


@pytest.mark.parametrize("key", SECRETS)
@pytest.mark.parametrize("tls", [False, True])
def test_each_key_opens_the_door(sealed, key, tls):
    assert invoke(client_of(sealed, key, tls=tls), payload={"n": 1})["Payload"] == b'{"n": 1}'


@pytest.mark.parametrize(
    "name",
    ["sealed.echo", "echo", "sealed.echo:2", "sealed.echo:live", "sealed.echo:$LATEST", "123456789012:function:sealed.echo", f"{ACCOUNT}sealed.echo", f"{ACCOUNT}sealed.echo:2"],
)
def test_functions_are_named_in_all_ways(sealed, name):
    assert invoke(client_of(sealed), name, {"n": 1})["Payload"] == b'{"n": 1}'


@pytest.mark.parametrize("qualifier, version", [("1", "1"), ("2", "2"), ("live", "2"), ("$LATEST", "2")])
def test_qualifiers_are_signed(sealed, qualifier, version):
    assert invoke(client_of(sealed), payload={}, Qualifier=qualifier)["ExecutedVersion"] == version


@pytest.mark.parametrize("payload", [None, {}, "", "ü€😀 + & = %", ["x" * 100_000], "x" * 3_000_000])
def test_payloads_of_each_kind(sealed, payload):
    answer = json.loads(invoke(client_of(sealed), payload=payload)["Payload"])
    assert answer == (payload if payload is not None else {})


def test_all_headers_of_the_api_may_be_signed(sealed):
    context = base64.b64encode(b'{"custom": {"a": 1}}').decode()
    answer = invoke(client_of(sealed), "sealed.env", {}, ClientContext=context, LogType="Tail")
    assert f"HTTP_X_AMZ_CLIENT_CONTEXT={context}\n".encode() in answer["Payload"]
    assert b"HTTP_AUTHORIZATION" not in answer["Payload"], "a function has no use for the signature"
    assert b"REPORT" in base64.b64decode(answer["LogResult"])


def test_a_dry_run_and_a_stream_are_signed_as_well(sealed):
    client = client_of(sealed)
    assert invoke(client, payload={}, InvocationType="DryRun")["StatusCode"] == 204
    answer = client.invoke_with_response_stream(FunctionName=f"{ACCOUNT}sealed.echo", Payload='{"ü": 1}')
    pieces = [event["PayloadChunk"]["Payload"] for event in answer["EventStream"] if "PayloadChunk" in event]
    assert b"".join(pieces) == '{"ü": 1}'.encode()


def test_an_event_is_kept_once_its_signature_was_checked(sealed):
    answer = invoke(client_of(sealed), "sealed.env", {"n": 1}, InvocationType="Event")
    assert answer["StatusCode"] == 202
    identity = answer["ResponseMetadata"]["HTTPHeaders"]["x-call-id"]
    state = f"/v1/calls/{identity}"
    eventually(lambda: sealed.control("GET", state).document["state"] == "succeeded", "the event was run")
    assert b"HTTP_AUTHORIZATION" not in sealed.control("GET", f"{state}/result").body


def test_errors_of_those_who_may_know_are_as_before(sealed):
    client = client_of(sealed)
    refused(client, "ResourceNotFoundException", 404, "nothing", {})
    refused(client, "InvalidParameterValueException", 400, "sealed.echo", {}, InvocationType="Later")
    refused(client, "RequestTooLargeException", 413, "sealed.small", "x" * 2000)
    refused(client, "RequestTooLargeException", 413, "nothing", "x" * (6 << 20))


# --- bad ones ---


def strangers(node):
    return {
        "MissingAuthenticationTokenException": client_of(node, signature_version=UNSIGNED),
        "UnrecognizedClientException": client_of(node, "AKIDNOBODY"),
        "InvalidSignatureException": client_of(node, secret="a guess"),
    }


def test_strangers_are_told_so_and_nothing_runs(sealed):
    calls = len(sealed.control("GET", "/v1/calls").document["calls"])
    for error, client in strangers(sealed).items():
        for more in [{}, {"InvocationType": "Event"}, {"InvocationType": "DryRun"}, {"LogType": "Tail"}, {"Qualifier": "1"}]:
            refused(client, error, 403, "sealed.told", {}, **more)
        # What there is, and what is wrong with a request, is told to those who may know.
        for name, payload in [("sealed.told", None), ("nothing", {}), ("nothing", None), (f"{ACCOUNT}sealed.told:99", {}), ("a b", {})]:
            refused(client, error, 403, name, payload)
        with pytest.raises(ClientError) as caught:
            client.invoke_with_response_stream(FunctionName="sealed.told", Payload="{}")
        assert caught.value.response["Error"]["Code"] == error
    assert MISMATCH in refused(client_of(sealed, secret="a guess"), "InvalidSignatureException")
    assert not sealed.records("sealed.told")
    assert len(sealed.control("GET", "/v1/calls").document["calls"]) == calls
    metrics = sealed.metrics()
    for error in strangers(sealed):
        assert metrics[f'millpond_rejected_requests_total{{code="{error}"}}'] > 0


@pytest.mark.parametrize("method, path", [("GET", "/2015-03-31/functions/"), ("DELETE", "/2015-03-31/functions/sealed.echo"), ("PUT", "/2021-11-15/functions/x")])
def test_other_operations_are_sealed_too(sealed, method, path):
    answer = sealed.request(method, path)
    assert error_of(answer) == (403, "MissingAuthenticationTokenException")


@pytest.mark.parametrize("path", ["/function/sealed.echo", "/healthz"])
def test_other_paths_are_not(sealed, path):
    assert sealed.request("POST", path, b"{}").status == 200


def test_a_signature_expires(sealed, monkeypatch):
    now = datetime.now(UTC)
    for minutes, words in [(-6, "Signature expired"), (-60 * 24 * 400, "Signature expired"), (6, "Signature not yet current")]:
        answer = send(sealed, signed(sealed, at=now + timedelta(minutes=minutes), monkeypatch=monkeypatch))
        assert error_of(answer) == (403, "InvalidSignatureException")
        assert words in answer.document["message"]
    for minutes in (-3, 0, 3):
        answer = send(sealed, signed(sealed, at=now + timedelta(minutes=minutes), monkeypatch=monkeypatch))
        assert answer.status == 200


def test_another_date_does_not_revive_it(sealed, monkeypatch):
    """A recorded request that is sent again later."""
    now = datetime.now(UTC)
    headers = signed(sealed, at=now - timedelta(minutes=10), monkeypatch=monkeypatch)
    assert send(sealed, headers).status == 403
    headers["X-Amz-Date"] = now.strftime("%Y%m%dT%H%M%SZ")
    assert error_of(send(sealed, headers)) == (403, "InvalidSignatureException")


def test_what_was_signed_cannot_be_changed(sealed):
    path, body = f"{ECHO}?Qualifier=2", b'{"pay": 10}'
    event = {"X-Amz-Invocation-Type": "DryRun"}
    headers = signed(sealed, path, body, event)
    assert send(sealed, headers, path, body).status == 204
    invalid = (403, "InvalidSignatureException")
    for changed in [
        send(sealed, headers, path, b'{"pay": 99}'),
        send(sealed, headers, path, b""),
        send(sealed, headers, path, body + b" "),
        send(sealed, headers, path.replace("=2", "=1"), body),
        send(sealed, headers, ECHO, body),
        send(sealed, headers, f"{path}&x=", body),
        send(sealed, headers, path.replace("echo", "env"), body),
        send(sealed, headers, path.replace("2015-03-31", "2021-11-15").replace("invoc", "response-streaming-invoc"), body),
        send(sealed, headers, path, body, method="PUT"),
        send(sealed, headers | {"X-Amz-Invocation-Type": "Event"}, path, body),
        send(sealed, headers | {"X-Amz-Log-Type": "Tail"}, path, body),
        send(sealed, headers | {"Host": "elsewhere"}, path, body),
        send(sealed, {name: value for name, value in headers.items() if name != "X-Amz-Invocation-Type"}, path, body),
        send(sealed, signed(sealed, path, body, event, service="s3"), path, body),
    ]:
        assert error_of(changed) == invalid
    for broken in ["", "Basic QUtJRA==", headers["Authorization"].replace("Signature=", "Sign="), headers["Authorization"][:-1]]:
        assert error_of(send(sealed, headers | {"Authorization": broken}, path, body)) == (400, "IncompleteSignatureException")


def test_no_byte_of_a_request_can_be_changed(sealed):
    """Over the wire, one byte at a time. What HTTP forbids is refused as such; nothing is answered 200."""
    body = json.dumps({"key": "value"}).encode()
    path = f"/2015-03-31/functions/{ACCOUNT.replace(':', '%3A')}sealed.echo/invocations?Qualifier=2"
    headers = signed(sealed, path, body, {"X-Amz-Log-Type": "Tail", "Content-Type": "application/json"})
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), f"Content-Length: {len(body)}"]
    good = "\r\n".join([*lines, "", ""]).encode() + body
    with sealed.wire() as wire:
        wire.send(good)
        assert wire.read().status == 200
    rng = random.Random(7)
    end = good.index(b"Content-Length")
    for at in [*rng.sample(range(end), 250), *range(len(good) - len(body), len(good))]:
        if chr(good[at]).isspace():
            continue
        other = rng.choice([byte for byte in b"abcXYZ0189-" if bytes([byte]).lower() != good[at : at + 1].lower()])
        if good[:at].endswith(b" HTTP/1.") and other == ord("0"):
            continue  # An older client's request, which is as good: no signature covers the version.
        with sealed.wire() as wire:
            wire.send(good[:at] + bytes([other]) + good[at + 1 :])
            status = wire.read().status
            assert 400 <= status < 500 or status == 505, (status, good[:at][-30:], chr(other))


def test_chunks_are_a_payload_like_others(sealed):
    body = b'{"n": "' + b"x" * 70_000 + b'"}'
    headers = signed(sealed, body=body) | {"Transfer-Encoding": "chunked"}
    head = "\r\n".join([f"POST {ECHO} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()
    for sent, status in [(body, 200), (body.replace(b"n", b"m"), 403)]:
        with sealed.wire() as wire:
            wire.send(head + b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (10, sent[:10], len(sent) - 10, sent[10:]))
            assert wire.read().status == status


# --- other clients ---


def aws(node, folder, secret, *words):
    environment = clean_environment() | {
        "AWS_ACCESS_KEY_ID": "AKIDINFILE",
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
    }
    command = [AWS, "lambda", "invoke", "--endpoint-url", "http://{}:{}".format(*node.listen), *words, folder / "out"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_aws_cli_signs(sealed, tmp_path):
    name = f"{ACCOUNT}sealed.echo"
    words = ["--function-name", name, "--qualifier", "2", "--payload", '{"from": "ü"}']
    done = aws(sealed, tmp_path, SECRETS["AKIDINFILE"], *words)
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "out").read_text()) == {"from": "ü"}
    done = aws(sealed, tmp_path, SECRETS["AKIDINFILE"], "--function-name", name, "--invocation-type", "Event")
    assert done.returncode == 0 and json.loads(done.stdout)["StatusCode"] == 202
    done = aws(sealed, tmp_path, "a guess", *words)
    assert done.returncode != 0 and "InvalidSignatureException" in done.stderr


@pytest.mark.parametrize("protocol", ["--http1.1", "--http2-prior-knowledge", "--http2"])
def test_curl_signs(sealed, protocol):
    def curl(secret, *more):
        url = "http://{}:{}".format(*sealed.listen) + ECHO
        command = ["curl", "-s", protocol, "--aws-sigv4", "aws:amz:eu-central-1:lambda", "--user", f"AKIDINLINE:{secret}"]
        return subprocess.run([*command, "--data", '{"by": "curl"}', *more, url], capture_output=True, timeout=60, check=True).stdout

    assert curl(SECRETS["AKIDINLINE"]) == b'{"by": "curl"}'
    assert MISMATCH.encode() in curl("a guess")


# --- secrets ---


def test_no_secret_is_shown(sealed):
    places = [sealed.log.read_text(), sealed.cli("describe", "sealed.echo").stdout.decode(), sealed.cli("logs", "sealed.env").stdout.decode()]
    places += [sealed.control("GET", path).text for path in ("/v1/node", "/metrics", "/v1/applications", "/v1/calls")]
    for stranger in strangers(sealed).values():
        with pytest.raises(ClientError) as caught:
            invoke(stranger)
        places.append(repr(caught.value.response))
    for place in places:
        assert not any(secret in place for secret in SECRETS.values())


def test_a_secret_that_others_may_read_is_refused(tmp_path):
    (tmp_path / "config.toml").write_text(configuration(tmp_path))
    for mode, words in [(0o640, "chmod 600"), (0o604, "chmod 600"), (0o620, "chmod 600")]:
        (tmp_path / "secret").chmod(mode)
        for command in (["serve", "--data", tmp_path / "data"], ["doctor"]):
            done = cli(*command, "--config", tmp_path / "config.toml")
            said = (done.stdout + done.stderr).decode()
            assert done.returncode != 0 and words in said
            assert not any(secret in said for secret in SECRETS.values())
