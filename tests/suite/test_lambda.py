"""AWS Lambda's Invoke API by AWS's own clients, unmodified: boto3 and the AWS CLI.

What is expected is what the API's reference says (Invoke, InvokeWithResponseStream): results, errors by name, limits."""

import base64
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from harness import clean_environment, get

MEBIBYTE = 1 << 20
LARGEST = 6 * MEBIBYTE
ACCOUNT = "arn:aws:lambda:eu-central-1:123456789012:function:"
# What the clients insist on having, and what keeps them from looking for it elsewhere.
IDENTITY = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}
AWS = Path(sys.executable).with_name("aws")


def client_of(node, connections=10):
    session = boto3.session.Session("AKIDEXAMPLE", "secret", region_name="eu-central-1")
    config = Config(retries={"total_max_attempts": 1}, max_pool_connections=connections, read_timeout=60)
    return session.client("lambda", endpoint_url="http://{}:{}".format(*node.listen), config=config)


@pytest.fixture(scope="module")
def application(node):
    """Two versions of `echo`, of which an alias names the first, and functions that fail in each way."""
    node.deploy("shop", {"echo": ("stderr", {})})
    application = node.deploy("shop", {
        "echo": "echo",
        "told": "stderr",
        "exit": "exit3",
        "trap": "trap",
        "deep": "recurse",
        "slow": ("spin", {"timeout": "200ms"}),
        "asleep": ("sleep", {"concurrency": 1, "queue": 0}),
        "greedy": ("grow", {"memory": "8MiB"}),
        "endless": ("endless", {"response_body": "1MiB"}),
        "small": ("echo", {"request_body": "1KiB"}),
        "count": "counter",
        "page": ("cgi", {"protocol": "cgi"}),
        "env": "env",
    })
    return application


@pytest.fixture(scope="module")
def client(node, application):
    return client_of(node)


def invoke(client, name, payload=None, **more):
    given = {} if payload is None else {"Payload": payload if isinstance(payload, bytes) else json.dumps(payload)}
    answer = client.invoke(FunctionName=name, **given, **more)
    answer["Payload"] = answer["Payload"].read()
    return answer


def refused(client, error, status, *arguments, **more):
    with pytest.raises(ClientError) as caught:
        invoke(client, *arguments, **more)
    response = caught.value.response
    assert response["Error"]["Code"] == error
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    return response


@pytest.mark.parametrize("event", [{}, {"key": "value"}, [], [1, 2, 3], "text", "ü€😀", 0, -1.5, True, None, {"deep": [{"er": {}}] * 50}])
def test_an_event_reaches_the_function_and_its_result_the_caller(client, event):
    answer = invoke(client, "shop.echo", event if event is not None else b"null")
    assert answer["StatusCode"] == 200 and "FunctionError" not in answer
    assert json.loads(answer["Payload"]) == event
    assert answer["ExecutedVersion"] == "2"


@pytest.mark.parametrize("size", [1, 1000, 100_000, MEBIBYTE, LARGEST - 2])
def test_payloads_of_each_size(client, size):
    payload = b'"' + b"x" * size + b'"'
    assert invoke(client, "shop.echo", payload)["Payload"] == payload


@pytest.mark.parametrize(
    "name",
    ["shop.echo", "shop.echo:2", "shop.echo:live", "shop.echo:$LATEST", "123456789012:function:shop.echo", f"{ACCOUNT}shop.echo", f"{ACCOUNT}shop.echo:2"],
)
def test_functions_are_named_as_lambda_names_them(client, name):
    assert invoke(client, name, {"n": 1})["Payload"] == b'{"n": 1}'


@pytest.mark.parametrize("qualifier, version", [("1", "1"), ("2", "2"), ("live", "2"), ("$LATEST", "2")])
def test_qualifiers_choose_a_version(client, qualifier, version):
    assert invoke(client, "shop.echo", {}, Qualifier=qualifier)["ExecutedVersion"] == version


def test_without_a_payload_the_event_is_an_empty_object(client):
    assert invoke(client, "shop.echo")["Payload"] == b"{}"


def test_a_dry_run_runs_nothing(node, client):
    before = len(node.records("shop.told"))
    answer = invoke(client, "shop.told", {}, InvocationType="DryRun")
    assert answer["StatusCode"] == 204 and answer["Payload"] == b""
    assert len(node.records("shop.told")) == before


