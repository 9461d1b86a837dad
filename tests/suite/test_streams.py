"""Bodies as they come: a component reads its request while it arrives and answers while it runs, in bounded memory."""

import contextlib
import hashlib
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import LONG, PROCESSORS, eventually, get

MEBIBYTE = 1 << 20
LIMITS = {"request_body": "64MiB", "response_body": "64MiB", "timeout": "30s"}


@pytest.fixture(scope="module")
def application(two_cores):
    return two_cores.deploy("flow", {
        "f": ("http-component", LIMITS),
        "brief": ("http-component", LIMITS | {"timeout": "1s"}),
        "tight": ("http-component", {"request_body": "100KiB", "response_body": "100KiB"}),
        "few": ("http-component", LIMITS | {"concurrency": 4}),
        "whole": ("echo", LIMITS),
    })


def path(manner, function="f"):
    return f"/function/flow.{function}/stream-{manner}"


def noise(length, seed=1):
    return random.Random(seed).randbytes(length)


def chunked(body, size=10_000, trailers=""):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + f"0\r\n{trailers}\r\n".encode()


def head(manner, function="f", headers="", method="POST"):
    return f"{method} {path(manner, function)} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode()


class Answer:
    """A response as its bytes came, its framing included."""

    def __init__(self, connection):
        self.file = connection.makefile("rb") if isinstance(connection, socket.socket) else connection
        self.status = int(self.file.readline().split()[1])
        self.headers = self.fields()
        self.trailers = {}

    def fields(self):
        fields = {}
        while (line := self.file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            fields[name.strip().lower()] = value.strip()
        return fields

    def pieces(self):
        """The chunks; the trailers afterwards. Ends early, with `EOFError`, where the connection does."""
        assert self.headers.get("transfer-encoding") == "chunked", self.headers
        while True:
            line = self.file.readline()
            if not line:
                raise EOFError
            size = int(line, 16)
            if size == 0:
                self.trailers = self.fields()
                return
            piece = self.file.read(size)
            if len(piece) < size or self.file.read(2) != b"\r\n":
                raise EOFError
            yield piece

    def body(self):
        if "content-length" in self.headers:
            return self.file.read(int(self.headers["content-length"]))
        return b"".join(self.pieces())


def talk(node, *sent):
    """Sends from a thread of its own, so that whoever answers early is heard early."""
    connection = socket.create_connection(node.listen, timeout=60)

    def send():
        try:
            for bytes_ in sent:
                connection.sendall(bytes_)
        except OSError:
            pass

    threading.Thread(target=send, daemon=True).start()
    return connection


@pytest.mark.parametrize("manner", ["echo", "poll", "splice"])
@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 65_537, 1_000_000, 9 * MEBIBYTE + 5])
def test_a_body_goes_through_as_it_was(two_cores, application, manner, length):
    body = noise(length)
    with talk(two_cores, head(manner, headers=f"Content-Length: {length}\r\n"), body) as connection:
        answer = Answer(connection)
        assert answer.status == 200
        assert hashlib.sha256(answer.body()).digest() == hashlib.sha256(body).digest()
        if manner == "poll" and length:
            assert answer.headers["content-length"] == str(length), "its length was known"
    with talk(two_cores, head(manner, headers="Transfer-Encoding: chunked\r\n"), chunked(body)) as connection:
        assert Answer(connection).body() == body


def test_a_connection_goes_on_after_a_stream(two_cores, application):
    body = noise(300_000)
    request = head("echo", headers="Transfer-Encoding: chunked\r\n") + chunked(body)
    ping = get("/function/flow.f/stream-count")
    with talk(two_cores, *[request, ping] * 5) as connection, connection.makefile("rb") as connection:
        for _ in range(5):
            assert Answer(connection).body() == body
            assert Answer(connection).body() == b"0"


