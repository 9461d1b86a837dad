"""Asynchronous calls: accepted when they are on the disk, run until they have an outcome, whatever happens to the node."""

import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from harness import PROCESSORS, eventually
from test_lambda import client_of

HASTE = '[calls]\nfirst_delay = "10ms"\n'


def submit(node, function, body=b"", rest="", headers=None, method="POST"):
    """Has a call kept; its id."""
    answer = node.request(method, f"/async-function/{function}{rest}", body, headers)
    assert (answer.status, answer.body) == (202, b""), (answer.status, answer.body)
    identity = answer.headers["X-Call-Id"]
    assert len(identity) == 32 and answer.headers["X-Request-Id"] == identity
    return identity


def describe(node, identity):
    answer = node.control("GET", f"/v1/calls/{identity}")
    assert answer.status == 200, (answer.status, answer.body)
    return answer.document


def ended(node, identity):
    """The call, once it is no longer pending."""
    def found():
        call = describe(node, identity)
        return call if call["state"] in ("succeeded", "dead") else None
    return eventually(found, f"the call {identity} has an outcome")


def result(node, identity):
    return node.control("GET", f"/v1/calls/{identity}/result")


def everything(node, state="all"):
    """All calls in a state, page by page."""
    calls, after = [], ""
    while True:
        page = node.control("GET", f"/v1/calls?state={state}&limit=97{after}").document
        calls += page["calls"]
        if "next" not in page:
            return calls
        after = f"&after={page['next']}"


def test_a_call_is_run_as_if_it_were_asked_for_now(node, suite):
    body = bytes(range(256)) * 100
    identity = submit(node, "suite.echo", body)
    call = ended(node, identity)
    assert (call["state"], call["status"], call["attempts"], call["function"]) == ("succeeded", 200, 1, "suite.echo")
    answer = result(node, identity)
    assert (answer.status, answer.headers["X-Function-Status"], answer.body) == (200, "200", body)


def test_the_function_sees_the_request_that_was_made(node, suite):
    identity = submit(node, "suite.env", b"xyz", "/a/b?q=1", {"X-Colour": "blue", "Content-Type": "text/x", "Connection": "close"}, "PUT")
    ended(node, identity)
    told = dict(line.split("=", 1) for line in result(node, identity).text.splitlines() if "=" in line)
    assert told["REQUEST_METHOD"] == "PUT"
    assert (told["PATH_INFO"], told["QUERY_STRING"]) == ("/a/b", "q=1")
    assert (told["HTTP_X_COLOUR"], told["CONTENT_TYPE"], told["CONTENT_LENGTH"]) == ("blue", "text/x", "3")
    assert told["HTTP_X_CALL_ID"] == identity
    assert told["SCRIPT_NAME"] == "/function/suite.env"
    assert "HTTP_CONNECTION" not in told


def test_a_call_by_a_version_or_alias_is_run_by_it(node):
    node.deploy("aged", {"f": ("env", {"env": {"AGE": "1"}})})
    node.deploy("aged", {"f": ("env", {"env": {"AGE": "2"}})})
    old, new = submit(node, "aged.f:1"), submit(node, "aged.f")
    ended(node, old), ended(node, new)
    assert "AGE=1\n" in result(node, old).text and "AGE=2\n" in result(node, new).text


@pytest.mark.parametrize(("path", "code"), [("suite.nobody", "function-unknown"), ("suite.echo:99", "version-unknown"), ("", None), ("a%20b", None)])
def test_what_cannot_be_run_is_not_kept(node, suite, path, code):
    before = len(everything(node))
    answer = node.request("POST", f"/async-function/{path}", b"x")
    assert answer.status in (400, 404) and answer.document["detail"] and answer.headers["X-Request-Id"]
    assert "X-Call-Id" not in answer.headers
    if code:
        assert answer.document["code"] == code
    assert len(everything(node)) == before