def test_each_invocation_is_fresh(client):
    assert {invoke(client, "shop.count", {})["Payload"] for _ in range(5)} == {b"1\n"}


def test_the_body_of_a_cgi_function_is_its_payload(client):
    assert b"Content-Type" not in invoke(client, "shop.page", {})["Payload"]


def test_the_client_context_reaches_the_function(client):
    context = base64.b64encode(b'{"custom": {"a": 1}}').decode()
    assert f"HTTP_X_AMZ_CLIENT_CONTEXT={context}\n".encode() in invoke(client, "shop.env", {}, ClientContext=context)["Payload"]


# --- functions that fail ---


@pytest.mark.parametrize(
    "name, kind, words",
    [
        ("exit", "Runtime.ExitError", "Runtime exited with error: exit status 3"),
        ("trap", "Runtime.ExitError", "trapped"),
        ("deep", "Runtime.ExitError", "stack"),
        ("slow", "Sandbox.Timedout", "Task timed out after 0.20 seconds"),
        ("greedy", "Runtime.OutOfMemory", "8MiB"),
        ("endless", "Function.ResponseSizeTooLarge", "1MiB"),
    ],
)
def test_a_failure_is_a_function_error(client, name, kind, words):
    answer = invoke(client, f"shop.{name}", {})
    assert answer["StatusCode"] == 200 and answer["FunctionError"] == "Unhandled"
    error = json.loads(answer["Payload"])
    assert error["errorType"] == kind
    assert words in error["errorMessage"]
    assert answer["ResponseMetadata"]["RequestId"] in error["errorMessage"]


def test_the_request_id_finds_the_log(node, client):
    answer = invoke(client, "shop.told", {})
    identity = answer["ResponseMetadata"]["RequestId"].replace("-", "")
    assert node.records("shop.told", f"?request={identity}")


def test_the_end_of_the_log_comes_with_the_answer(client):
    answer = invoke(client, "shop.told", {}, LogType="Tail")
    lines = base64.b64decode(answer["LogResult"]).decode().splitlines()
    identity = answer["ResponseMetadata"]["RequestId"]
    assert lines[0] == f"START RequestId: {identity} Version: 1"
    assert len(lines) > 3, "what the function wrote lies between"
    assert lines[-2] == f"END RequestId: {identity}"
    assert lines[-1].startswith(f"REPORT RequestId: {identity}\tDuration: ") and "Max Memory Used: " in lines[-1]
    assert "LogResult" not in invoke(client, "shop.told", {}, LogType="None")
    failed = invoke(client, "shop.exit", {}, LogType="Tail")
    assert "END RequestId" in base64.b64decode(failed["LogResult"]).decode()


# --- requests that invoke nothing ---


@pytest.mark.parametrize("name", ["nothing", "shop.nothing", "other.echo", "shop.echo:99", "shop.echo:beta", f"{ACCOUNT}nothing"])
def test_what_is_not_there_is_not_found(client, name):
    refused(client, "ResourceNotFoundException", 404, name, {})


@pytest.mark.parametrize("payload", [b"{", b"pong", b"{} x", b"\xff", b"'single'"])
def test_a_payload_that_is_not_json_is_refused(client, payload):
    response = refused(client, "InvalidRequestContentException", 400, "shop.echo", payload)
    assert "json" in response["Error"]["Message"]


@pytest.mark.parametrize(
    "more",
    [{"InvocationType": "Later"}, {"LogType": "All"}, {"FunctionName": "shop.echo:1", "Qualifier": "2"}, {"FunctionName": "a b"}, {"Qualifier": "-"}],
)
def test_other_parameters_are_refused(client, more):
    more = {"FunctionName": "shop.echo"} | more
    refused(client, "InvalidParameterValueException", 400, more.pop("FunctionName"), {}, **more)


def test_a_payload_beyond_the_limit_is_refused(client):
    response = refused(client, "RequestTooLargeException", 413, "shop.echo", b'"' + b"x" * LARGEST + b'"')
    assert str(LARGEST) in response["Error"]["Message"]
    assert "request_body" in refused(client, "RequestTooLargeException", 413, "shop.small", {"x": "x" * 2000})["Error"]["Message"]


