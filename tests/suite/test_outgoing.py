"""Requests of functions to others: to hosts that their manifest grants, and to no other; all I/O is the backend's."""

import contextlib
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from harness import PROCESSORS, eventually, get
from test_streams import Answer, chunked, noise, talk

LIMITS = {"request_body": "64MiB", "response_body": "64MiB", "timeout": "30s"}


class Other(BaseHTTPRequestHandler):
    """Somebody else's server."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self):
        length, body = self.headers.get("Content-Length"), b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while line := self.rfile.readline().strip():
                self.server.trailers.append(line)
        elif length:
            body = self.rfile.read(int(length))
        fields = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.command, self.path, fields, self.client_address[1]))
        path = self.path.partition("?")[0]
        if path == "/silent":
            self.server.silent.set()
            self.server.release.wait(60)
            self.close_connection = True
        elif path == "/broken":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 1000)
            self.close_connection = True
        elif path == "/stalled":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 1000)
            self.server.release.wait(60)
            self.close_connection = True
        elif path == "/nonsense":
            self.wfile.write(b"this is not HTTP\r\n\r\n")
            self.close_connection = True
        elif path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif path == "/trailers":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n")
        else:
            self.send_response(201)
            self.send_header("X-Other", "yes")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = do_PATCH = answer

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    """It runs while the block does."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address=("127.0.0.1", 0), secure=None):
        super().__init__(address, Other)
        self.seen, self.silent, self.release = [], threading.Event(), threading.Event()
        self.trailers = []
        if secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*secure)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def port(self):
        return self.server_address[1]

    def __enter__(self):
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.release.set()
        self.shutdown()
        self.thread.join()
        self.server_close()

    def handle_error(self, *_):
        pass


@pytest.fixture(scope="module")
def other():
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def application(two_cores):
    grants = {"grants": {"http": [{"host": "127.0.0.1"}, {"host": "localhost"}, {"host": "nowhere.invalid"}]}}
    return two_cores.deploy("out", {
        "f": ("http-component", LIMITS | grants),
        "none": ("http-component", LIMITS),
        "elsewhere": ("http-component", LIMITS | {"grants": {"http": [{"host": "example.org"}]}}),
    })


def fetch(node, target, function="f", body=None, method=None, headers=None):
    method = method or ("GET" if body is None else "POST")
    return node.request(method, f"/function/out.{function}/stream-fetch?{target}", body, headers)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"])
def test_a_request_goes_out_and_its_reply_comes_back(two_cores, application, other, method):
    body = noise(500) if method in ("POST", "PUT", "PATCH") else None
    answer = fetch(two_cores, f"http://127.0.0.1:{other.port}/a/b?c=d", body=body, method=method, headers={"X-Mine": "1"})
    assert (answer.status, answer.headers["X-Other"], answer.body) == (201, "yes", body or b"")
    command, path, headers, _ = other.seen[-1]
    assert (command, path, headers["x-mine"]) == (method, "/a/b?c=d", "1")
    assert headers["host"] == f"127.0.0.1:{other.port}", "the connection's fields are the host's to say"


def test_bodies_stream_both_ways(two_cores, application, other):
    body = noise(9 << 20)
    path = f"/function/out.f/stream-fetch?http://localhost:{other.port}/"
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with talk(two_cores, request, body) as connection:
        assert Answer(connection).body() == body
    request = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Body: yes\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with talk(two_cores, request, chunked(body)) as connection:
        assert Answer(connection).body() == body


def test_trailers_come_through(two_cores, application, other):
    path = f"/function/out.f/stream-fetch?http://127.0.0.1:{other.port}/trailers"
    with talk(two_cores, get(path, headers="TE: trailers\r\n")) as connection:
        answer = Answer(connection)
        assert answer.body() == b"abc" and answer.trailers["x-sum"] == "3"


def test_trailers_go_out(two_cores, application):
    """Nothing in the request's head tells of them."""
    with Server() as other:
        path = f"/function/out.f/stream-fetch?http://127.0.0.1:{other.port}/"
        request = f"POST {path} HTTP/1.1\r\nHost: x\r\nX-Body: yes\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        for length in (0, 10, 200_000):
            body = noise(length)
            sent = chunked(body, trailers=f"X-Sum: {length}\r\nX-Last: yes\r\n")
            with talk(two_cores, request, sent) as connection:
                assert Answer(connection).body() == body
            assert other.trailers[-2:] == [b"x-sum: %d" % length, b"x-last: yes"]
        assert len(other.trailers) == 6 and "trailer" not in other.seen[-1][2]


