"""HTTP/1.1 as clients really speak it, and as nobody should."""

import os

import pytest
from harness import Closed, Wire, eventually, get

POST = "POST"


def test_keep_alive(suite):
    before = suite.node.metrics()['millpond_connections_accepted_total{core="0"}']
    with suite.node.wire() as wire:
        for _ in range(100):
            wire.send(get(suite.path("ping")))
            assert wire.read().body == b"pong\n"
    assert suite.node.metrics()['millpond_connections_accepted_total{core="0"}'] == before + 1


def test_connection_close(suite):
    with suite.node.wire() as wire:
        wire.send(get(suite.path("ping"), headers="Connection: close\r\n"))
        answer = wire.read()
        assert answer.body == b"pong\n" and answer.headers["Connection"] == "close"
        assert wire.is_closed()


def test_a_hundred_pipelined_requests_in_one_write(suite):
    with suite.node.wire() as wire:
        wire.send(b"".join(get(suite.path("env", f"/{i}")) for i in range(100)))
        for i in range(100):
            assert f"PATH_INFO=/{i}\n" in wire.read().text


def test_pipelined_answers_keep_their_order(suite):
    """Slow ones, quick ones, refused ones, with bodies and without."""
    requests, expected = [], []
    for i in range(20):
        body = f"{i}".encode()
        requests += [
            get(suite.path("sleep", f"?ms={10 if i % 5 == 0 else 0}")),
            get(suite.path("echo"), method=POST, headers=f"Content-Length: {len(body)}\r\n") + body,
            get(f"/none/{i}"),
            get(suite.path("exit3")),
        ]
        expected += [(200, None), (200, body), (404, None), (502, None)]
    with suite.node.wire() as wire:
        wire.send(b"".join(requests))
        for status, body in expected:
            answer = wire.read()
            assert answer.status == status
            assert body is None or answer.body == body


@pytest.mark.parametrize("sizes", [[1], [1, 1, 1], [65536, 1, 100000], [7] * 500])
def test_chunked_upload(suite, sizes):
    pieces = [os.urandom(size) for size in sizes]
    with suite.node.wire() as wire:
        for _ in range(2):
            wire.send(get(suite.path("echo"), method=POST, headers="Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n"))
            for piece in pieces:
                wire.send(b"%X;ext=1\r\n%s\r\n" % (len(piece), piece) if piece is pieces[0] else b"%x\r\n%s\r\n" % (len(piece), piece))
            wire.send(b"0\r\nX-Sum: 1\r\n\r\n")
            assert wire.read().body == b"".join(pieces)


def test_head(suite):
    with suite.node.wire() as wire:
        wire.send(get(suite.path("ping"), method="HEAD") + get(suite.path("ping")))
        answer = wire.read(to="HEAD")
        assert answer.status == 200 and answer.headers["Content-Length"] == "5"
        assert wire.read().body == b"pong\n", "a body followed an answer to HEAD"
        wire.send(get("/none", method="HEAD") + get(suite.path("ping")))
        assert wire.read(to="HEAD").status == 404
        assert wire.read().body == b"pong\n"


def test_expect_continue(suite):
    with suite.node.wire() as wire:
        wire.send(get(suite.path("echo"), method=POST, headers="Content-Length: 5\r\nExpect: 100-continue\r\n"))
        assert wire.read().status == 100
        wire.send(b"hello")
        answer = wire.read()
        assert (answer.status, answer.body) == (200, b"hello")


def test_http_1_0(suite):
    with suite.node.wire() as wire:
        wire.send(f"GET {suite.path('ping')} HTTP/1.0\r\n\r\n".encode())
        assert wire.read().body == b"pong\n"
        assert wire.is_closed()
    with suite.node.wire() as wire:
        for _ in range(3):
            wire.send(f"GET {suite.path('ping')} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".encode())
            answer = wire.read()
            assert answer.body == b"pong\n" and answer.headers["Connection"].lower() == "keep-alive"


@pytest.mark.parametrize("requests", [1, 10])
def test_half_close_after_sending(suite, requests):
    with suite.node.wire() as wire:
        wire.send(get(suite.path("sleep", "?ms=20")) * requests)
        wire.end()
        for _ in range(requests):
            assert wire.read().status == 200
        assert wire.is_closed()


def test_half_close_amid_a_body(suite):
    with suite.node.wire() as wire:
        wire.send(get(suite.path("echo"), method=POST, headers="Content-Length: 10\r\n") + b"half")
        wire.end()
        with pytest.raises(Closed):
            assert wire.read().status == 400
            raise Closed
    assert suite.call("ping").status == 200


