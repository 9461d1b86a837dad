"""What makes functions run besides requests: schedules, whose runs are neither lost nor doubled, and CloudEvents."""

import hashlib
import json
import time
from datetime import datetime

import pytest
from harness import Application, eventually, guest
from test_calls import everything

HASTE = '[calls]\nfirst_delay = "10ms"\n'
EVENT = {"ce-specversion": "1.0", "ce-type": "com.example.order.paid", "ce-source": "/shop", "ce-id": "A1"}


def says(text):
    """A program that writes a text: the smallest that can answer anything."""
    def leb(number):
        out = b""
        while True:
            number, byte = number >> 7, number & 0x7F
            out += bytes([byte | (0x80 if number else 0)])
            if not number:
                return out

    def signed(number):
        out = b""
        while True:
            byte, number = number & 0x7F, number >> 7
            last = number == 0 and not byte & 0x40
            out += bytes([byte if last else byte | 0x80])
            if last:
                return out

    def section(identity, *items):
        body = leb(len(items)) + b"".join(items)
        return bytes([identity]) + leb(len(body)) + body

    def name(text):
        return leb(len(text)) + text.encode()

    text = text.encode() if isinstance(text, str) else text
    pointers = (64).to_bytes(4, "little") + len(text).to_bytes(4, "little")
    code = b"\x00\x41\x01\x41\x00\x41\x01\x41" + signed(16) + b"\x10\x00\x1a\x0b"
    return (
        b"\0asm\1\0\0\0"
        + section(1, b"\x60\x04\x7f\x7f\x7f\x7f\x01\x7f", b"\x60\x00\x00")
        + section(2, name("wasi_snapshot_preview1") + name("fd_write") + b"\x00\x00")
        + section(3, b"\x01")
        + section(5, b"\x00\x02")
        + section(7, name("memory") + b"\x02\x00", name("_start") + b"\x00\x01")
        + section(10, leb(len(code)) + code)
        + section(11, b"\x00\x41\x00\x0b" + leb(8) + pointers, b"\x00\x41" + signed(64) + b"\x0b" + leb(len(text)) + text)
    )


def try_deploy(node, name, functions, schedules=(), events=(), plan=False):
    triggers = {"schedule": list(schedules), "cloudevents": list(events)}
    manifest = {"application": {"name": name}, "function": {}, "trigger": triggers}
    code = {}
    for function, what in functions.items():
        program, settings = what if isinstance(what, tuple) else (what, {})
        program = guest(program) if isinstance(program, str) else program
        code[function] = hashlib.sha256(program).hexdigest()
        manifest["function"][function] = {"source": f"{function}.wasm"} | settings
        assert node.control("PUT", f"/v1/code/{code[function]}", body=program).status in (200, 201)
    path = f"/v1/applications/{name}/deployments?plan={str(plan).lower()}"
    return node.control("POST", path, {"manifest": manifest, "code": code})


def deploy(node, name, functions, schedules=(), events=()):
    answer = try_deploy(node, name, functions, schedules, events)
    assert answer.status == 200, (answer.status, answer.body)
    return Application(node, name, answer.document)


def told(node, call):
    """What a call's function was told: `env` answers with its variables."""
    text = node.control("GET", f"/v1/calls/{call['id']}/result").text
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def ended(node, identity):
    def found():
        call = node.control("GET", f"/v1/calls/{identity}").document
        return call if call["state"] in ("succeeded", "dead") else None
    return eventually(found, f"the call {identity} has an outcome")


def send(node, headers=None, body=b"", path="/events", method="POST"):
    return node.request(method, path, body, EVENT if headers is None else headers)


def accepted(answer):
    assert answer.status == 202, (answer.status, answer.body)
    return answer.document["calls"]


def structured(**attributes):
    event = {"specversion": "1.0", "type": "com.example.order.paid", "source": "/shop", "id": "A1"} | attributes
    return json.dumps({name: value for name, value in event.items() if value is not ...})


STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BATCH = {"Content-Type": "application/cloudevents-batch+json; charset=utf-8"}


