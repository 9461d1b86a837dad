"""Who is to hear of a call's outcome does: functions and servers, whatever happens to them or to the node."""

import contextlib
import random
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import PATIENCE, PROCESSORS, eventually
from test_calls import at_home, describe, ended, everything, result, submit

TOLD = '[calls]\nfirst_delay = "10ms"\ncallbacks = ["127.0.0.1"]\n'


class Receiver(ThreadingHTTPServer):
    """A server that is told outcomes, and takes them as its manner is. It runs while the block does."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, manner="takes", port=0):
        super().__init__(("127.0.0.1", port), Told)
        self.manner, self.released = manner, threading.Event()
        # What was asked, and the ids of the calls whose outcome was taken.
        self.asked, self.taken, self.lock = [], [], threading.Lock()
        self.under_way = 0

    def url(self, path="/done"):
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        """A node that is killed leaves in the middle."""


class Told(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with server.lock:
            server.asked.append((self.path, self.headers, body))
            server.under_way += 1
        status, headers = 204, {}
        match server.manner:
            case "hangs":
                server.released.wait(PATIENCE)
            case "is slow":
                time.sleep(0.05)
            case "fails":
                status = 503
            case "fails thrice" if len(server.asked) <= 3:
                status = 500
            case "sends elsewhere":
                status, headers = 307, {"Location": server.elsewhere}
        with server.lock:
            server.under_way -= 1
            if status == 204:
                server.taken.append(self.headers["X-Call-Id"])
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_):
        pass


def ask(node, function, url, body=b"", rest=""):
    return submit(node, function, body, rest, {"X-Callback-Url": url})


def told(node, identity, states=("succeeded", "dead")):
    """The call that tells the outcome of this one, once it is in one of the states."""
    def found():
        teller = describe(node, identity).get("callback", {}).get("id")
        call = teller and describe(node, teller)
        return call if call and call["state"] in states else None
    return eventually(found, f"the outcome of {identity} is told")


def test_a_server_is_told_the_result(make_node):
    node = make_node(config=TOLD)
    node.deploy("app", {"png": ("echo", {"content_type": "image/png"})})
    with Receiver() as receiver:
        identity = ask(node, "app.png", receiver.url("/done?a=b"), b"some bytes")
        call = told(node, identity)
        (path, headers, body), = receiver.asked
    assert (path, body) == ("/done?a=b", b"some bytes")
    assert headers["X-Call-Id"] == identity
    assert (headers["X-Call-Status"], headers["X-Function-Status"], headers["X-Function-Name"]) == ("succeeded", "200", "app.png")
    assert float(headers["X-Duration-Seconds"]) >= 0 and headers["Content-Type"] == "image/png"
    assert (call["state"], call["status"], call["callback_of"], call["attempts"]) == ("succeeded", 204, identity, 1)
    shown = describe(node, identity)
    assert (shown["state"], shown["callback"], shown["callback_url"]) == (
        "succeeded", {"id": call["id"], "state": "succeeded"}, receiver.url("/done?a=b"))
    # The result is kept beside it.
    assert result(node, identity).body == b"some bytes"
    text = node.cli("calls", "show", identity).stdout.decode()
    assert receiver.url("/done?a=b") in text and call["id"] in text
    listed = node.cli("calls", "list").stdout.decode()
    assert f"of {identity}" in listed and "a=b" not in listed


def test_a_server_is_told_of_a_dead_letter_and_of_its_retry(make_node):
    node = make_node(config=TOLD)
    node.deploy("app", {"f": "exit3"})
    with Receiver() as receiver:
        identity = ask(node, "app.f", receiver.url(), b"work")
        told(node, identity)
        (_, headers, body), = receiver.asked
        assert (headers["X-Call-Id"], headers["X-Call-Status"], headers["X-Function-Status"]) == (identity, "dead", "500")
        assert headers["Content-Type"] == "application/problem+json"
        assert b"call-dead" in body and b"exited with code 3" in body
        node.deploy("app", {"f": "echo"})
        assert node.control("POST", f"/v1/calls/{identity}/retry").status == 200
        eventually(lambda: len(receiver.asked) == 2, "the other outcome is told")
        _, headers, body = receiver.asked[1]
        assert (headers["X-Call-Id"], headers["X-Call-Status"], body) == (identity, "succeeded", b"work")


@pytest.mark.parametrize("invocation", ["RequestResponse", "Event"])
def test_lambdas_events_have_callbacks_and_requests_have_none(make_node, invocation):
    node = make_node(config=TOLD)
    node.deploy("app", {"echo": "echo"})
    with Receiver() as receiver:
        headers = {"X-Amz-Invocation-Type": invocation, "X-Callback-Url": receiver.url()}
        answer = node.request("POST", "/2015-03-31/functions/app.echo/invocations", b'{"a":1}', headers)
        if invocation == "Event":
            assert answer.status == 202
            told(node, answer.headers["X-Call-Id"])
            assert receiver.asked[0][2] == b'{"a":1}'
        else:
            assert (answer.status, answer.body) == (200, b'{"a":1}')
            assert not everything(node)


def test_a_server_that_fails_is_told_again(make_node):
    node = make_node(config=TOLD)
    node.deploy("app", {"echo": "echo"})
    with Receiver("fails thrice") as receiver:
        identity = ask(node, "app.echo", receiver.url(), b"once more")
        call = told(node, identity)
        assert (call["state"], call["attempts"], len(receiver.asked)) == ("succeeded", 4, 4)
        assert {(headers["X-Call-Id"], body) for _, headers, body in receiver.asked} == {(identity, b"once more")}
    assert describe(node, identity)["attempts"] == 1, "the function ran once"


def test_a_server_that_was_down_is_told_when_it_is_back(make_node):
    node = make_node(config=TOLD + "callback_attempts = 1000\n")
    node.deploy("app", {"echo": "echo"})
    with Receiver() as receiver:
        url, port = receiver.url(), receiver.server_address[1]
    identities = [ask(node, "app.echo", url, str(n).encode()) for n in range(20)]
    for identity in identities:
        eventually(lambda one=identity: told(node, one, ("waiting", "running"))["attempts"] > 1, "it was tried in vain")
    assert "refused" in told(node, identities[0], ("waiting", "running"))["reason"]
    with Receiver(port=port) as receiver:
        for identity in identities:
            assert told(node, identity)["state"] == "succeeded"
        assert sorted(receiver.taken) == sorted(identities)


def test_a_server_that_hangs_holds_nobody_back(make_node):
    node = make_node(config=TOLD)
    node.deploy("app", {"echo": "echo"})

    def under_way():
        return sum(call["state"] == "running" and "callback_of" in call for call in everything(node, "pending"))

    with Receiver("hangs") as hangs, Receiver() as other, Receiver("is slow") as slow:
        stuck = [ask(node, "app.echo", hangs.url()) for _ in range(40)]
        eventually(lambda: hangs.under_way >= 8, "it is told as much at once as it may be")
        assert under_way() <= 8
        calls = [ask(node, "app.echo", server.url()) for _ in range(30) for server in (other, slow)]
        plain = [submit(node, "app.echo") for _ in range(30)]
        for identity in calls:
            assert told(node, identity)["state"] == "succeeded"
        for identity in plain + stuck:
            assert ended(node, identity)["state"] == "succeeded"
        assert not hangs.taken and under_way() <= 8
        hangs.released.set()
        for identity in stuck:
            assert told(node, identity)["state"] == "succeeded"
        assert set(hangs.taken) == set(stuck)


def test_a_server_that_does_not_take_it_is_given_up_and_that_can_be_mended_by_hand(make_node):
    node = make_node(config=TOLD + "callback_attempts = 2\n")
    node.deploy("app", {"echo": "echo"})
    with Receiver("fails") as receiver:
        first, second = (ask(node, "app.echo", receiver.url("/done?token=secret"), body) for body in (b"1", b"2"))
        dead = [told(node, identity) for identity in (first, second)]
        assert [(call["state"], call["cause"], call["attempts"]) for call in dead] == [("dead", "attempts", 2)] * 2
        assert "answered with status 503" in dead[0]["reason"]
        assert "secret" not in node.log.read_text(), "what may open a server is not for the log"
        # It is a dead letter like any other.
        assert {call["id"] for call in everything(node, "dead")} == {call["id"] for call in dead}
        listed = node.cli("calls", "list", "--state", "dead").stdout.decode()
        assert dead[0]["id"] in listed and f"of {first}" in listed and "status 503" in listed
        assert describe(node, first)["callback"]["state"] == "dead"
        assert result(node, first).body == b"1"
        receiver.manner = "takes"
        assert node.cli("calls", "retry", dead[0]["id"]).returncode == 0
        assert told(node, first, ["succeeded"])["attempts"] == 3
        assert receiver.asked[-1][2] == b"1"
        assert node.cli("calls", "drop", dead[1]["id"]).returncode == 0
        assert describe(node, second)["callback"] == {"id": dead[1]["id"]}
        assert not everything(node, "dead")


def test_nobody_is_sent_elsewhere(make_node):
    node = make_node(config=TOLD + "callback_attempts = 2\n")
    node.deploy("app", {"echo": "echo"})
    with Receiver("sends elsewhere") as receiver, Receiver() as elsewhere:
        receiver.elsewhere = elsewhere.url()
        call = told(node, ask(node, "app.echo", receiver.url()))
        assert call["state"] == "dead" and "status 307" in call["reason"]
        assert not elsewhere.asked


def test_only_listed_hosts_are_told(make_node):
    node = make_node(config='[calls]\ncallbacks = ["hooks.example.org"]\n')
    node.deploy("app", {"echo": "echo"})
    for url, status, code, words in [
        ("http://127.0.0.1:1/x", 403, "callback-host", 'callbacks = ["127.0.0.1"] under [calls]'),
        ("http://[::1]:1/x", 403, "callback-host", 'callbacks = ["::1"]'),
        ("https://example.org/", 403, "callback-host", "example.org"),
        ("http://x.hooks.example.org/", 403, "callback-host", "[calls]"),
        ("http://hooks.example.org.evil.org/", 403, "callback-host", "evil.org"),
        ("http://hooks.example.org@evil.org/", 400, "callback-malformed", "user"),
        ("ftp://hooks.example.org/", 400, "callback-malformed", "http"),
        ("//hooks.example.org/", 400, "callback-malformed", "/function/NAME"),
        ("/async-function/app.echo", 400, "callback-malformed", "/function/NAME"),
        ("/function/app.nobody", 400, "callback-malformed", "nobody"),
        ("/function/NOT A NAME", 400, "callback-malformed", "/function/NAME"),
        ("http://hooks.example.org/" + "x" * 3000, 400, "callback-malformed", "2048"),
        ("", 400, "callback-malformed", "/function/NAME"),
    ]:
        answer = node.request("POST", "/async-function/app.echo", b"x", {"X-Callback-Url": url})
        problem = answer.problem(status, code)
        assert words in problem["detail"] + problem["hint"], problem
        event = {"X-Amz-Invocation-Type": "Event", "X-Callback-Url": url}
        answer = node.request("POST", "/2015-03-31/functions/app.echo/invocations", b"{}", event)
        kind = "AccessDeniedException" if status == 403 else "InvalidParameterValueException"
        assert (answer.status, answer.headers["x-amzn-ErrorType"]) == (status, kind)
        assert any(words in str(value) for value in answer.document.values()), answer.document
    assert not everything(node), "what is refused is not kept"
    assert submit(node, "app.echo", headers={"X-Callback-Url": "http://HOOKS.example.org:81/x"}, body=b"listed")


def test_a_host_that_is_no_longer_listed_is_told_nothing(make_node):
    node = make_node(config=TOLD)
    node.deploy("app", {"slow": "sleep"})
    with Receiver("fails") as receiver:
        identity = ask(node, "app.slow", receiver.url())
        eventually(lambda: receiver.asked, "it is told")
        node.stop()
        (node.folder / "config.toml").write_text('[calls]\ncallbacks = ["hooks.example.org"]\n')
        asked = len(receiver.asked)
        node.start()
        call = told(node, identity)
        assert (call["state"], call["cause"]) == ("dead", "final") and "callbacks" in call["reason"]
        assert len(receiver.asked) == asked


def test_a_function_is_told_and_chains_end(make_node):
    node = make_node(config='[calls]\nfirst_delay = "10ms"\n')
    node.deploy("app", {"echo": ("echo", {"content_type": "text/x-mine"}), "env": "env", "exit3": "exit3"})
    identity = ask(node, "app.echo", "/function/app.env/a/b?q=1", b"of the first")
    call = told(node, identity)
    assert (call["function"], call["callback_of"], "callback" in call) == ("app.env", identity, False)
    said = dict(line.split("=", 1) for line in result(node, call["id"]).text.splitlines() if "=" in line)
    assert (said["REQUEST_METHOD"], said["PATH_INFO"], said["QUERY_STRING"]) == ("POST", "/a/b", "q=1")
    assert (said["CONTENT_TYPE"], said["CONTENT_LENGTH"]) == ("text/x-mine", "12")
    assert (said["HTTP_X_CALL_ID"], said["HTTP_X_CALL_STATUS"], said["HTTP_X_FUNCTION_STATUS"]) == (identity, "succeeded", "200")
    assert "HTTP_X_CALLBACK_URL" not in said
    # To itself, and the other way round: that is two calls each, and no more.
    ours = [ask(node, "app.echo", "/function/app.echo", b"again"), ask(node, "app.exit3", "/function/app.exit3")]
    ends = [told(node, one) for one in ours]
    assert [end["state"] for end in ends] == ["succeeded", "dead"]
    assert result(node, ends[0]["id"]).body == b"again"
    eventually(lambda: not everything(node, "pending"), "nothing is pending")
    assert len(everything(node)) == 6


def test_a_function_is_not_told_more_than_it_takes(make_node):
    node = make_node(config='[calls]\nfirst_delay = "10ms"\n')
    node.deploy("app", {"echo": "echo", "tight": ("echo", {"request_body": "1KiB"})})
    call = told(node, ask(node, "app.echo", "/function/app.tight", b"x" * 2000))
    assert (call["state"], call["cause"]) == ("dead", "final") and "limit" in call["reason"]


def test_who_names_a_server_that_takes_nothing_is_refused_and_nobody_else(make_node):
    node = make_node(config=TOLD + "pending = 8\n")
    node.deploy("app", {"echo": "echo"})
    with Receiver("hangs") as hangs, Receiver() as other:
        stuck = [ask(node, "app.echo", hangs.url()) for _ in range(4)]
        headers = {"X-Callback-Url": hangs.url()}
        answer = node.request("POST", "/async-function/app.echo", b"", headers)
        problem = answer.problem(429, "callbacks-full")
        assert hangs.url("") in problem["detail"] and answer.headers["Retry-After"] == "1"
        assert told(node, ask(node, "app.echo", other.url()))["state"] == "succeeded"
        assert ended(node, submit(node, "app.echo"))["state"] == "succeeded"
        hangs.released.set()
        for identity in stuck:
            told(node, identity)
        assert told(node, ask(node, "app.echo", hangs.url()))["state"] == "succeeded"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_outcome_is_lost_to_kill(make_node, seed):
    """Clients submit without pause while the node is killed at random points, and the server fails now and then."""
    rng = random.Random(seed)
    node = make_node(cores=PROCESSORS[:2], config=TOLD + "callback_attempts = 1000\n")
    node.deploy("app", {"echo": "echo", "exit3": "exit3"})
    at_home(node)
    accepted, stop = {}, threading.Event()
    with Receiver("fails thrice") as receiver:
        targets = [receiver.url(), "/function/app.echo/told"]

        def client(number):
            for count in range(1_000_000):
                if stop.is_set():
                    return
                function = "exit3" if count % 7 == 3 else "echo"
                body, target = f"{number}-{count}".encode(), targets[count % 2]
                with contextlib.suppress(OSError):
                    answer = node.request("POST", f"/async-function/app.{function}", body, {"X-Callback-Url": target})
                    if answer.status == 202:
                        accepted[answer.headers["X-Call-Id"]] = (body, target, function)
                        continue
                time.sleep(0.01)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            before, more = len(accepted), rng.randrange(1, 60)
            eventually(lambda: len(accepted) > before + more, "more calls are accepted")
            node.kill()
            node.start()
        stop.set()
        for thread in threads:
            thread.join()
        assert len(accepted) > 50
        eventually(lambda: not everything(node, "pending"), "nothing is pending")
        calls = {call["id"]: call for call in everything(node)}
        bodies = {(headers["X-Call-Id"], headers["X-Call-Status"]): body for _, headers, body in receiver.asked}
        taken = set(receiver.taken)
    for identity, (body, target, function) in accepted.items():
        call = calls[identity]
        teller = calls[call["callback"]["id"]]
        assert call["state"] == ("dead" if function == "exit3" else "succeeded"), call
        assert (teller["state"], teller["callback_of"]) == ("succeeded", identity), teller
        if target.startswith("http"):
            assert identity in taken
            assert function == "exit3" or bodies[identity, "succeeded"] == body
    # One for each outcome, whoever died when.
    tellers = [call["callback_of"] for call in calls.values() if "callback_of" in call]
    assert len(tellers) == len(set(tellers))
    for identity in rng.sample(sorted(accepted), 20):
        body, target, function = accepted[identity]
        if target.startswith("/") and function == "echo":
            assert result(node, calls[identity]["callback"]["id"]).body == body
