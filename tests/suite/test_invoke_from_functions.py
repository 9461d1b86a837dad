"""Functions that call functions: `boto3.client("lambda").invoke` in a handler, by way of the node itself.

What it comes to is what the real boto3 gets from outside, for the same calls. Who may call whom, how deep, and for how long is tested here, too.
"""

import base64
import inspect
import json
import re
import threading
import time

import pytest
from botocore.exceptions import ClientError
from harness import eventually
from test_lambda import ACCOUNT, LARGEST, client_of
from test_python import function
from test_tenants import deploy, make_tenant
from test_triggers import says

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LARGEST_EVENT = 1 << 20


def comes_to(client, call):
    """What a call comes to, without what is its own alone. The same text runs here and in the function."""
    call = dict(call)
    if "Size" in call:
        call["Payload"] = b'"' + b"x" * (call.pop("Size") - 2) + b'"'
    try:
        answer = client.invoke(**call)
    except ClientError as error:
        answer = error.response
        by_name = isinstance(error, getattr(client.exceptions, answer["Error"]["Code"], ClientError))
        answer |= {"str": str(error), "class": type(error).__name__, "operation": error.operation_name, "by_name": by_name}
    else:
        body = answer["Payload"]
        answer["type"], answer["Payload"] = type(body).__name__, body.read().decode()
        assert body.read() == b""
        if "LogResult" in answer:
            lines = base64.b64decode(answer["LogResult"]).decode().splitlines()
            answer["LogResult"] = [line.partition("\t")[0] for line in lines]
    about = answer["ResponseMetadata"]
    assert about["RequestId"] == about["HTTPHeaders"]["x-amzn-requestid"]
    answer["ResponseMetadata"] = about["HTTPStatusCode"]
    return answer


CALLER = f"import base64, boto3\nfrom botocore.exceptions import ClientError\n{inspect.getsource(comes_to)}" + """
import os, threading
from botocore.config import Config
client = boto3.client("lambda", config=Config(retries={"total_max_attempts": 1}))

def handler(event, context):
    return [comes_to(client, call) for call in event]

def threads(event, context):
    got = [None] * 12
    def one(n):
        got[n] = comes_to(client, {"FunctionName": "invoke.echo", "Payload": '{"n": %d}' % n, "Size": 400_000} if n % 3 else
                          {"FunctionName": "invoke.echo", "Payload": str(n)})
    workers = [threading.Thread(target=one, args=(n,)) for n in range(12)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    return [len(answer["Payload"]) for answer in got]

def links(event, context):
    from millpond import backend
    before, made = comes_to(client, {"FunctionName": "invoke.echo"}), []
    for _ in range(300):
        made.append(backend._links._known.pop("lambda")[0])
        backend._links.get("lambda")
    after = comes_to(client, {"FunctionName": "invoke.echo"})
    return [before["Payload"], after["Payload"], sum(map(is_gone, made))]

def is_gone(link):
    from millpond import backend
    try:
        call, _ = link.call(b'{"operation": "POST", "target": "/2015-03-31/functions/invoke.echo/invocations"}', memoryview(b""), 0)
        backend.Reply(call)
    except (ConnectionResetError, backend.Failed):
        return True
    return False
"""

ME = """
import boto3, json
from botocore.exceptions import ClientError
client = boto3.client("lambda")

def loop(event, context):
    depth = event.get("depth", 0)
    try:
        answer = client.invoke(FunctionName=context.function_name, Payload=json.dumps({"depth": depth + 1}))
    except ClientError as error:
        return {"depth": depth, "error": error.response["Error"], "by_name": isinstance(error, client.exceptions.RecursiveInvocationException)}
    return json.loads(answer["Payload"].read())

def again(event, context):
    print("ran", event.get("depth", 0))
    try:
        client.invoke(FunctionName=context.function_name, InvocationType="Event", Payload=json.dumps({"depth": event.get("depth", 0) + 1}))
    except client.exceptions.RecursiveInvocationException as error:
        print("stopped", error)
"""

SLEEPER = """
import time
def handler(event, context):
    time.sleep(event["seconds"])
    return {"left": context.get_remaining_time_in_millis()}
"""

LOOK = """
import os
def handler(event, context):
    client = context.client_context
    return {"event": event, "custom": client and client.custom, "left": context.get_remaining_time_in_millis(),
            "arn": context.invoked_function_arn}
"""