def when(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


# --- schedules ---


def runs(node):
    """When the runs were due that have succeeded, by the events that the function saw: seconds, in order."""
    seen = [told(node, call) for call in everything(node, "succeeded")]
    identities = [event["HTTP_CE_ID"] for event in seen]
    assert len(set(identities)) == len(identities)
    return sorted(when(event["HTTP_CE_TIME"]) for event in seen)


def test_a_schedule_runs_its_function_with_an_event(node):
    deploy(node, "app", {"f": "env"}, [{"function": "f", "cron": "* * * * * *", "payload": "hello"}])
    def mine():
        return [call for call in everything(node, "succeeded") if call["function"] == "app.f"]
    eventually(lambda: len(mine()) >= 2, "it has run twice")
    call = mine()[0]
    event = told(node, call)
    assert event["REQUEST_METHOD"] == "POST" and event["CONTENT_LENGTH"] == "5"
    assert event["HTTP_CE_SPECVERSION"] == "1.0" and event["HTTP_CE_TYPE"] == "millpond.schedule"
    assert event["HTTP_CE_SOURCE"] == "/app/f/schedule" and event["HTTP_CE_ID"] == call["id"]
    assert event["HTTP_CE_SUBJECT"] == "*%20*%20*%20*%20*%20*"
    assert when(event["HTTP_CE_TIME"]) % 1 == 0
    described = node.control("GET", "/v1/functions/app.f").document["schedules"]
    assert [(one["when"], one["missed"], one["enabled"]) for one in described] == [("* * * * * *", "once", True)]
    assert abs(when(described[0]["next"]) - time.time()) < 60
    shown = node.cli("describe", "app.f")
    assert shown.returncode == 0 and b"schedules" in shown.stdout and b"next" in shown.stdout
    node.control("DELETE", "/v1/applications/app")


def test_no_run_is_lost_or_doubled_by_a_crash(make_node):
    node = make_node(config=HASTE)
    deploy(node, "app", {"f": "env"}, [{"function": "f", "every": "1s", "missed": "all"}])
    for count in (1, 2, 3, 4):
        eventually(lambda count=count: len(everything(node, "succeeded")) >= 2 * count, "it runs")
        node.kill()
        node.start()
    eventually(lambda: len(everything(node, "succeeded")) >= 12, "it runs on")
    times = runs(node)
    # One each second, from the first to the last, each once: succeeded, or on its way when we looked.
    steps = [later - earlier for earlier, later in zip(times, times[1:])]
    pending = len(everything(node, "pending")) + 2
    assert all(round(step, 3) == 1 for step in steps[: len(steps) - pending]), steps
    assert not everything(node, "dead")


@pytest.mark.parametrize(("missed", "made_up"), [("skip", 0), ("once", 1), ("all", 5)])
def test_missed_runs_are_made_up_for_by_policy(make_node, missed, made_up):
    """A run is missed if it is more than five seconds late: of ten that were due while the node was down, the first five."""
    node = make_node(config=HASTE)
    schedules = [{"function": "f", "every": "1s", "missed": missed, "payload": "x"}]
    deploy(node, "app", {"f": "env"}, schedules)
    eventually(lambda: everything(node, "succeeded"), "it has run")
    node.stop()
    stopped = time.time()
    # What is measured is how long the node is down.
    while time.time() < stopped + 10:
        time.sleep(0.1)
    started = time.time()
    node.start()
    eventually(lambda: any(due > started + 1 for due in runs(node)), "it runs again")
    late = [due for due in runs(node) if stopped < due < started - 5]
    assert abs(len(late) - made_up) <= (1 if missed == "all" else 0), (late, started)
    if missed == "once":
        assert started - 7 < late[0]
    warned = "not made up for" in node.log.read_text()
    assert warned == (missed != "all")


def test_a_schedule_begins_when_it_is_deployed_and_ends_when_it_goes(make_node):
    node = make_node()
    schedule = {"function": "f", "every": "1s"}
    deploy(node, "app", {"f": "env"}, [schedule | {"enabled": False}, {"function": "f", "cron": "0 0 1 1 *", "timezone": "Europe/Berlin"}])
    described = node.control("GET", "/v1/functions/app.f").document["schedules"]
    assert [one["when"] for one in described] == ["every 1s", "0 0 1 1 * Europe/Berlin"]
    eventually(lambda: "next" in node.control("GET", "/v1/functions/app.f").document["schedules"][1], "it is known when it is due")
    described = node.control("GET", "/v1/functions/app.f").document["schedules"]
    assert "next" not in described[0]
    assert described[1]["next"].endswith("-12-31T23:00:00Z")
    assert not everything(node)
    before = time.time()
    deploy(node, "app", {"f": "env"}, [schedule])
    eventually(lambda: runs(node), "it runs once it is enabled")
    assert runs(node)[0] > before
    deploy(node, "app", {"f": "env"})
    eventually(lambda: not everything(node, "pending"), "nothing is under way")
    count = len(everything(node))
    # Another one shows that the time has come at which the first would have run.
    deploy(node, "other", {"g": "env"}, [{"function": "g", "every": "1s"}])
    eventually(lambda: sum(call["function"] == "other.g" for call in everything(node)) >= 3, "the other one runs")
    assert sum(call["function"] == "app.f" for call in everything(node)) <= count


def test_a_schedule_that_fails_is_retried_as_calls_are(make_node):
    node = make_node(config=HASTE)
    deploy(node, "app", {"f": "exit3"}, [{"function": "f", "cron": "* * * * * *"}])
    call = eventually(lambda: everything(node, "dead"), "a run is a dead letter")[0]
    assert (call["attempts"], call["cause"]) == (3, "attempts")


@pytest.mark.parametrize(("schedule", "words"), [
    ({}, "nothing says when"), ({"cron": "* * * * *", "every": "1m"}, "beside `cron`"), ({"cron": "61 * * * *"}, "cron expression"),
    ({"cron": "* * * *"}, "4 fields"), ({"cron": "0 0 30 2 *"}, "never due"), ({"cron": "@reboot"}, "cron"),
    ({"cron": "* * * * *", "timezone": "Mars/Base"}, "IANA"), ({"every": "1s", "timezone": "UTC"}, "beside `every`"),
    ({"every": "0.5s"}, "1s to"), ({"every": "often"}, "no duration"), ({"every": "9000h"}, "1s to"),
    ({"every": "1s", "missed": "some"}, "skip"), ({"every": "1s", "payload": "x" * 65537}, "65536"),
    ({"every": "1s", "function": "nobody"}, "nobody"), ({"every": 1}, "must be a string"), ({"evry": "1s"}, "did you mean `every`"),
])
def test_a_schedule_that_cannot_be_is_refused(node, schedule, words):
    answer = try_deploy(node, "app", {"f": "env"}, [{"function": "f"} | schedule])
    assert words in json.dumps(answer.problem(422, "manifest-invalid"), ensure_ascii=False)


def test_a_plan_shows_triggers(node):
    schedules = [{"function": "f", "cron": "0 2 * * *"}]
    events = [{"function": "f", "type": "com.example.*", "source": "/shop"}]
    plan = try_deploy(node, "planned", {"f": "env"}, schedules, events, plan=True).document
    assert [one["when"] for one in plan["schedules"]] == ["0 2 * * *"]
    assert plan["events"] == [{"function": "f", "type": "com.example.*", "source": "/shop"}]


# --- events in ---


@pytest.fixture
def orders(node):
    deploy(node, "orders", {"bill": "env", "log": "env", "echo": "echo"}, events=[
        {"function": "bill", "type": "com.example.order.paid"},
        {"function": "log", "type": "com.example.*", "source": "/shop*"},
        {"function": "log", "type": "com.example.order.*"},
        {"function": "echo", "type": "data"},
    ])
    yield node
    node.control("DELETE", "/v1/applications/orders")


def test_an_event_runs_each_function_that_wants_it_once(orders):
    calls = accepted(send(orders, EVENT | {"ce-note": "a%20b", "Content-Type": "text/x"}, b"data"))
    assert len(set(calls)) == 2
    found = [ended(orders, call) for call in calls]
    assert sorted(call["function"] for call in found) == ["orders.bill", "orders.log"]
    for call in found:
        event = told(orders, call)
        assert (event["HTTP_CE_TYPE"], event["HTTP_CE_SOURCE"]) == ("com.example.order.paid", "/shop")
        assert (event["HTTP_CE_ID"], event["HTTP_CE_NOTE"]) == ("A1", "a%20b")
        assert (event["CONTENT_TYPE"], event["CONTENT_LENGTH"]) == ("text/x", "4")
        assert event["HTTP_X_CALL_ID"] == call["id"]
    assert len(accepted(send(orders, EVENT | {"ce-type": "com.example.return", "ce-source": "/shop/2"}))) == 1


def test_structured_events_become_binary_ones(orders):
    body = structured(data={"total": 12.50}, subject="größe", flag=True)
    calls = accepted(send(orders, STRUCTURED, body))
    assert len(calls) == 2
    ended(orders, calls[0])
    event = told(orders, {"id": calls[0]})
    assert (event["CONTENT_TYPE"], event["CONTENT_LENGTH"]) == ("application/json", str(len('{"total": 12.5}')))
    assert event["HTTP_CE_SUBJECT"] == "gr%C3%B6%C3%9Fe" and event["HTTP_CE_FLAG"] == "true"
    [call] = accepted(send(orders, STRUCTURED, structured(type="data", data_base64="AAEC/w==")))
    ended(orders, call)
    assert orders.control("GET", f"/v1/calls/{call}/result").body == b"\0\1\2\xff"


def test_a_batch_is_accepted_as_a_whole(orders):
    events = [structured(id=str(number), type="data", data=number) for number in range(20)]
    calls = accepted(send(orders, BATCH, f"[{','.join(events)}]"))
    assert len(set(calls)) == 20
    bodies = []
    for call in calls:
        ended(orders, call)
        bodies.append(int(orders.control("GET", f"/v1/calls/{call}/result").body))
    assert bodies == list(range(20))
    before = len(everything(orders))
    answer = send(orders, BATCH, f"[{','.join(events)},{structured(id=...)}]")
    assert "event 20" in answer.problem(400, "event-malformed")["detail"]
    assert len(everything(orders)) == before
    assert accepted(send(orders, BATCH, "[]")) == []


def test_an_event_can_be_for_one_application(orders):
    deploy(orders, "second", {"f": "env"}, events=[{"function": "f", "type": "*"}])
    assert len(accepted(send(orders))) == 3
    [call] = accepted(send(orders, path="/events/second"))
    assert ended(orders, call)["function"] == "second.f"
    send(orders, path="/events/nobody").problem(404, "application-unknown")
    send(orders, path="/events/Not%20a%20name").problem(404, "application-unknown")
    orders.control("DELETE", "/v1/applications/second")


def test_what_nobody_wants_and_what_is_no_event_is_not_kept(orders):
    before = len(everything(orders))
    assert "nobody.wants" in send(orders, EVENT | {"ce-type": "nobody.wants"}).problem(404, "event-unwanted")["detail"]
    assert send(orders, method="GET").problem(405, "route-method")
    assert send(orders, method="PUT").headers["Allow"] == "POST"
    send(orders, body=b"x" * ((6 << 20) + 1)).problem(413, "calls-size")
    assert len(everything(orders)) == before


MALFORMED = (
    [{name: value for name, value in EVENT.items() if name != missing} for missing in EVENT]
    + [EVENT | change for change in (
        {"ce-specversion": "0.3"}, {"ce-specversion": "1.1"}, {"ce-id": ""}, {"ce-type": ""}, {"ce-source": ""},
        {"ce-source": "a b"}, {"ce-source": "/%zz"}, {"ce-id": "%FF"}, {"ce-id": "%00"}, {"ce-id": '"open'},
        {"ce-time": "now"}, {"ce-time": "2026-02-30T00:00:00Z"}, {"ce-time": "2026-02-03"}, {"ce-subject": ""},
        {"ce-dataschema": "relative"}, {"ce-datacontenttype": "text/plain"}, {"ce-data": "x"}, {"ce-with-dash": "x"},
        {"Content-Type": "nonsense"}, {"Content-Type": "application/cloudevents+protobuf"}, {"ce-millpondhops": "x"},
    )]
)


@pytest.mark.parametrize("headers", MALFORMED, ids=str)
def test_malformed_binary_events_are_refused(orders, headers):
    assert send(orders, headers).problem(400, "event-malformed")["detail"]


@pytest.mark.parametrize("body", [
    "", "{", "[]", "null", '"x"', "{}", structured(id=...), structured(source=...), structured(type=...), structured(specversion=...),
    structured(specversion="2.0"), structured(specversion=1.0), structured(id=5), structured(id=None), structured(id=""),
    structured(Upper="x"), structured(ext={}), structured(ext=[]), structured(ext=1.5), structured(ext=2**31),
    structured(time="tomorrow"), structured(data=1, data_base64="AA=="), structured(data_base64="?"), structured(data_base64=1),
    structured(datacontenttype="text/plain", data=1), structured(datacontenttype="what"), structured()[:-1] + ',"id":"A2"}',
    "[" * 10000,
])
def test_malformed_structured_events_are_refused(orders, body):
    assert send(orders, STRUCTURED, body).problem(400, "event-malformed")["detail"]


def test_events_survive_a_crash(make_node):
    node = make_node(config=HASTE)
    deploy(node, "app", {"f": "echo", "g": "echo"}, events=[{"function": "f", "type": "*"}, {"function": "g", "type": "*"}])
    calls = []
    for number in range(50):
        calls += accepted(send(node, EVENT | {"ce-id": str(number)}, str(number).encode()))
    node.kill()
    node.start()
    assert {ended(node, call)["state"] for call in calls} == {"succeeded"}
    assert len(everything(node)) == len(calls) == 100


# --- events out ---


def nested(depth):
    """An event whose data is an event, and so on: each function that echoes it publishes the next."""
    data = "the end"
    for level in range(depth):
        data = json.loads(structured(type=f"level.{level}", id=f"L{level}", data=data))
    return json.dumps(data)


def test_what_a_function_answers_is_an_event_again(node):
    """The echo answers with the data of its event, which is the next one."""
    echo = ("echo", {"content_type": "application/cloudevents+json"})
    deploy(node, "chain", {"echo": echo, "end": "echo"}, events=[
        {"function": "echo", "type": "level.2"}, {"function": "echo", "type": "level.1"}, {"function": "end", "type": "level.0"},
    ])
    before = {call["id"] for call in everything(node)}
    accepted(send(node, STRUCTURED, nested(3)))

    def found():
        calls = [call for call in everything(node, "succeeded") if call["id"] not in before]
        return calls if len(calls) == 3 else None
    calls = eventually(found, "all of the chain has run")
    [end] = [call for call in calls if call["function"] == "chain.end"]
    assert node.control("GET", f"/v1/calls/{end['id']}/result").text == '"the end"'
    node.control("DELETE", "/v1/applications/chain")


def test_a_binary_answer_is_an_event(node):
    text = "ce-specversion: 1.0\nce-type: answer\nce-source: /f\nce-id: 1\nContent-Type: text/x\n\nbody"
    deploy(node, "binary", {"f": (says(text), {"protocol": "cgi"}), "g": "env"}, events=[
        {"function": "f", "type": "ask"}, {"function": "g", "type": "answer"},
    ])
    accepted(send(node, EVENT | {"ce-type": "ask"}))
    def found():
        return [call for call in everything(node, "succeeded") if call["function"] == "binary.g"]
    event = told(node, eventually(found, "the answer was published")[0])
    assert (event["HTTP_CE_TYPE"], event["HTTP_CE_SOURCE"], event["CONTENT_TYPE"]) == ("answer", "/f", "text/x")
    assert event["HTTP_CE_MILLPONDHOPS"] == "1"
    # Without an event there is none: who calls it directly gets the answer, and nothing else happens.
    answer = node.request("GET", "/function/binary.f")
    assert (answer.headers["ce-type"], answer.body) == ("answer", b"body")
    node.control("DELETE", "/v1/applications/binary")


def test_a_loop_ends_as_a_dead_letter(make_node):
    node = make_node(config=HASTE)
    loop = (says(structured(type="round", source="/loop")), {"content_type": "application/cloudevents+json"})
    deploy(node, "loop", {"f": loop}, events=[{"function": "f", "type": "round"}])
    accepted(send(node, EVENT | {"ce-type": "round"}))
    [dead] = eventually(lambda: everything(node, "dead"), "the loop has ended")
    assert "loop" in dead["reason"] and dead["cause"] == "final"
    assert len(everything(node, "succeeded")) == 16
    assert "is it a loop?" in node.log.read_text()
    # And one that leads through a client is refused.
    send(node, EVENT | {"ce-type": "round", "ce-millpondhops": "17"}).problem(400, "event-loop")


def test_an_answer_that_is_no_event_although_it_says_so_is_a_dead_letter(make_node):
    node = make_node(config=HASTE)
    bad = (says("{}"), {"content_type": "application/cloudevents+json"})
    deploy(node, "app", {"f": bad}, events=[{"function": "f", "type": "*"}])
    [call] = accepted(send(node))
    call = ended(node, call)
    assert (call["state"], call["cause"], call["attempts"]) == ("dead", "final", 1)
    assert "no event" in call["reason"]


def test_a_chain_is_neither_lost_nor_doubled_by_crashes(make_node):
    node = make_node(config=HASTE)
    echo = ("echo", {"content_type": "application/cloudevents+json"})
    deploy(node, "chain", {"echo": echo, "end": "echo"}, events=[
        {"function": "echo", "type": f"level.{level}"} for level in range(1, 6)
    ] + [{"function": "end", "type": "level.0"}])
    for _ in range(10):
        for _ in range(5):
            accepted(send(node, STRUCTURED, nested(6)))
        node.kill()
        node.start()
    total = 50 * 6
    eventually(lambda: len(everything(node, "succeeded")) >= total and not everything(node, "pending"), "all chains have ended")
    calls = everything(node)
    assert len(calls) == total and {call["state"] for call in calls} == {"succeeded"}
    assert sum(call["function"] == "chain.end" for call in calls) == 50


def test_schedules_make_chains(make_node):
    node = make_node(config=HASTE)
    answer = (says(structured(type="tick")), {"content_type": "application/cloudevents+json"})
    deploy(node, "app", {"clock": answer, "f": "env"}, [{"function": "clock", "every": "1s"}], [{"function": "f", "type": "tick"}])
    def found():
        return [call for call in everything(node, "succeeded") if call["function"] == "app.f"]
    assert told(node, eventually(found, "the schedule's answer was published")[0])["HTTP_CE_TYPE"] == "tick"