def test_a_body_beyond_the_functions_limit_is_refused(node):
    node.deploy("tight", {"f": ("echo", {"request_body": "1KiB"})})
    answer = node.request("POST", "/async-function/tight.f", b"x" * 2000)
    assert (answer.status, answer.document["code"]) == (413, "limit-request-body")
    with node.wire() as wire:
        # Its length is not known before it has come.
        wire.send(b"POST /async-function/tight.f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n800\r\n" + b"y" * 2048 + b"\r\n0\r\n\r\n")
        assert wire.read().status == 413


def test_calls_follow_each_other_on_a_connection(node, suite):
    """Pipelined with others, and answered in order."""
    with node.wire() as wire:
        one = b"POST /async-function/suite.echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
        ping = b"GET /function/suite.ping HTTP/1.1\r\nHost: x\r\n\r\n"
        wire.send((one + ping) * 5)
        answers = [wire.read() for _ in range(10)]
    assert [answer.status for answer in answers] == [202, 200] * 5
    identities = {answer.headers["X-Call-Id"] for answer in answers[::2]}
    assert len(identities) == 5
    for identity in identities:
        ended(node, identity)
        assert result(node, identity).body == b"hi"


@pytest.mark.parametrize(("function", "reason"), [
    ("suite.exit3", "exited with code 3"), ("suite.trap", "trapped"), ("suite.spin", "timeout"),
])
def test_what_always_fails_becomes_a_dead_letter(make_node, function, reason):
    node = make_node(config=HASTE)
    node.deploy("suite", {"exit3": "exit3", "trap": "trap", "spin": ("spin", {"timeout": "50ms"})})
    identity = submit(node, function)
    call = ended(node, identity)
    assert (call["state"], call["cause"], call["attempts"]) == ("dead", "attempts", 3)
    assert reason in call["reason"]
    answer = result(node, identity)
    assert (answer.status, answer.document["code"]) == (410, "call-dead")
    errors = {series: value for series, value in node.metrics().items() if series.startswith("faas_errors_total{") and f'"{function}"' in series}
    assert list(errors.values()) == [3], errors


def test_a_dead_letter_is_tried_again_or_dropped_by_hand(make_node):
    node = make_node(config=HASTE)
    node.deploy("app", {"f": "exit3"})
    first, second = submit(node, "app.f", b"one"), submit(node, "app.f", b"two")
    ended(node, first), ended(node, second)
    assert [call["id"] for call in everything(node, "dead")] == sorted([first, second])
    # The function is mended, and the dead letter holds the whole request.
    node.deploy("app", {"f": "echo"})
    assert node.control("POST", f"/v1/calls/{first}/retry").status == 200
    call = ended(node, first)
    assert (call["state"], call["attempts"]) == ("succeeded", 4)
    assert result(node, first).body == b"one"
    assert node.control("POST", f"/v1/calls/{first}/retry").document["code"] == "call-not-dead"
    assert node.control("DELETE", f"/v1/calls/{second}").status == 204
    assert node.control("GET", f"/v1/calls/{second}").document["code"] == "call-unknown"
    assert node.control("POST", f"/v1/calls/{'0' * 32}/retry").status == 404


def test_a_function_that_comes_back_is_found_again(make_node):
    node = make_node(config='[calls]\nfirst_delay = "50ms"\nattempts = 100\n')
    node.deploy("app", {"f": "exit3"})
    identity = submit(node, "app.f", b"hi")
    eventually(lambda: describe(node, identity)["attempts"] >= 1, "it was tried")
    assert node.control("DELETE", "/v1/functions/app.f").status in (200, 204)
    attempts = describe(node, identity)["attempts"]
    eventually(lambda: describe(node, identity)["attempts"] > attempts, "it was tried without its function")
    node.deploy("app", {"f": "echo"})
    assert ended(node, identity)["state"] == "succeeded"


def test_a_full_function_postpones_calls_and_does_not_fail_them(make_node):
    """One at a time, none waiting, one attempt each: every call beyond the first is refused again and again."""
    node = make_node(config='[calls]\nfirst_delay = "5ms"\nattempts = 1\n')
    node.deploy("app", {"slow": ("sleep", {"concurrency": 1, "queue": 0})})
    calls = [submit(node, "app.slow", rest="?ms=20") for _ in range(20)]
    outcomes = [ended(node, call) for call in calls]
    assert {call["state"] for call in outcomes} == {"succeeded"}, outcomes
    assert any(call["attempts"] > 1 for call in outcomes), "nothing was ever refused"