CALLS = (
    "import boto3, json\nclient = boto3.client('lambda')\n"
    "def handler(event, context):\n    return json.loads(client.invoke(FunctionName='sleeper', Payload=json.dumps(event))['Payload'].read())\n"
)

NOBODY = """
import boto3
from botocore.exceptions import ClientError
def handler(event, context):
    try:
        boto3.client("lambda").invoke(FunctionName="invoke.echo")
    except ClientError as error:
        return error.response["Error"]
"""

IMPORTING = """
import boto3
try:
    boto3.client("lambda").invoke(FunctionName="invoke.echo")
except Exception as error:
    said = [type(error).__name__, str(error)]
def handler(event, context):
    return said
"""


def granted(*names, **settings):
    return {"grants": {"lambda": {"functions": list(names)}}} | settings


GRANTED = ("echo", "told", "exit", "trap", "slow", "endless", "asleep", "small", "env", "look", "nothing-here", "pinned:1")


@pytest.fixture(scope="module")
def application(node):
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    # It was here when it was granted.
    functions = {
        "echo": "echo",
        "told": "stderr",
        "exit": "exit3",
        "trap": "trap",
        "slow": ("spin", {"timeout": "200ms"}),
        "endless": ("endless", {"response_body": "1MiB"}),
        "asleep": ("sleep", {"concurrency": 1, "queue": 0}),
        "small": ("echo", {"request_body": "1KiB"}),
        "env": "env",
        "pinned": "echo",
        "hidden": "echo",
        "look": function(LOOK),
        "sleeper": function(SLEEPER, timeout="900s"),
        "caller": function(CALLER, **granted(*(f"invoke.{name}" for name in GRANTED))),
        "threads": function(CALLER, "app.threads", **granted("echo")),
        "links": function(CALLER, "app.links", **granted("echo")),
        "loop": function(ME, "app.loop", **granted("loop")),
        "stuck": function(ME, "app.loop", **granted("stuck", concurrency=1, timeout="2s")),
        "again": function(ME, "app.again", **granted("again")),
        "brief": function(CALLS, **granted("sleeper", timeout="2s")),
        "importing": function(IMPORTING, **granted("echo")),
        "ungranted": function(NOBODY),
    }
    return node.deploy("invoke", functions)


@pytest.fixture(scope="module")
def outside(node, application):
    return client_of(node)


def called(application, *calls):
    answer = application.call("caller", json.dumps(calls).encode())
    assert answer.status == 200, answer.body
    return answer.document


def alike(answer):
    """Without the ids of requests, and as JSON has it."""
    # Of what it does not try again, the real one says so in its older mode.
    return json.loads(UUID.sub("ID", json.dumps(answer)).replace(" (reached max retries: 0)", ""))