@pytest.mark.parametrize("requests", [1, 10])
def test_a_request_in_one_segment_with_the_end(suite, requests):
    with suite.node.wire() as wire:
        wire.end_with(get(suite.path("ping")) * requests)
        for _ in range(requests):
            assert wire.read().status == 200
        assert wire.is_closed()


@pytest.mark.parametrize("half", ["head", "body"])
@pytest.mark.parametrize("before", ["nothing", "ping", "sleep"])
def test_half_a_request_in_one_segment_with_the_end(suite, before, half):
    """It is closed at once, not only when the rest of the request is overdue."""
    whole = b"" if before == "nothing" else get(suite.path(before, "?ms=20"))
    body = get(suite.path("echo"), method=POST, headers="Content-Length: 10\r\n") + b"half"
    with suite.node.wire() as wire:
        wire.end_with(whole + (body if half == "body" else get(suite.path("ping"))[:-2]))
        if whole:
            assert wire.read().status == 200
        assert wire.is_closed()
    assert suite.call("ping").status == 200


@pytest.mark.parametrize("more", [-1, 0, 1, 100])
def test_requests_of_as_many_bytes_as_are_read_at_once(suite, more):
    """Mostly all of one is there when the node looks."""
    length = (64 << 10) + more
    request = get(suite.path("echo"), method=POST, headers="Content-Length: 10000\r\n")
    request = request.replace(b"10000", str(length - len(request)).encode())
    body = os.urandom(length - len(request))
    with suite.node.wire() as wire:
        for _ in range(50):
            wire.send(request + body)
            assert wire.read().body == body


def test_a_request_byte_by_byte(suite):
    request = get(suite.path("echo"), method=POST, headers="Transfer-Encoding: chunked\r\n") + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    with suite.node.wire() as wire:
        for byte in request:
            wire.send(bytes([byte]))
        assert wire.read().body == b"abcde"


@pytest.fixture
def alone(make_node):
    """On a node that nobody else has connections to."""
    return make_node().deploy("alone", {name: name for name in ("ping", "echo", "sleep")})


def test_clients_that_leave(alone):
    """Amid a head, amid a body, amid the function, amid the answer; orderly and not. Nothing stays behind."""
    node = alone.node
    parts = [
        b"GET /fun",
        get(alone.path("echo"), method=POST, headers="Content-Length: 1000\r\n") + b"half",
        get(alone.path("echo"), method=POST, headers="Transfer-Encoding: chunked\r\n") + b"5\r\nab",
        get(alone.path("sleep", "?ms=50")),
        get(alone.path("sleep", "?ms=50")) * 10,
        get(alone.path("ping")) * 10,
    ]
    for part in parts:
        for leave in (Wire.close, Wire.reset):
            for _ in range(10):
                wire = node.wire()
                wire.send(part)
                leave(wire)
    eventually(lambda: node.metrics()['millpond_connections_open{core="0"}'] == 0, "all connections are closed")
    eventually(lambda: node.metrics()['millpond_sandboxes{core="0"}'] == 0, "all sandboxes are gone")
    assert alone.call("ping").status == 200


def test_a_client_that_does_not_read(suite):
    """Its answers do not fill the node's memory, and others are served."""
    node = suite.node
    with node.wire() as greedy:
        body = b"x" * (1 << 20)
        request = get(suite.path("echo"), method=POST, headers=f"Content-Length: {len(body)}\r\n") + body
        greedy.socket.settimeout(0.5)
        before = node.resident_bytes()
        with pytest.raises(TimeoutError):
            for _ in range(200):
                greedy.send(request)
        assert suite.call("ping").status == 200
        assert node.resident_bytes() - before < 64 << 20
        greedy.socket.settimeout(30)
        assert greedy.read().body == body


def test_large_bodies(suite):
    body = os.urandom(10 << 20)
    with suite.node.wire() as wire:
        for _ in range(3):
            wire.send(get(suite.path("echo"), method=POST, headers=f"Content-Length: {len(body)}\r\n") + body)
            assert wire.read().body == body


def test_a_thousand_idle_connections(alone):
    node = alone.node
    wires = [node.wire() for _ in range(1000)]
    try:
        eventually(lambda: node.metrics()['millpond_connections_open{core="0"}'] >= 1000, "all are accepted")
        assert alone.call("ping").status == 200
        for wire in wires:
            wire.send(get(alone.path("ping")))
        for wire in wires:
            assert wire.read().body == b"pong\n"
    finally:
        for wire in wires:
            wire.close()
    eventually(lambda: node.metrics()['millpond_connections_open{core="0"}'] == 0, "all are closed")