def test_an_answer_begins_before_its_request_has_ended(two_cores, application):
    """Each piece is only sent when the one before it has come back."""
    piece = noise(70_000)
    with socket.create_connection(two_cores.listen, timeout=60) as connection:
        connection.sendall(head("echo", headers="Transfer-Encoding: chunked\r\n"))
        back, answer = b"", None
        for _ in range(10):
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            answer = answer or Answer(connection)
            pieces = pieces if back else answer.pieces()
            received = len(back)
            while len(back) - received < len(piece) // 2:
                back += next(pieces)
        connection.sendall(b"0\r\n\r\n")
        back += b"".join(pieces)
        assert back == piece * 10


HALVES = (b"the first half, ", b"and the second")
FRAMINGS = ("Transfer-Encoding: chunked\r\n", f"Content-Length: {len(b''.join(HALVES))}\r\n")


def framed(framing, piece):
    return b"%x\r\n%s\r\n" % (len(piece), piece) if "chunked" in framing else piece


def exactly(pieces, length):
    """Bytes of a body that come before those that were not sent yet."""
    back = b""
    while len(back) < length:
        back += next(pieces)
    return back


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("manner", ["echo", "poll", "splice"])
@pytest.mark.parametrize("together", [True, False])
def test_a_short_body_is_read_as_it_comes(two_cores, application, framing, manner, together):
    """Its second half is only sent when the first has come back; the first comes with the head, or behind it."""
    first, second = HALVES
    with socket.create_connection(two_cores.listen, timeout=60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start = [head(manner, headers=framing), framed(framing, first)]
        for part in [b"".join(start)] if together else start:
            connection.sendall(part)
        answer = Answer(connection)
        sized = "content-length" in answer.headers
        pieces = iter(lambda: answer.file.read(1), b"") if sized else answer.pieces()
        assert exactly(pieces, len(first)) == first
        connection.sendall(framed(framing, second) + (b"0\r\n\r\n" if "chunked" in framing else b""))
        assert exactly(pieces, len(second)) == second
        assert sized or list(pieces) == []
        # The connection goes on.
        connection.sendall(get(path("count")))
        assert Answer(answer.file).body() == b"0"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_function_may_speak_first(two_cores, application, framing):
    """Its client sends nothing of the body before it has heard something."""
    with socket.create_connection(two_cores.listen, timeout=60) as connection:
        connection.sendall(head("greet", headers=framing))
        answer = Answer(connection)
        pieces = answer.pieces()
        assert exactly(pieces, 6) == b"hello\n"
        for half in HALVES:
            connection.sendall(framed(framing, half))
            assert exactly(pieces, len(half)) == half
        connection.sendall(b"0\r\n\r\n" if "chunked" in framing else b"")
        assert list(pieces) == []


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_connection_goes_on_behind_a_short_body_that_was_not_read(two_cores, application, framing):
    first, second = HALVES
    with socket.create_connection(two_cores.listen, timeout=60) as connection, connection.makefile("rb") as file:
        connection.sendall(head("early", headers=framing) + framed(framing, first))
        answer = Answer(file)
        assert answer.body() == b"enough" and answer.headers.get("connection") != "close"
        end = b"0\r\n\r\n" if "chunked" in framing else b""
        connection.sendall(framed(framing, second) + end + get(path("count")))
        assert Answer(file).body() == b"0"
    with socket.create_connection(two_cores.listen, timeout=60) as connection, connection.makefile("rb") as file:
        connection.sendall(head("early", headers=FRAMINGS[0]) + framed(FRAMINGS[0], first))
        assert Answer(file).body() == b"enough"
        connection.sendall(b"this is no chunk\r\n")
        assert file.read() == b"", "nobody knows where its next request would begin"


def test_clients_that_are_slow_leave_places_to_others(two_cores, application):
    """Of four places three may be held by requests that are not all here. The fourth of them waits until there is one."""
    first, second = HALVES
    with contextlib.ExitStack() as stack:
        def begin():
            connection = stack.enter_context(socket.create_connection(two_cores.listen, timeout=60))
            connection.sendall(head("echo", "few", FRAMINGS[0]) + framed(FRAMINGS[0], first))
            return connection

        def echoed(connection):
            answer = Answer(connection)
            pieces = answer.pieces()
            assert exactly(pieces, len(first)) == first
            return pieces

        slow = [(connection, echoed(connection)) for connection in [begin() for _ in range(3)]]
        last = begin()
        for _ in range(20):
            assert two_cores.request("POST", path("count", "few"), b"whole").body == b"5"
        last.setblocking(False)
        with pytest.raises(BlockingIOError):
            last.recv(1)
        last.settimeout(60)
        connection, pieces = slow.pop()
        connection.sendall(framed(FRAMINGS[0], second) + b"0\r\n\r\n")
        assert b"".join(pieces) == second
        # Nothing more is sent for it to be begun.
        slow.append((last, echoed(last)))
        for connection, pieces in slow:
            connection.sendall(framed(FRAMINGS[0], second) + b"0\r\n\r\n")
            assert b"".join(pieces) == second


def test_a_short_body_that_breaks_is_refused(two_cores, application):
    """Its function has begun already; what it would have answered is not wanted."""
    with socket.create_connection(two_cores.listen, timeout=60) as connection:
        connection.sendall(head("count", headers=FRAMINGS[0]) + framed(FRAMINGS[0], HALVES[0]))
        connection.sendall(b"this is no chunk\r\n")
        answer = Answer(connection)
        assert answer.status == 400 and answer.headers["connection"] == "close"


def test_what_was_written_arrives_while_the_function_waits(two_cores, application):
    with talk(two_cores, get(path("ticks") + "?2000")) as connection:
        answer = Answer(connection)
        pieces = answer.pieces()
        first = next(pieces)
        assert first.startswith(b"tick 0\n") and first.count(b"\n") < 2000, "it came in pieces"
        body = first + b"".join(pieces)
    assert body == b"".join(b"tick %d\n" % tick for tick in range(2000))


def test_what_was_flushed_arrives_while_the_function_computes(two_cores, application):
    with talk(two_cores, get(path("spin", "brief"))) as connection:
        answer = Answer(connection)
        assert next(answer.pieces()) == b"before\n"
        with pytest.raises(EOFError):
            list(answer.pieces())


def test_a_short_answer_is_one_piece_with_its_length_and_its_timing(two_cores, application):
    with talk(two_cores, get(path("count"))) as connection:
        answer = Answer(connection)
        assert answer.headers["content-length"] == "1"
        assert "write" in answer.headers["server-timing"]


def test_trailers_come_and_go(two_cores, application):
    trailers = "X-Sum: 12\r\nContent-Length: 5\r\nAuthorization: no\r\nX-Last:  yes \r\n"
    for length in (0, 10, 200_000):
        body = noise(length)
        for te in ("TE: trailers\r\n", ""):
            request = head("echo", headers=f"Transfer-Encoding: chunked\r\n{te}")
            with talk(two_cores, request, chunked(body, trailers=trailers)) as connection:
                answer = Answer(connection)
                assert answer.body() == body
                if not te:
                    assert not answer.trailers, "nobody asked for them"
                    continue
                assert (answer.trailers["x-sum"], answer.trailers["x-last"]) == ("12", "yes")
                assert not {"content-length", "authorization"} & answer.trailers.keys()
                if length > 65_536:
                    assert "run" in answer.trailers["server-timing"]


def test_clients_of_http_1_0_get_a_stream_that_ends_with_the_connection(two_cores, application):
    with talk(two_cores, f"GET {path('long')}?500000 HTTP/1.0\r\n\r\n".encode()) as connection:
        answer = Answer(connection)
        assert "transfer-encoding" not in answer.headers and answer.headers["connection"] == "close"
        assert len(answer.file.read()) == 500_000


def test_the_answer_to_head_has_no_body(two_cores, application):
    with talk(two_cores, head("long?500000", method="HEAD"), get(path("count"))) as connection, connection.makefile("rb") as connection:
        assert Answer(connection).status == 200
        assert Answer(connection).body() == b"0"


def test_a_function_may_answer_without_reading(two_cores, application):
    with talk(two_cores, head("early", headers=f"Content-Length: {30 * MEBIBYTE}\r\n"), bytes(200_000)) as connection:
        answer = Answer(connection)
        assert answer.body() == b"enough"
        assert answer.headers["connection"] == "close", "the rest of the body would follow"
        assert answer.file.read() == b""


@pytest.mark.parametrize(("manner", "length"), [("cut?1000", 502), ("cut?300000", None), ("over", 502), ("short", None)])
def test_a_fault_is_told_if_it_is_not_too_late(two_cores, application, manner, length):
    """Nothing was sent: an error. Something was: the connection ends before its body does."""
    with talk(two_cores, get(path(manner))) as connection:
        answer = Answer(connection)
        if length:
            assert answer.status == length
            return
        assert answer.status == 200
        if "content-length" in answer.headers:
            rest = answer.file.read()
            assert len(rest) != int(answer.headers["content-length"])
        else:
            with pytest.raises(EOFError):
                answer.body()


@pytest.mark.parametrize(("framing", "body"), [
    ("Content-Length: 200000\r\n", b""),
    ("Transfer-Encoding: chunked\r\n", chunked(bytes(150_000), 50_000)[:-5]),
])
def test_a_body_beyond_its_limit_is_refused(two_cores, application, framing, body):
    with talk(two_cores, head("count", "tight", framing), body) as connection:
        answer = Answer(connection)
        assert answer.status == 413
        assert answer.headers["connection"] == "close"


def test_an_answer_beyond_its_limit_is_an_error_or_cut_off(two_cores, application):
    """Which of them depends on whether something has been sent when the limit is reached."""
    with talk(two_cores, get(path("long", "tight") + "?500000")) as connection:
        answer = Answer(connection)
        if answer.status == 502:
            assert b"limit-response-body" in answer.body()
        else:
            with pytest.raises(EOFError):
                answer.body()


def test_a_malformed_body_ends_its_request(two_cores, application):
    sent = head("count", headers="Transfer-Encoding: chunked\r\n") + chunked(bytes(200_000))[:-5] + b"zz\r\n"
    with talk(two_cores, sent) as connection:
        answer = Answer(connection)
        assert answer.status == 400 and answer.headers["connection"] == "close"


def test_a_function_learns_that_its_client_has_gone(two_cores, application):
    with talk(two_cores) as connection:
        connection.sendall(head("broken", headers="Content-Length: 1000000\r\n") + bytes(200_000))
        before = two_cores.metrics()["millpond_connections"] if "millpond_connections" in two_cores.metrics() else None
    assert before is None or before >= 1
    eventually(
        lambda: any("broken: the other side has gone" in record["message"] for record in two_cores.records("flow.f")),
        "the function was told",
    )


def test_who_gives_up_because_its_client_has_gone_is_not_at_fault(make_node):
    node = make_node()
    node.deploy("flow", {"f": ("http-component", LIMITS)})

    def errors():
        metrics = node.metrics().items()
        return {series: count for series, count in metrics if series.startswith("faas_errors_total")}

    def named(kind, code):
        return f'faas_errors_total{{faas_name="flow.f",kind="{kind}",code="{code}"}}'

    # It neither reads its answer nor sends its request to the end.
    with talk(node) as connection:
        connection.sendall(get(path("long") + "?60000000"))
        assert connection.recv(1)
    left = named("client", "client-closed")
    eventually(lambda: errors() == {left: 1}, "it is counted as what it is")
    with talk(node) as connection:
        connection.sendall(head("echo", headers="Content-Length: 60000000\r\n") + bytes(200_000))
        assert connection.recv(1)
    eventually(lambda: errors() == {left: 2}, "so is the other")
    said = [record["message"] for record in node.records("flow.f")]
    assert sum("the client went away" in line for line in said) == 2, said
    # What it does to a client that listens is its own fault.
    with talk(node, head("cut", method="GET")) as connection:
        connection.recv(1)
    eventually(lambda: errors() == {left: 2, named("function", "function-trap"): 1}, "its own fault is its own")


def test_clients_that_leave_cost_nothing(two_cores, application):
    """They ask for much and read nothing, or announce much and send little; their functions end all the same."""
    for number in range(100):
        with talk(two_cores) as connection:
            if number % 2:
                connection.sendall(get(path("long") + "?60000000"))
            else:
                connection.sendall(head("echo", headers="Content-Length: 60000000\r\n") + bytes(100_000))
    def parked():
        metrics = two_cores.metrics()
        return sum(value for series, value in metrics.items() if series.startswith("millpond_sandboxes_parked"))
    eventually(lambda: parked() == 0, "no sandbox waits for them")
    assert two_cores.request("GET", path("count")).body == b"0"


def test_a_slow_reader_holds_its_function_back(make_node):
    """What it does not read is not produced: the node's memory does not grow with it."""
    node = make_node(cores=PROCESSORS[:2])
    node.deploy("flow", {"f": ("http-component", LIMITS)})
    node.request("GET", path("count"))
    before = node.resident_bytes()
    connections = []
    for _ in range(40):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(node.listen)
        connection.sendall(get(path("long") + "?60000000"))
        connections.append(connection)
    for connection in connections:
        connection.recv(1, socket.MSG_PEEK)
    grown = node.resident_bytes() - before
    # 40 x 60 MB are asked for. A window, a piece and the guest's memory are what each may hold.
    assert grown < 40 * 2 * MEBIBYTE, grown
    for connection in connections:
        connection.close()


@pytest.mark.limit(1200 if LONG else 120)
def test_many_long_streams_in_flat_memory(make_node):
    """10^4 with 8 MiB each way in `make test-long`, fewer here."""
    count, length = (10_000, 8 * MEBIBYTE) if LONG else (60, 8 * MEBIBYTE)
    node = make_node(cores=PROCESSORS[:2])
    node.deploy("flow", {"f": ("http-component", LIMITS)})
    body = noise(length)
    digest = hashlib.sha256(body).digest()
    sizes = []

    def one(_):
        with talk(node, head("echo", headers=f"Content-Length: {length}\r\n"), body) as connection:
            summed = hashlib.sha256()
            for piece in Answer(connection).pieces():
                summed.update(piece)
            assert summed.digest() == digest
            sizes.append(node.resident_bytes())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(count)))
    settled = sorted(sizes[len(sizes) // 4 : len(sizes) // 2])
    late = sorted(sizes[-len(sizes) // 4 :])
    assert late[len(late) // 2] < settled[len(settled) // 2] + 16 * MEBIBYTE, (settled[-1], late[-1])
    assert max(sizes) < 8 * length + 64 * MEBIBYTE, "bodies were collected"


def test_a_command_gets_its_body_whole(two_cores, application):
    """It is not told of a request before it can read all of it."""
    body = noise(3 * MEBIBYTE)
    with talk(two_cores, b"POST /function/flow.whole HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", chunked(body)) as connection:
        answer = Answer(connection)
        assert answer.headers["content-length"] == str(len(body))
        assert answer.body() == body


def test_lambda_and_calls_get_whole_answers(two_cores, application):
    answer = two_cores.request("POST", "/async-function/flow.f/stream-long?200000", b"")
    identity = answer.headers["X-Call-Id"]
    eventually(lambda: two_cores.control("GET", f"/v1/calls/{identity}").document["state"] == "succeeded", "it was run")
    assert two_cores.control("GET", f"/v1/calls/{identity}/result").body == b"x" * 200_000