def test_pending_calls_are_bounded(make_node):
    node = make_node(config="[calls]\npending = 3\nrunning = 1\n")
    node.deploy("app", {"slow": "sleep", "echo": "echo"})
    for _ in range(3):
        submit(node, "app.slow", rest="?ms=60000")
    answer = node.request("POST", "/async-function/app.echo", b"")
    assert (answer.status, answer.document["code"], answer.headers["Retry-After"]) == (429, "calls-full", "1")
    with pytest.raises(ClientError) as refused:
        client_of(node).invoke(FunctionName="app.echo", InvocationType="Event", Payload=b"{}")
    assert refused.value.response["Error"]["Code"] == "TooManyRequestsException"
    assert node.request("POST", "/function/app.echo", b"still").body == b"still"


def test_results_are_kept_for_a_time(make_node):
    node = make_node(config='[calls]\nretention = "1s"\n')
    node.deploy("app", {"echo": "echo"})
    identity = submit(node, "app.echo")
    ended(node, identity)
    eventually(lambda: node.control("GET", f"/v1/calls/{identity}").status == 404, "the result has been forgotten")


def test_lambda_events_are_calls(node, suite):
    answer = client_of(node).invoke(FunctionName="suite.echo", InvocationType="Event", Payload=b'{"a": 1}')
    assert answer["StatusCode"] == 202 and answer["Payload"].read() == b""
    identity = answer["ResponseMetadata"]["HTTPHeaders"]["x-call-id"]
    ended(node, identity)
    assert json.loads(result(node, identity).body) == {"a": 1}
    # Lambda's limit for events is smaller than for requests.
    with pytest.raises(ClientError) as refused:
        client_of(node).invoke(FunctionName="suite.echo", InvocationType="Event", Payload=b'"' + b"x" * (1 << 20) + b'"')
    assert refused.value.response["Error"]["Code"] == "RequestTooLargeException"


def test_the_command_looks_after_calls(make_node):
    node = make_node(config=HASTE)
    node.deploy("app", {"echo": "echo", "exit3": "exit3"})
    made = node.cli("invoke", "app.echo", "--async", "--data", "hello")
    assert made.returncode == 0, made.stderr
    identity = made.stdout.decode().strip()
    ended(node, identity)
    fetched = node.cli("calls", "result", identity)
    assert (fetched.returncode, fetched.stdout) == (0, b"hello")
    lost = node.cli("invoke", "app.exit3", "--async").stdout.decode().strip()
    ended(node, lost)
    assert node.cli("calls", "result", lost).returncode == 1
    listed = node.cli("calls", "list", "--state", "dead").stdout.decode()
    assert lost in listed and identity not in listed and "exited with code 3" in listed
    assert "attempts" in node.cli("calls", "show", lost).stdout.decode()
    assert node.cli("calls", "retry", lost).returncode == 0
    ended(node, lost)
    assert node.cli("calls", "drop", lost).returncode == 0
    assert node.cli("calls", "show", lost).returncode == 1


def test_an_orderly_end_interrupts_nothing(make_node):
    node = make_node(config='[calls]\nrunning = 2\nattempts = 1\n')
    node.deploy("app", {"slow": "sleep"})
    calls = [submit(node, "app.slow", rest="?ms=300") for _ in range(6)]
    node.stop()
    node.start()
    outcomes = [ended(node, call) for call in calls]
    assert {call["state"] for call in outcomes} == {"succeeded"}, outcomes
    assert {call["attempts"] for call in outcomes} <= {1, 2}