HEAD = b"POST /function/suite.echo HTTP/1.1\r\nHost: x\r\n"
SMUGGLED = b"GET /function/suite.ping HTTP/1.1\r\nHost: x\r\n\r\n"
PROBES = {
    "length and chunked": HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "two equal lengths": HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "a list of lengths": HEAD + b"Content-Length: 5, 5\r\n\r\nabcde",
    "a length with a sign": HEAD + b"Content-Length: +5\r\n\r\nabcde",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "a hexadecimal length": HEAD + b"Content-Length: 0x5\r\n\r\nabcde",
    "an empty length": HEAD + b"Content-Length:\r\n\r\n",
    "a length past 64 bits": HEAD + b"Content-Length: 18446744073709551621\r\n\r\nabcde",
    "space before the colon": HEAD + b"Content-Length : 5\r\n\r\nabcde",
    "a folded header": HEAD + b"Content-Length: 5\r\n X: y\r\n\r\nabcde",
    "a folded encoding": HEAD + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "two encodings": HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST /function/suite.echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed": b"POST /function/suite.echo HTTP/1.1\nHost: x\n\n",
    "one bare line feed": HEAD + b"X: y\nContent-Length: 5\r\n\r\nabcde",
    "a bare carriage return": HEAD + b"X: y\rContent-Length: 5\r\n\r\n",
    "a NUL in a value": HEAD + b"X: a\0b\r\n\r\n",
    "a NUL in a name": HEAD + b"X\0: b\r\n\r\n",
    "no host": b"GET /function/suite.ping HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /function/suite.ping HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a host with a path": b"GET /function/suite.ping HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "a chunk size with a prefix": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "a negative chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
    "a chunk size past 64 bits": HEAD + b"Transfer-Encoding: chunked\r\n\r\n10000000000000003\r\nabc\r\n0\r\n\r\n",
    "a chunk longer than it says": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "a chunk line with a bare line feed": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "space before a header": b"GET /function/suite.ping HTTP/1.1\r\n Host: x\r\n\r\n",
    "nonsense": b"\x00\x01\x02\x03\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03",
    "a space in the target": b"GET /function/suite.ping /x HTTP/1.1\r\nHost: x\r\n\r\n",
    "an encoded NUL": b"GET /function/suite.ping/%00 HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("probe", PROBES)
def test_what_could_be_smuggled_is_refused_and_ends_the_connection(suite, probe):
    with suite.node.wire() as wire:
        wire.send(PROBES[probe] + SMUGGLED)
        answer = wire.read()
        assert answer.status in (400, 413), answer
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["Connection"] == "close"
        assert answer.document["hint"]
        wire.end()
        assert wire.is_closed(), "something more was answered"


def test_an_unknown_encoding_and_version_are_refused(suite):
    for data, status in (
        (HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n", (400, 501)),
        (b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", (400, 505)),
        (b"CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\n\r\n", (400, 405, 501)),
        (HEAD + b"Expect: 200-maybe\r\nContent-Length: 1\r\n\r\nx", (417,)),
    ):
        with suite.node.wire() as wire:
            wire.send(data)
            assert wire.read().status in status, data
            wire.end()
            assert wire.is_closed()


def test_heads_are_bounded(suite):
    for data, status in (
        (get("/" + "a" * 20_000), 414),
        (get("/", headers="X: " + "a" * 70_000 + "\r\n"), 431),
        (get("/", headers="".join(f"X-{i}: y\r\n" for i in range(500))), 431),
    ):
        with suite.node.wire() as wire:
            wire.send(data)
            assert wire.read().status == status
            wire.end()
            assert wire.is_closed()


def test_absolute_form(suite):
    with suite.node.wire() as wire:
        wire.send(f"GET http://shop.example:81{suite.path('env')}?a=1 HTTP/1.1\r\nHost: other\r\n\r\n".encode())
        answer = wire.read()
        assert answer.status == 200
        assert "HTTP_HOST=shop.example:81\n" in answer.text and "QUERY_STRING=a=1\n" in answer.text


def test_a_slow_head_does_not_hold_up_others(suite):
    with suite.node.wire() as slow:
        for byte in get(suite.path("ping"))[:-2]:
            slow.send(bytes([byte]))
            if byte == ord("\n"):
                assert suite.call("ping").status == 200
        slow.send(b"\r\n")
        assert slow.read().body == b"pong\n"


@pytest.mark.limit(30)
def test_a_head_that_never_ends_is_given_up(suite):
    """After ten seconds, in the words of 408."""
    with suite.node.wire() as wire:
        wire.send(b"GET / HTTP/1.1\r\nHost")
        answer = wire.read()
        answer.problem(408, "http-timeout")
        wire.end()
        assert wire.is_closed()