CASES = {
    "plain": {"FunctionName": "invoke.echo", "Payload": '{"a": [1, "\\u00fc"]}'},
    "no_payload": {"FunctionName": "invoke.echo"},
    "null": {"FunctionName": "invoke.echo", "Payload": "null"},
    "a_mebibyte": {"FunctionName": "invoke.echo", "Size": 1 << 20},
    "the_largest": {"FunctionName": "invoke.echo", "Size": LARGEST},
    "too_large": {"FunctionName": "invoke.echo", "Size": LARGEST + 1},
    "too_large_for_it": {"FunctionName": "invoke.small", "Size": 2000},
    "arn": {"FunctionName": f"{ACCOUNT}invoke.echo"},
    "partial_arn": {"FunctionName": "123456789012:function:invoke.echo:1"},
    "version": {"FunctionName": "invoke.echo:1", "Payload": "1"},
    "qualifier": {"FunctionName": "invoke.echo", "Qualifier": "live"},
    "latest": {"FunctionName": "invoke.echo:$LATEST"},
    "two_qualifiers": {"FunctionName": "invoke.echo:1", "Qualifier": "2"},
    "no_name": {"FunctionName": "a b"},
    "no_version": {"FunctionName": "invoke.echo", "Qualifier": "99"},
    "no_type": {"FunctionName": "invoke.echo", "InvocationType": "Later"},
    "no_log_type": {"FunctionName": "invoke.echo", "LogType": "All"},
    "dry": {"FunctionName": "invoke.told", "InvocationType": "DryRun"},
    "event": {"FunctionName": "invoke.echo", "InvocationType": "Event", "Payload": "{}"},
    "event_too_large": {"FunctionName": "invoke.echo", "InvocationType": "Event", "Size": LARGEST_EVENT + 1},
    "no_json": {"FunctionName": "invoke.echo", "Payload": "pong"},
    "log": {"FunctionName": "invoke.told", "Payload": "{}", "LogType": "Tail"},
    "exits": {"FunctionName": "invoke.exit", "LogType": "Tail"},
    "traps": {"FunctionName": "invoke.trap"},
    "times_out": {"FunctionName": "invoke.slow"},
    "answers_too_much": {"FunctionName": "invoke.endless"},
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_is_the_same_from_a_function_and_from_outside(application, outside, name):
    ours = called(application, CASES[name])[0]
    theirs = comes_to(outside, CASES[name])
    assert alike(ours) == alike(json.loads(json.dumps(theirs)))


def test_a_function_that_is_not_there(application, outside):
    ours = called(application, {"FunctionName": "nothing-here"})[0]
    assert ours["class"] == "ResourceNotFoundException" and ours["ResponseMetadata"] == 404
    with pytest.raises(ClientError):
        outside.invoke(FunctionName="nothing-here")


def test_a_name_alone_is_of_its_own_application(node, application):
    """`told` is another application's, too: from outside it is ambiguous, from within it is not."""
    node.deploy("invoke-other", {"told": "echo"})
    assert called(application, {"FunctionName": "told", "LogType": "Tail"})[0]["LogResult"][0].startswith("START")
    assert called(application, {"FunctionName": "invoke-other.told"})[0]["class"] == "ClientError"


@pytest.mark.parametrize("name", ["invoke.hidden", "hidden", "invoke.nowhere", "pinned", "pinned:live", f"{ACCOUNT}invoke.caller", "sleeper"])
def test_what_is_not_granted_is_denied_and_not_told_from_what_is_not_there(node, application, name):
    answer = called(application, {"FunctionName": name})[0]
    assert answer["Error"]["Code"] == "AccessDeniedException" and answer["ResponseMetadata"] == 403
    assert "is not authorized to perform: lambda:InvokeFunction" in answer["Error"]["Message"]
    assert "an invocation is not granted" in node.log.read_text()


def test_a_version_that_is_granted_alone(application):
    assert called(application, {"FunctionName": "pinned:1", "Payload": "7"})[0]["Payload"] == "7"


def test_a_function_without_a_grant_is_denied_in_lambdas_words(application):
    said = application.call("ungranted", b"{}").document
    assert said["Code"] == "AccessDeniedException" and "lambda" in said["Message"]


def sandboxes(node):
    """How many there are: processes of other applications that wait for requests are among them."""
    return node.metrics()['millpond_sandboxes{core="0"}']


def test_a_caller_waits_no_longer_than_it_may_and_neither_does_what_it_calls(node, application):
    before = sandboxes(node)
    assert called(application, {"FunctionName": "look", "Payload": "{}"})[0]["StatusCode"] == 200
    answer = application.call("brief", json.dumps({"seconds": 600}).encode())
    if answer.status == 200:
        # The time of both was over at once, and the caller heard of it before it was ended.
        assert answer.document["errorType"] == "Sandbox.Timedout"
    else:
        answer.problem(504, "limit-timeout")
    eventually(lambda: sandboxes(node) <= before, "what was called has ended, too")


def test_who_is_called_has_the_time_that_is_left(application):
    said = application.call("brief", b'{"seconds": 0}').document
    assert 0 < said["left"] <= 2000


def test_a_function_that_calls_itself_is_stopped(application):
    said = application.call("loop", b"{}").document
    assert said["depth"] == 16 and said["by_name"] is True
    assert said["error"]["Code"] == "RecursiveInvocationException" and "16" in said["error"]["Message"]


def test_a_function_that_waits_for_its_own_place_holds_nobody_up(node, application):
    before, done = sandboxes(node), []
    waits = threading.Thread(target=lambda: done.append(application.call("stuck", b"{}")))
    waits.start()
    while not done:
        assert application.call("echo", b"1").status == 200
    waits.join()
    done[0].problem(504, "limit-timeout")
    eventually(lambda: sandboxes(node) <= before, "nothing of it is left")


def test_events_that_a_function_sends_itself_end(node, application):
    application.call("again", b"{}")
    lines = eventually(
        lambda: (lines := [record["message"] for record in node.records("invoke.again")]) and any("stopped" in line for line in lines) and lines,
        "it is stopped",
    )
    assert {line for line in lines if line.startswith("ran")} == {f"ran {depth}" for depth in range(17)}


def test_an_event_reaches_its_function(node, application):
    before = len(node.records("invoke.told"))
    answer = called(application, {"FunctionName": "told", "InvocationType": "Event", "Payload": "{}"})[0]
    assert answer["StatusCode"] == 202 and answer["Payload"] == ""
    eventually(lambda: len(node.records("invoke.told")) > before, "it ran")


def test_the_trace_goes_on(application):
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    body = json.dumps([{"FunctionName": "env"}]).encode()
    answer = application.call("caller", body, headers={"traceparent": trace, "tracestate": "a=1"}).document[0]
    assert f"HTTP_TRACEPARENT={trace}\n" in answer["Payload"] and "HTTP_TRACESTATE=a=1\n" in answer["Payload"]


def test_the_client_context_comes_along(application):
    context = base64.b64encode(b'{"custom": {"a": 1}}').decode()
    answer = called(application, {"FunctionName": "look", "ClientContext": context, "Payload": "[]"})[0]
    assert json.loads(answer["Payload"])["custom"] == {"a": 1}
    answer = called(application, {"FunctionName": "look", "ClientContext": "a\r\nx: y"})[0]
    assert answer["Error"]["Code"] == "InvalidParameterValueException"


def test_beyond_its_places_a_function_is_throttled(application):
    """Each caller asks once: of two at a time one finds the only place taken."""
    codes, stop = set(), threading.Event()
    deadline = time.monotonic() + 60

    def call():
        while not stop.is_set() and time.monotonic() < deadline:
            answer = called(application, {"FunctionName": "asleep", "Payload": "200"})[0]
            codes.add(answer.get("StatusCode") or answer["Error"]["Code"])
            if {200, "TooManyRequestsException"} <= codes:
                stop.set()

    workers = [threading.Thread(target=call) for _ in range(3)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert codes == {200, "TooManyRequestsException"}


def test_threads_of_a_function_call_at_once(application):
    sizes = application.call("threads", b"{}").document
    assert sizes == [len(str(n)) if n % 3 == 0 else 400_000 for n in range(12)]


def test_a_request_has_one_link(application):
    before, after, gone = application.call("links", b"{}").document
    assert (before, after, gone) == ("{}", "{}", 300)


def test_an_import_calls_nobody(application):
    kind, text = application.call("importing", b"{}").document
    assert kind == "ClientError" and "AccessDeniedException" in text and "import" in text


def test_what_cannot_be_granted(node):
    for name in ("elsewhere/app.f", "No Name", "nothing"):
        answer = node.try_deploy("invoke-refused", {"f": function(CALLER, **granted(name))})
        assert answer.status == 422 and "grants.lambda.functions[0]" in answer.text, answer.body
    answer = node.try_deploy("invoke-refused", {"f": ("echo", granted("f"))})
    assert answer.problem(422, "grants-unavailable")


def test_tenants_invoke_their_own_alone(make_node):
    """`shop` and its functions are there three times: who invokes finds its own, and of the others' nothing."""
    node = make_node(token="the-operators-own-token")
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    acme, rival = make_tenant(node, "acme"), make_tenant(node, "rival")
    caller = function(CALLER, **granted("shop.who", "shop.secret"))
    for who, name in ((acme, "acme"), (rival, "rival"), (node, "node")):
        functions = {"who": says(f"this is {name}"), "front": caller}
        deploy(who, functions | ({} if who is acme else {"secret": says("not acme's")}))
    calls = [{"FunctionName": name} for name in ("who", "shop.secret", "rival/shop.secret", "rival.secret")]
    for who, name in ((acme, "acme"), (rival, "rival")):
        answers = who.request("POST", "/function/shop.front", json.dumps(calls).encode()).document
        assert answers[0]["Payload"] == f"this is {name}"
        if who is acme:
            assert answers[1]["class"] == "ResourceNotFoundException"
        assert [answer["Error"]["Code"] for answer in answers[2:]] == ["InvalidParameterValueException", "AccessDeniedException"]