@pytest.mark.parametrize(("function", "target", "error"), [
    ("none", "http://127.0.0.1:PORT/", "HttpRequestDenied"),
    ("elsewhere", "http://127.0.0.1:PORT/", "HttpRequestDenied"),
    ("elsewhere", "http://localhost:PORT/", "HttpRequestDenied"),
    ("elsewhere", "http://example.org.evil.test:PORT/", "HttpRequestDenied"),
    ("elsewhere", "http://example.org@127.0.0.1:PORT/", "HttpRequestDenied"),
    ("f", "http://[::1]:PORT/", "HttpRequestDenied"),
    ("f", "http://127.1:PORT/", "HttpRequestDenied"),
    ("f", "http://2130706433:PORT/", "HttpRequestDenied"),
    ("f", "http://0.0.0.0:PORT/", "HttpRequestDenied"),
    ("f", "ftp://127.0.0.1:PORT/", "HttpProtocolError"),
])
def test_what_is_not_granted_is_denied(two_cores, application, other, function, target, error):
    before = len(other.seen)
    answer = fetch(two_cores, target.replace("PORT", str(other.port)), function)
    assert (answer.status, error in answer.text) == (502, True), answer.text
    assert len(other.seen) == before, "it got through"


def test_what_fails_is_told_by_its_reason(two_cores, application, other):
    def says(target, **more):
        answer = fetch(two_cores, target, **more)
        assert answer.status == 502
        return answer.text

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert "ConnectionRefused" in says(f"http://127.0.0.1:{closed.getsockname()[1]}/")
    assert "DnsError" in says("http://nowhere.invalid/")
    assert "InternalError" in says(f"http://127.0.0.1:{other.port}/nonsense")
    assert "HttpResponseTimeout" in says(f"http://127.0.0.1:{other.port}/silent", headers={"X-Patience": "50000000"})
    assert "Tls" in says(f"https://127.0.0.1:{other.port}/")


def test_redirects_are_replies(two_cores, application, other):
    answer = fetch(two_cores, f"http://127.0.0.1:{other.port}/moved")
    assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")


def test_a_reply_that_breaks_off_ends_its_function(two_cores, application, other):
    with talk(two_cores, get(f"/function/out.f/stream-fetch?http://127.0.0.1:{other.port}/broken")) as connection:
        answer = Answer(connection)
        if answer.status == 200:
            assert len(answer.file.read()) < 100_000
        else:
            assert answer.status == 502


def test_a_reply_that_pauses_ends_by_the_functions_own_timeout(two_cores, application):
    with Server() as other:
        target = f"/function/out.f/stream-cause?http://127.0.0.1:{other.port}"
        stalled = two_cores.request("GET", f"{target}/stalled", headers={"X-Pause": "50000000"})
        assert stalled.text == "Some(ErrorCode::ConnectionReadTimeout)"
        # It is about pauses: what comes without one is not bound by it.
        good = two_cores.request("GET", f"{target}/good", headers={"X-Pause": "60000000000"})
        assert good.text == "nothing"
        broken = two_cores.request("GET", f"{target}/broken", headers={"X-Pause": "60000000000"})
        assert broken.text == "Some(ErrorCode::ConnectionTerminated)"


def test_what_is_denied_is_told_to_the_functions_owner(two_cores, application):
    answer = fetch(two_cores, "http://127.0.0.1:1/", "elsewhere")
    request = answer.headers["X-Request-Id"]
    told = lambda: [one for one in two_cores.records("out.elsewhere") if one["request_id"] == request]
    eventually(told, "its log has a line")
    assert [(one["stream"], "127.0.0.1" in one["message"]) for one in told()] == [("platform", True)]


def test_connections_are_used_again(two_cores, application, other):
    for _ in range(3):
        fetch(two_cores, f"http://127.0.0.1:{other.port}/again")
    ports = {port for _, path, _, port in other.seen if path == "/again"}
    assert len(ports) == 1, "each request made a connection"


def test_many_at_once_from_one_function(two_cores, application, other):
    target = f"http://127.0.0.1:{other.port}/many"
    answer = two_cores.request("GET", f"/function/out.f/stream-many?50,{target}")
    assert answer.text == "".join(f"{number}: 201\n" for number in range(50))