def test_too_much_in_chunks_is_refused_in_the_same_words(node, application):
    with node.wire() as wire:
        path = "/2015-03-31/functions/shop.small/invocations"
        wire.send(get(path, method="POST", headers="Transfer-Encoding: chunked\r\n") + b"1000\r\n" + b"1" * 4096 + b"\r\n0\r\n\r\n")
        answer = wire.read()
        assert answer.status == 413 and answer.headers["x-amzn-ErrorType"] == "RequestTooLargeException"


def test_beyond_concurrency_and_queue_requests_are_throttled(node, application):
    client = client_of(node, 20)

    def one(_):
        try:
            return invoke(client, "shop.asleep", 50)["StatusCode"]
        except ClientError as error:
            response = error.response
            assert response["Error"]["Code"] == "TooManyRequestsException"
            assert response["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
            assert int(response["ResponseMetadata"]["HTTPHeaders"]["retry-after"]) >= 1
            return response["ResponseMetadata"]["HTTPStatusCode"]

    with ThreadPoolExecutor(20) as pool:
        statuses = list(pool.map(one, range(200)))
    assert 200 in statuses
    assert set(statuses) <= {200, 429}


@pytest.mark.parametrize(
    "method, path",
    [("GET", "/2015-03-31/functions/shop.echo/invocations"), ("POST", "/2015-03-31/functions/shop.echo"), ("GET", "/2015-03-31/functions/")],
)
def test_other_operations_are_told_apart(node, application, method, path):
    answer = node.request(method, path)
    assert answer.status == 404 and answer.headers["x-amzn-ErrorType"] == "UnknownOperationException"


# --- streams ---


def events_of(client, name, payload=b"{}", **more):
    answer = client.invoke_with_response_stream(FunctionName=name, Payload=payload, **more)
    events = list(answer["EventStream"])
    assert "InvokeComplete" in events[-1] and all("PayloadChunk" in event for event in events[:-1])
    return b"".join(event["PayloadChunk"]["Payload"] for event in events[:-1]), events[-1]["InvokeComplete"]


@pytest.mark.parametrize("size", [0, 1, 100_000, 5 * MEBIBYTE])
def test_a_streamed_response_carries_the_payload(client, size):
    payload = b'"' + b"x" * size + b'"'
    assert events_of(client, "shop.echo", payload) == (payload, {})


def test_a_streamed_failure_is_told_at_the_end(client):
    payload, complete = events_of(client, "shop.exit", LogType="Tail")
    assert payload == b"" and complete["ErrorCode"] == "Runtime.ExitError"
    assert "exit status 3" in complete["ErrorDetails"]
    assert "START RequestId" in base64.b64decode(complete["LogResult"]).decode()


# --- at once, and by the other client ---


def test_five_hundred_invocations_at_once(node, application):
    client = client_of(node, 100)
    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(lambda n: invoke(client, "shop.echo", {"n": n})["Payload"], range(500)))
    assert [json.loads(answer)["n"] for answer in answers] == list(range(500))


def aws(node, folder, *words):
    environment = clean_environment() | IDENTITY | {"PATH": os.environ["PATH"], "HOME": str(folder)}
    command = [AWS, "lambda", "invoke", "--endpoint-url", "http://{}:{}".format(*node.listen), *words, folder / "out"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_aws_cli_invokes(node, application, tmp_path):
    done = aws(node, tmp_path, "--function-name", "shop.echo", "--payload", '{"from": "cli"}', "--cli-binary-format", "raw-in-base64-out")
    if "Unknown options" in done.stderr:
        done = aws(node, tmp_path, "--function-name", "shop.echo", "--payload", '{"from": "cli"}')
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"StatusCode": 200, "ExecutedVersion": "2"}
    assert json.loads((tmp_path / "out").read_text()) == {"from": "cli"}


def test_the_aws_cli_shows_failures(node, application, tmp_path):
    done = aws(node, tmp_path, "--function-name", "shop.exit", "--log-type", "Tail")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["FunctionError"] == "Unhandled" and said["LogResult"]
    done = aws(node, tmp_path, "--function-name", "nothing")
    assert done.returncode != 0 and "ResourceNotFoundException" in done.stderr