def test_what_takes_the_node_down_with_it_is_given_up(make_node):
    """A call that is running whenever the node is killed is not tried for ever."""
    node = make_node(config="[calls]\nattempts = 100\n")
    node.deploy("app", {"slow": "sleep"})
    identity = submit(node, "app.slow", rest="?ms=30000")
    for _ in range(6):
        eventually(lambda: describe(node, identity)["state"] == "running", "it runs")
        node.kill()
        node.start()
    call = ended(node, identity)
    assert (call["state"], call["cause"]) == ("dead", "interrupted")


def at_home(node):
    """Fixes the ports that the node got, so that clients find it again after a restart."""
    for flag, (host, port) in (("--listen", node.listen), ("--admin", node.admin)):
        node.command[node.command.index(flag) + 1] = f"{host}:{port}"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_acknowledged_call_is_lost_to_kill(make_node, seed):
    """Clients submit without pause while the node is killed at random points."""
    rng = random.Random(seed)
    node = make_node(cores=PROCESSORS[:2], config=HASTE)
    node.deploy("app", {"echo": "echo"})
    at_home(node)
    accepted, stop = {}, threading.Event()

    def client(number):
        for count in range(1_000_000):
            if stop.is_set():
                return
            body = f"{number}-{count}".encode()
            try:
                answer = node.request("POST", "/async-function/app.echo", body)
            except OSError:
                time.sleep(0.01)
                continue
            if answer.status == 202:
                accepted[answer.headers["X-Call-Id"]] = body

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        before = len(accepted)
        more = rng.randrange(1, 60)
        eventually(lambda: len(accepted) > before + more, "more calls are accepted")
        node.kill()
        node.start()
    stop.set()
    for thread in threads:
        thread.join()
    assert len(accepted) > 50
    eventually(lambda: not everything(node, "pending"), "nothing is pending")
    found = {call["id"]: call for call in everything(node)}
    lost = [identity for identity in accepted if found.get(identity, {}).get("state") != "succeeded"]
    assert not lost, f"{len(lost)} of {len(accepted)} were lost"
    for identity in rng.sample(sorted(accepted), 20):
        assert result(node, identity).body == accepted[identity]


def test_lambdas_clients_lose_nothing_to_kill(make_node):
    """500 invokes, many at once, and 200 events, with `kill -9` in between: what fails is only who was being answered."""
    node = make_node(cores=PROCESSORS[:2], config=HASTE)
    node.deploy("shop", {"echo": "echo"})
    at_home(node)
    client = client_of(node, connections=50)
    accepted, answered, done = {}, [], threading.Event()

    def until(action):
        """As an AWS client does by default: again, when the connection broke."""
        while not done.is_set():
            try:
                return action()
            except BotoCoreError:
                time.sleep(0.02)
            except ClientError as error:
                assert error.response["Error"]["Code"] in ("TooManyRequestsException", "ServiceException"), error
                time.sleep(0.02)
        raise AssertionError("given up")

    def event(number):
        def once():
            answer = client.invoke(FunctionName="shop.echo", InvocationType="Event", Payload=json.dumps(number).encode())
            assert answer["StatusCode"] == 202
            accepted[answer["ResponseMetadata"]["HTTPHeaders"]["x-call-id"]] = number
        until(once)

    def invoke(number):
        answer = until(lambda: client.invoke(FunctionName="shop.echo", Payload=json.dumps({"n": number}).encode()))
        assert json.loads(answer["Payload"].read()) == {"n": number}
        answered.append(number)

    with ThreadPoolExecutor(50) as pool:
        work = []
        for number in range(500):
            work.append(pool.submit(invoke, number))
            if number % 5 < 2:
                work.append(pool.submit(event, number))
        try:
            for at in (100, 300, 500):
                eventually(lambda: sum(one.done() for one in work) > at, f"{at} are done")
                node.kill()
                node.start()
            for one in work:
                one.result(timeout=60)
        finally:
            done.set()
    assert sorted(answered) == list(range(500)) and len(accepted) >= 200
    eventually(lambda: not everything(node, "pending"), "nothing is pending")
    outcomes = {call["id"]: call["state"] for call in everything(node)}
    assert {outcomes.get(identity) for identity in accepted} == {"succeeded"}
    for identity, number in accepted.items():
        assert json.loads(result(node, identity).body) == number