def test_functions_that_wait_hold_no_core(make_node):
    """A hundred wait for a reply that does not come; others are served meanwhile, and they when it does."""
    node = make_node(cores=PROCESSORS[:1])
    node.deploy("out", {"f": ("http-component", LIMITS | {"grants": {"http": [{"host": "127.0.0.1"}]}}), "ping": "ping"})
    with Server() as other, ThreadPoolExecutor(100) as pool:
        waiting = [pool.submit(fetch, node, f"http://127.0.0.1:{other.port}/silent") for _ in range(100)]
        eventually(lambda: sum(path == "/silent" for _, path, _, _ in other.seen) == 100, "all wait")
        before = node.cpu_seconds()
        assert node.request("GET", "/function/out.ping").body == b"pong\n"
        assert node.cpu_seconds() - before < 1
        other.release.set()
        # The server closes without a word.
        assert {one.result(60).status for one in waiting} == {502}


def test_a_request_ends_with_its_function(make_node):
    """A function that is stopped takes its calls with it."""
    node = make_node(cores=PROCESSORS[:1])
    grants = {"grants": {"http": [{"host": "127.0.0.1"}]}}
    node.deploy("out", {"f": ("http-component", {"timeout": "300ms"} | grants)})
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(fetch, node, f"http://127.0.0.1:{listener.getsockname()[1]}/")
            connection, _ = listener.accept()
            with contextlib.closing(connection):
                connection.settimeout(60)
                assert connection.recv(10_000).startswith(b"GET / ")
                assert answer.result(60).document["code"] == "limit-timeout"
                assert connection.recv(1) == b"", "the node closes what nobody waits for"


def test_there_is_a_backend_once_there_is_something_for_it(make_node):
    node = make_node()
    app = node.deploy("idle", {"f": ("http-component", LIMITS), "ping": "ping"})
    assert app.call("ping").status == 200
    assert fetch(node, "http://127.0.0.1:1/", "f").status == 404
    starts = lambda: node.metrics()["millpond_backend_starts_total"]
    assert starts() == 0
    node.deploy("out", {"f": ("http-component", LIMITS | {"grants": {"http": [{"host": "127.0.0.1"}]}})})
    eventually(lambda: starts() == 1, "it is started")
    with Server() as other:
        assert fetch(node, f"http://127.0.0.1:{other.port}/").status == 201
    # It is there again after a restart, before anybody asks.
    node.stop()
    node.start()
    eventually(lambda: starts() == 1, "it is started")


def test_a_backend_that_is_killed_fails_no_request_that_can_be_made_again(two_cores, application, other):
    from test_objects import failures_while_the_backend_is_killed

    def ask(number):
        answer = fetch(two_cores, f"http://127.0.0.1:{other.port}/killed-{number}", method=("GET", "HEAD", "DELETE")[number])
        return None if answer.status == 201 else (answer.status, answer.body)

    for _ in range(3):
        assert failures_while_the_backend_is_killed(two_cores, ask) == []


def test_what_may_have_been_done_is_not_done_again_when_the_backend_is_killed(two_cores, application):
    from test_objects import kill_backend

    with Server() as other, ThreadPoolExecutor(1) as pool:
        target = f"http://127.0.0.1:{other.port}/silent"
        answer = pool.submit(fetch, two_cores, target, body=b"once")
        assert other.silent.wait(60)
        kill_backend(two_cores)
        said = answer.result(60)
        assert (said.status, "the backend ended" in said.text) == (502, True), said.text
        assert [path for _, path, _, _ in other.seen] == ["/silent"]
        assert fetch(two_cores, f"http://127.0.0.1:{other.port}/", body=b"again").body == b"again"


def test_a_reply_is_not_whole_when_the_backend_is_killed(two_cores, application):
    from test_objects import kill_backend

    with Server() as other, talk(two_cores, get(f"/function/out.f/stream-fetch?http://127.0.0.1:{other.port}/stalled")) as connection:
        answer = Answer(connection)
        assert answer.status == 200
        first = answer.file.read(1000)
        kill_backend(two_cores)
        assert len(first + answer.file.read()) < 2000, "it ends, and not as if it were whole"


def test_grants_are_shown_and_need_a_name(two_cores, application):
    settings = two_cores.control("GET", "/v1/functions/out.elsewhere").document
    assert "example.org" in json.dumps(settings)
    refused = two_cores.try_deploy("bad", {"f": ("http-component", {"grants": {"http": [{"host": "https://example.org"}]}})})
    assert refused.status == 422
