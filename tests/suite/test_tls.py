"""TLS, HTTP/2 with and without it, and the upgrade from HTTP/1.1: the same node in other words."""

import contextlib
import hashlib
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import threading
from base64 import urlsafe_b64encode

import boto3
import botocore.config
import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.settings
import hpack
import pytest
from harness import PATIENCE, PROCESSORS, Closed, Node, Wire, certificate, cli, eventually, get

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS_FRAME = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
OPENED = "millpond_proxy_connections_open"


# --- certificates ---


def config(cert, key, drain="8s"):
    return f'drain = "{drain}"\n[tls]\nlisten = "127.0.0.1:0"\ncertificate = "{cert}"\nkey = "{key}"\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificate(tmp_path_factory.mktemp("certificates"), "one")


FLOW = {"request_body": "64MiB", "response_body": "64MiB", "timeout": "60s"}
GUESTS = ("ping", "echo", "env", "sleep", "exit3", "trap", "burn")


@pytest.fixture(scope="module")
def app(files, tmp_path_factory):
    """Functions on a node of two cores that speaks everything."""
    node = Node(tmp_path_factory.mktemp("tls"), cores=PROCESSORS[:2], config=config(*files)).start()
    yield node.deploy("all", {name: name for name in GUESTS} | {"flow": ("http-component", FLOW)})
    try:
        node.stop()
    finally:
        node.kill() if node.is_running else None


# --- clients ---


def context(cert, protocols=()):
    made = ssl.create_default_context(cafile=cert)
    if protocols:
        made.set_alpn_protocols(list(protocols))
    return made


class TlsWire(Wire):
    """A connection through TLS."""

    def __init__(self, address, cert, protocols=("http/1.1",)):
        super().__init__(address)
        self.socket = context(cert, protocols).wrap_socket(self.socket, server_hostname="localhost")


class H2:
    """A client of HTTP/2 that does one thing after another, on a connected socket.

    Streams are opened and fed by hand; `read` goes on until what is asked for has come.
    """

    def __init__(self, connected, start=True):
        self.socket = connected
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.answers, self.reset, self.gone, self.closed = {}, {}, None, False
        self.grant = True
        if start:
            self.h2.initiate_connection()
            self.flush()

    @classmethod
    def clear(cls, address):
        return cls(socket.create_connection(address, timeout=PATIENCE))

    @classmethod
    def tls(cls, address, cert):
        wire = TlsWire(address, cert, ("h2",))
        assert wire.socket.selected_alpn_protocol() == "h2"
        return cls(wire.socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        data = self.h2.data_to_send()
        if data:
            self.socket.sendall(data)

    def open(self, path, method="GET", headers=(), end=True):
        stream = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path), *headers]
        self.h2.send_headers(stream, fields, end_stream=end)
        self.flush()
        return stream

    def send(self, stream, data, end=True):
        """As much as the windows allow, reading meanwhile."""
        while data:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room == 0:
                self.step()
                assert stream not in self.reset and not self.closed, "nobody takes it"
                continue
            self.h2.send_data(stream, data[:room], end_stream=end and len(data) <= room)
            data = data[room:]
            self.flush()

    def step(self):
        """Takes what has come, waiting for it."""
        try:
            data = self.socket.recv(256 << 10)
        except ConnectionResetError:
            data = b""
        if not data:
            self.closed = True
            return
        for event in self.h2.receive_data(data):
            stream = getattr(event, "stream_id", None)
            match event:
                case h2.events.ResponseReceived():
                    self.answers[stream] = {"headers": dict(event.headers), "body": b"", "done": False, "trailers": None}
                case h2.events.DataReceived():
                    self.answers[stream]["body"] += event.data
                    if self.grant:
                        self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                case h2.events.TrailersReceived():
                    self.answers[stream]["trailers"] = dict(event.headers)
                case h2.events.StreamEnded():
                    self.answers[stream]["done"] = True
                case h2.events.StreamReset():
                    self.reset[stream] = event.error_code
                case h2.events.ConnectionTerminated():
                    self.gone = event.error_code
        with contextlib.suppress(OSError):
            self.flush()

    def read(self, stream):
        """The whole answer of a stream: status, headers, body."""
        while not self.answers.get(stream, {}).get("done"):
            assert not self.closed, f"the node closed before stream {stream} was answered"
            assert stream not in self.reset, f"stream {stream} was reset with {self.reset[stream]}"
            self.step()
        answer = self.answers[stream]
        return int(answer["headers"][":status"]), answer["headers"], answer["body"]

    def call(self, path, method="GET", headers=(), body=None):
        stream = self.open(path, method, headers, end=body is None)
        if body is not None:
            self.send(stream, body)
        return self.read(stream)

    def until_closed(self):
        while not self.closed:
            self.step()

    def leave(self):
        """As a crashed client does: with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def curl(way, node, files, path, *more):
    """(status, version of HTTP, headers, body) by one of the ways to reach a node."""
    clear, secret = "http://{}:{}".format(*node.listen), "https://localhost:{}".format(node.tls[1])
    flags, base = {
        "http1": (["--http1.1"], clear),
        "h2c": (["--http2-prior-knowledge"], clear),
        "upgrade": (["--http2"], clear),
        "tls": (["--http1.1", "--cacert", files[0]], secret),
        "h2": (["--http2", "--cacert", files[0]], secret),
    }[way]
    command = ["curl", "-sS", "-D", "/dev/stderr", "-w", "\n%{http_version} %{http_code}", "-m", str(PATIENCE), "--globoff"]
    run = subprocess.run([*command, *flags, *more, base + path], capture_output=True, timeout=2 * PATIENCE, check=False)
    assert run.returncode == 0, run.stderr[-1000:]
    body, _, said = run.stdout.rpartition(b"\n")
    version, status = said.decode().split()
    fields = [line.decode("latin-1").partition(":") for line in run.stderr.split(b"\r\n") if b": " in line]
    return int(status), version, {name.lower(): value.strip() for name, _, value in fields}, body


def variables(body):
    """What the guest `env` says."""
    return dict(line.split("=", 1) for line in body.decode().splitlines() if "=" in line)


WAYS = {"http1": "1.1", "h2c": "2", "upgrade": "2", "tls": "1.1", "h2": "2"}


# --- the same answers ---


@pytest.mark.parametrize("way", WAYS)
def test_every_way_leads_to_the_same_answers(app, files, way, tmp_path):
    body = tmp_path / "body"
    body.write_bytes(os.urandom(300_000))
    requests = [
        ("/function/all.ping",),
        ("/function/all.ping", "-I"),
        ("/function/all.echo", "--data-binary", f"@{body}"),
        ("/function/all.echo", "--data-binary", f"@{body}", "-H", "Transfer-Encoding: chunked"),
        ("/function/all.echo", "--data-binary", ""),
        ("/function/all.echo", "-X", "PUT", "--data-binary", "x" * 1000),
        ("/function/all.exit3",),
        ("/function/all.trap",),
        ("/function/all.none",),
        ("/function/none.none",),
        ("/nowhere",),
        ("/healthz",),
        ("/readyz",),
        ("/function/all.ping", "-X", "TRACE"),
        ("/function/all.ping", "-X", "PURGE"),
        ("/2015-03-31/functions/all.echo/invocations", "--data-binary", '{"a":1}'),
        ("/2015-03-31/functions/all.none/invocations", "--data-binary", "{}"),
        ("/function/all.echo", "--data-binary", f"@{body}", "-H", "Expect: 100-continue"),
        ("/function/all.echo", "-H", "Expect: miracles", "--data-binary", "x"),
        ("/" + "a" * 9000,),
        ("/function/all.ping", "-H", "X-Long: " + "a" * 20_000),
        ("/function/all.ping", *(word for i in range(120) for word in ("-H", f"X-{i}: 1"))),
        ("/function/all.ping%zz",),
    ]
    kept = ("content-type", "content-length", "x-millpond-error", "allow", "x-amz-executed-version", "x-amzn-errortype")
    for path, *more in requests:
        # curl's `-H Transfer-Encoding: chunked` has no meaning in HTTP/2, where it is an error.
        if WAYS[way] == "2" and "Transfer-Encoding: chunked" in more:
            more = [word for word in more if word not in ("-H", "Transfer-Encoding: chunked")]
        expected = curl("http1", app.node, files, path, *more)
        status, version, headers, got = curl(way, app.node, files, path, *more)
        assert status == expected[0], (path, more[:2], got[:300])
        # With `-I` curl gives the head as the body.
        same_body = "-I" not in more and b"request_id" not in expected[3]
        assert not same_body or got == expected[3], (path, more[:2])
        for name in kept:
            if name != "content-length" or same_body:
                assert headers.get(name) == expected[2].get(name), (path, more[:2], name)
        # A request with a body is not upgraded (and curl asks for it once only, in the first request's head).
        upgraded = way != "upgrade" or version == "2" or "--data-binary" in more or status >= 400
        assert (version == WAYS[way] or way == "upgrade") and upgraded, (path, more[:2], version)


@pytest.mark.parametrize("way", WAYS)
def test_what_a_function_is_told(app, files, way):
    cookies = ("-H", "Cookie: a=1; b=2", "-H", "X-Forwarded-Proto: gopher", "-H", "Https: on")
    status, version, _, body = curl(way, app.node, files, "/function/all.env/a%20b?x=1&y", *cookies)
    said = variables(body)
    assert (status, version) == (200, WAYS[way])
    secure = way in ("tls", "h2")
    assert said["REQUEST_SCHEME"] == ("https" if secure else "http")
    assert said.get("HTTPS") == ("on" if secure else None)
    assert said["SERVER_PROTOCOL"] == ("HTTP/2.0" if version == "2" else "HTTP/1.1")
    assert said["REMOTE_ADDR"] == "127.0.0.1"
    host, port = ("localhost", app.node.tls[1]) if secure else app.node.listen
    assert (said["SERVER_NAME"], said["SERVER_PORT"]) == (host, str(port))
    assert said["HTTP_HOST"] == f"{host}:{port}"
    assert (said["PATH_INFO"], said["QUERY_STRING"]) == ("/a b", "x=1&y")
    assert said["HTTP_COOKIE"] == "a=1; b=2"
    # What a client says of itself stays what it says.
    assert (said["HTTP_X_FORWARDED_PROTO"], said["HTTP_HTTPS"]) == ("gopher", "on")
    for mine in ("HTTP_UPGRADE", "HTTP_HTTP2_SETTINGS", "HTTP_TRANSFER_ENCODING", "HTTP_TE"):
        assert mine not in said


@pytest.mark.parametrize("way", WAYS)
def test_what_a_component_is_told(app, files, way):
    status, _, _, body = curl(way, app.node, files, "/function/all.flow/x?y", "--data-binary", "describe")
    secure = way in ("tls", "h2")
    host, port = ("localhost", app.node.tls[1]) if secure else app.node.listen
    scheme = "Scheme::Https" if secure else "Scheme::Http"
    assert status == 201
    assert body.decode().startswith(f'Method::Post Some({scheme}) Some("/function/all.flow/x?y") Some("{host}:{port}")')


def test_crumbs_of_a_cookie_and_two_hosts(app):
    with H2.clear(app.node.listen) as client:
        headers = [("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers"), ("accept", "x"), ("accept", "y")]
        said = client.call("/function/all.env", headers=headers)[2].decode().splitlines()
        assert "HTTP_COOKIE=a=1; b=2" in said and "HTTP_ACCEPT=x, y" in said
        assert not any(line.startswith("HTTP_TE=") for line in said)


def test_a_function_answers_over_many_kept_connections(app, files):
    """Requests follow each other on one connection, of each kind."""
    with TlsWire(app.node.tls, files[0]) as wire, H2.clear(app.node.listen) as clear, H2.tls(app.node.tls, files[0]) as secret:
        for i in range(50):
            body = f"{i}".encode() * 100
            wire.send(get("/function/all.echo", method="POST", headers=f"Content-Length: {len(body)}\r\n") + body)
            assert wire.read().body == body
            assert clear.call("/function/all.echo", "POST", body=body)[2] == body
            assert secret.call("/function/all.echo", "POST", body=body)[2] == body


def test_targets_in_absolute_form(app, files):
    """They are taken with the scheme by which the client came, and with no other."""
    with TlsWire(app.node.tls, files[0]) as wire, app.node.wire() as clear:
        for one, scheme, other in ((wire, "https", "http"), (clear, "http", "https")):
            one.send(get(f"{scheme}://named.example/function/all.env/x"))
            assert variables(one.read().body)["HTTP_HOST"] == "named.example"
            one.send(get(f"{other}://named.example/function/all.env/x"))
            one.read().problem(421, "http-scheme")


def test_pipelined_requests_through_tls(app, files):
    with TlsWire(app.node.tls, files[0]) as wire:
        wire.send(b"".join(get(f"/function/all.env/{i}") for i in range(100)))
        for i in range(100):
            assert f"PATH_INFO=/{i}\n" in wire.read().text


def test_a_client_that_has_sent_all_it_will(app, files):
    """Half-closed through TLS: the answer still comes."""
    with TlsWire(app.node.tls, files[0]) as wire:
        wire.send(get("/function/all.sleep?ms=300"))
        # Ends our direction of TLS with its alert, and not the other.
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLError):
            wire.socket.setblocking(False)
            wire.socket.unwrap()
    with app.node.wire() as wire:
        wire.send(get("/function/all.ping"))
        assert wire.read().status == 200


def test_boto3_through_tls(app, files):
    session = boto3.session.Session("AKIDEXAMPLE", "secret", region_name="eu-central-1")
    settings = botocore.config.Config(retries={"total_max_attempts": 1})
    url = "https://localhost:{}".format(app.node.tls[1])
    client = session.client("lambda", endpoint_url=url, verify=str(files[0]), config=settings)
    for i in range(20):
        payload = f'{{"n":{i}}}'.encode()
        answer = client.invoke(FunctionName="all.echo", Payload=payload)
        assert answer["StatusCode"] == 200 and answer["Payload"].read() == payload


# --- streams ---


def test_streams_run_at_once(app):
    with H2.clear(app.node.listen) as client:
        client.step()
        streams = [client.open("/function/all.sleep?ms=1500") for _ in range(100)]
        parked = lambda: sum(v for k, v in app.node.metrics().items() if k.startswith("millpond_parked"))
        eventually(lambda: parked() >= 100, "all sleep at once")
        for stream in streams:
            assert client.read(stream)[::2] == (200, b"slept 1500 ms\n")


def test_more_streams_than_are_allowed_are_refused_and_no_harm_is_done(app):
    with H2.clear(app.node.listen) as client:
        client.step()
        allowed = client.h2.remote_settings.max_concurrent_streams
        assert 16 <= allowed <= 1000
        client.h2.remote_settings[h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS] = 10_000
        client.h2.remote_settings.acknowledge()
        streams = [client.open("/function/all.sleep?ms=800") for _ in range(allowed + 20)]
        eventually(lambda: client.step() or len(client.reset) >= 20 or client.closed, "some are refused")
        assert set(client.reset.values()) == {h2.errors.ErrorCodes.REFUSED_STREAM}
        for stream in streams:
            if stream not in client.reset:
                assert client.read(stream)[0] == 200


@pytest.mark.parametrize("secret", [False, True])
def test_large_bodies_both_ways(app, files, secret):
    body = random.Random(1).randbytes(12 << 20)
    with H2.tls(app.node.tls, files[0]) if secret else H2.clear(app.node.listen) as client:
        status, _, got = client.call("/function/all.echo", "POST", body=body)
        assert status == 200 and hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
    if secret:
        with TlsWire(app.node.tls, files[0]) as wire:
            wire.send(get("/function/all.echo", method="POST", headers=f"Content-Length: {len(body)}\r\n") + body)
            assert hashlib.sha256(wire.read().body).digest() == hashlib.sha256(body).digest()


def test_a_body_that_is_too_large_is_refused(app):
    with H2.clear(app.node.listen) as client:
        stream = client.open("/function/all.echo", "POST", [("content-length", str(64 << 20))], end=False)
        status, headers, _ = client.read(stream)
        assert (status, headers["x-millpond-error"]) == (413, "limit-request-body")
        assert client.call("/function/all.ping")[0] == 200, "the connection outlives it"


def test_streams_do_not_hold_each_other_up(app):
    """One stream's answer is not taken by its client; others of its connection go on."""
    with H2.clear(app.node.listen) as client:
        client.step()
        client.h2.increment_flow_control_window(8 << 20)
        client.grant = False
        held = client.open("/function/all.echo", "POST", end=False)
        client.send(held, bytes(2 << 20))
        while len(client.answers.get(held, {"body": b""})["body"]) < 65_535:
            client.step()
        for _ in range(20):
            assert client.call("/function/all.ping")[2] == b"pong\n"
        assert not client.answers[held]["done"]
        client.h2.increment_flow_control_window(8 << 20, held)
        client.flush()
        assert client.read(held)[2] == bytes(2 << 20)


@pytest.mark.parametrize("secret", [False, True])
def test_an_answer_begins_before_its_request_has_ended(app, files, secret):
    with H2.tls(app.node.tls, files[0]) if secret else H2.clear(app.node.listen) as client:
        stream = client.open("/function/all.flow/stream-echo", "POST", end=False)
        sent = b""
        for i in range(10):
            piece = f"piece {i} ".encode() * 10_000
            client.send(stream, piece, end=False)
            back = len(sent) + len(piece) // 2
            sent += piece
            while len(client.answers.get(stream, {"body": b""})["body"]) < back:
                client.step()
        client.h2.end_stream(stream)
        client.flush()
        assert client.read(stream)[2] == sent


@pytest.mark.parametrize("length", [True, False])
def test_a_short_body_is_read_as_it_comes(app, length):
    """Its second half is only sent when the first has come back."""
    first, second = b"the first half, ", b"and the second"
    with H2.clear(app.node.listen) as client:
        headers = [("content-length", str(len(first + second)))] if length else []
        stream = client.open("/function/all.flow/stream-echo", "POST", headers, end=False)
        client.send(stream, first, end=False)
        while client.answers.get(stream, {"body": b""})["body"] != first:
            client.step()
        client.send(stream, second)
        assert client.read(stream)[2] == first + second


def test_trailers_go_both_ways(app):
    with H2.clear(app.node.listen) as client:
        for length, told in ((0, False), (10, False), (200_000, False), (0, True), (10, True), (200_000, True)):
            headers = [("trailer", "x-sum, x-last"), ("te", "trailers")] + [("content-length", str(length))] * told
            stream = client.open("/function/all.flow/stream-echo", "POST", headers, end=False)
            client.send(stream, bytes(length), end=False)
            client.h2.send_headers(stream, [("x-sum", "12"), ("x-last", "yes"), ("x-unannounced", "too")], end_stream=True)
            client.flush()
            assert client.read(stream)[2] == bytes(length)
            trailers = client.answers[stream]["trailers"]
            assert (trailers["x-sum"], trailers["x-last"], trailers["x-unannounced"]) == ("12", "yes", "too")
            if length > 65_536:
                assert "run" in trailers["server-timing"]


def test_a_stream_that_breaks_is_reset(app):
    """A function that fails when it has begun to answer."""
    with H2.clear(app.node.listen) as client:
        stream = client.open("/function/all.flow/stream-cut?300000", "POST")
        while stream not in client.reset:
            client.step()
        assert not client.answers[stream]["done"]
        assert client.call("/function/all.ping")[0] == 200


def test_many_long_streams_in_flat_memory(app, files, tmp_path):
    """Half a gibibyte down on one connection, at once; and as much up and down again."""
    before = app.node.resident_bytes()
    base, size = "https://localhost:{}/function/all.flow/".format(app.node.tls[1]), 60 << 20
    down = subprocess.run(
        ["curl", "-sS", "-Z", "--http2", "--cacert", files[0], "-w", "%{http_code} %{size_download}\n"]
        + [word for _ in range(8) for word in ("-o", "/dev/null", f"{base}stream-long?{size}")],
        capture_output=True, timeout=PATIENCE, check=False,
    )
    assert down.stdout == f"200 {size}\n".encode() * 8, down.stderr
    sent, back = tmp_path / "sent", tmp_path / "back"
    sent.write_bytes(random.Random(3).randbytes(size))
    for _ in range(4):
        echo = ["curl", "-sS", "--http2", "--cacert", files[0], "-H", "Expect:", "--data-binary", f"@{sent}", "-o", back]
        subprocess.run([*echo, base + "stream-echo"], timeout=PATIENCE, check=True)
        assert back.read_bytes() == sent.read_bytes()
    assert app.node.resident_bytes() - before < 64 << 20


def test_a_function_learns_that_its_stream_was_cancelled(app):
    """Its client gives up: what runs for it ends, and long before its time."""
    with H2.clear(app.node.listen) as client:
        streams = [client.open("/function/all.flow/stream-ticks?1000000", "POST") for _ in range(5)]
        for stream in streams:
            while b"tick 1" not in client.answers.get(stream, {"body": b""})["body"]:
                client.step()
            client.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
            client.flush()
        quiet_sandboxes(app.node)
        assert client.call("/function/all.ping")[0] == 200


def quiet_sandboxes(node):
    parked = lambda: sum(v for k, v in node.metrics().items() if k.startswith("millpond_parked"))
    eventually(lambda: parked() == 0, "no sandbox waits", patience=30)


def quiet(node):
    """Waits until nothing is open on behalf of anybody."""

    def is_quiet():
        metrics = node.metrics()
        return not any(v for k, v in metrics.items() if k.startswith(("millpond_connections_open", OPENED, "millpond_parked")))

    eventually(is_quiet, "everything is closed")


def test_cancelled_streams_leave_nothing_behind(app):
    quiet(app.node)
    with H2.clear(app.node.listen) as client:
        for _ in range(3):
            # h2 sends a client away that resets more than twenty streams before they were looked at.
            streams = [client.open("/function/all.sleep?ms=500") for _ in range(15)]
            half = client.open("/function/all.echo", "POST", end=False)
            client.send(half, b"some", end=False)
            for stream in [*streams, half]:
                client.h2.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
            client.flush()
            assert client.call("/function/all.ping")[0] == 200
    quiet(app.node)


def test_who_only_cancels_is_told_to_go(app):
    before = app.node.metrics()["millpond_http2_cancelled_total"]
    with H2.clear(app.node.listen) as client:
        for _ in range(5_000):
            with contextlib.suppress(OSError, h2.exceptions.ProtocolError):
                client.h2.reset_stream(client.open("/function/all.sleep?ms=100"), h2.errors.ErrorCodes.CANCEL)
                client.flush()
                continue
            break
        client.until_closed()
        assert client.gone is not None
    assert app.node.metrics()["millpond_http2_cancelled_total"] >= before
    with H2.clear(app.node.listen) as client:
        assert client.call("/function/all.ping")[0] == 200


@pytest.mark.parametrize("secret", [False, True])
def test_a_client_that_vanishes(app, files, secret):
    quiet(app.node)
    opened = (lambda: H2.tls(app.node.tls, files[0])) if secret else (lambda: H2.clear(app.node.listen))
    for when in range(4):
        client = opened()
        if when == 0:
            client.open("/function/all.echo", "POST", end=False)
        elif when == 1:
            client.send(client.open("/function/all.echo", "POST", end=False), bytes(30_000), end=False)
        elif when == 2:
            client.open("/function/all.sleep?ms=300")
        else:
            client.grant = False
            stream = client.open("/function/all.echo", "POST", end=False)
            client.send(stream, bytes(1 << 20))
            while stream not in client.answers:
                client.step()
        client.leave()
    if secret:
        for sent in (b"GET /function/all.sleep?ms=300 HTTP/1.1\r\nHost: h\r\n\r\n", b"GET /func", b""):
            wire = TlsWire(app.node.tls, files[0])
            wire.send(sent)
            wire.reset()
    quiet(app.node)


@pytest.mark.parametrize(("size", "code"), [(20_000, "limit-request-head"), (60_000, "limit-request-head"), (70_000, None)])
def test_heads_that_are_too_large(app, size, code):
    """Up to a point the gateway says so in its words; beyond, HTTP/2 does, and ends those that never end."""
    with H2.clear(app.node.listen) as client:
        client.step()
        headers = [(f"x-{i}", "v" * 1000) for i in range(size // 1000)]
        status, answered, _ = client.call("/function/all.ping", headers=headers)
        assert (status, answered.get("x-millpond-error")) == (431, code)
        assert client.call("/function/all.ping")[0] == 200
        client.open("/function/all.ping", headers=[(f"x-{i}", "v" * 1000) for i in range(300)])
        client.until_closed()
        assert client.gone == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


def test_a_tunnel_is_refused(app):
    with H2.clear(app.node.listen) as client:
        stream = client.h2.get_next_available_stream_id()
        client.h2.send_headers(stream, [(":method", "CONNECT"), (":authority", "example.org:443")])
        client.flush()
        status, headers, _ = client.read(stream)
        assert (status, headers["x-millpond-error"]) == (501, "http-method")
        assert client.call("/function/all.ping")[0] == 200


# --- the upgrade ---


def settings_header(settings=((4, 1 << 20),)):
    payload = b"".join(struct.pack(">HI", *setting) for setting in settings)
    return urlsafe_b64encode(payload).decode().rstrip("=")


def asking(path, value, connection="Upgrade, HTTP2-Settings", upgrade="h2c", more="", method="GET"):
    settings = "".join(f"HTTP2-Settings: {one}\r\n" for one in ([value] if isinstance(value, str) else value))
    return get(path, method=method, headers=f"Connection: {connection}\r\nUpgrade: {upgrade}\r\n{settings}{more}")


def test_the_upgraded_request_is_answered_on_the_first_stream(app):
    with app.node.wire() as wire:
        # Not the connection's first request; and the next ones follow on streams of the same tables.
        wire.send(get("/function/all.ping"))
        assert wire.read().status == 200
        client = H2(wire.socket, start=False)
        value = client.h2.initiate_upgrade_connection().decode()
        wire.send(asking("/function/all.env/x", value, more="X-Mine: " + "y" * 3000 + "\r\n"))
        answer = wire.read()
        assert (answer.status, answer.headers["Upgrade"]) == (101, "h2c")
        client.flush()
        if wire.buffer:
            client.h2.receive_data(wire.buffer)
        status, _, body = client.read(1)
        assert status == 200
        said = variables(body)
        assert (said["PATH_INFO"], said["HTTP_X_MINE"], said["SERVER_PROTOCOL"]) == ("/x", "y" * 3000, "HTTP/2.0")
        assert said["HTTP_HOST"] == "localhost"
        for i in range(20):
            headers = [("x-mine", f"value {i % 3}")]
            assert f"HTTP_X_MINE=value {i % 3}" in client.call("/function/all.env", headers=headers)[2].decode()


def test_the_settings_of_the_header_are_obeyed(app):
    """A window of 100 bytes for each stream: no more comes until more is granted."""
    with app.node.wire() as wire:
        wire.send(asking("/function/all.env", settings_header([(4, 100)])))
        assert wire.read().status == 101
        wire.send(PREFACE + SETTINGS_FRAME)
        got, data = b"", 0
        while data < 100:
            got += wire.socket.recv(4096)
            data = sum(length for kind, length, _ in frames(got + wire.buffer) if kind == 0)
        assert data == 100
        wire.send(struct.pack(">I", 4)[1:] + b"\x08\0" + struct.pack(">II", 1, 50))
        while data < 150:
            got += wire.socket.recv(4096)
            data = sum(length for kind, length, _ in frames(got + wire.buffer) if kind == 0)
        assert data == 150
        acks = [kind for kind, _, flags in frames(wire.buffer + got) if kind == 4 and flags & 1]
        assert len(acks) == 1, "one acknowledgement for the client's one SETTINGS frame"


def frames(data):
    """(type, length, flags) of whole frames."""
    while len(data) >= 9:
        length = int.from_bytes(data[:3])
        yield data[3], min(length, len(data) - 9), data[4]
        data = data[9 + length :]


@pytest.mark.parametrize(
    "request_bytes",
    [
        asking("/function/all.ping", settings_header(), upgrade="websocket"),
        asking("/function/all.ping", settings_header(), upgrade="h2"),
        asking("/function/all.ping", settings_header(), upgrade="H2C"),
        asking("/function/all.ping", settings_header(), connection="Upgrade"),
        asking("/function/all.ping", settings_header(), connection="HTTP2-Settings"),
        asking("/function/all.ping", [settings_header(), settings_header()]),
        asking("/function/all.ping", "AAAA"),
        asking("/function/all.ping", "!!!!!!!!"),
        asking("/function/all.ping", "AAAAAAAA" * 33),
        asking("/function/all.ping", []),
        asking("/function/all.ping", settings_header()).replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
)
def test_upgrades_that_are_none_are_ignored(app, request_bytes):
    with app.node.wire() as wire:
        wire.send(request_bytes)
        answer = wire.read()
        assert (answer.status, answer.body) == (200, b"pong\n")


def test_a_request_with_a_body_is_not_upgraded(app):
    with app.node.wire() as wire:
        wire.send(asking("/function/all.echo", settings_header(), more="Content-Length: 4\r\n", method="POST") + b"body")
        assert wire.read().body == b"body"
        wire.send(asking("/function/all.ping", ""))
        assert wire.read().status == 101, "no settings at all are settings"


def test_there_is_no_upgrade_through_tls(app, files):
    """RFC 7540 asks for ALPN there. What is sent through a piped connection cannot leave for HTTP/2."""
    with TlsWire(app.node.tls, files[0]) as wire:
        wire.send(asking("/function/all.ping", settings_header()))
        assert wire.read().body == b"pong\n"
    with TlsWire(app.node.tls, files[0]) as wire:
        wire.send(PREFACE + SETTINGS_FRAME)
        wire.read().problem(505, "http-version")


# --- bytes that nobody should send ---


def test_the_preface_in_pieces(app):
    whole = PREFACE + SETTINGS_FRAME
    for size in (1, 5, 23):
        with app.node.wire() as wire:
            for at in range(0, len(whole), size):
                wire.send(whole[at : at + size])
            while 4 not in [kind for kind, _, _ in frames(wire.buffer)]:
                wire._more()


@pytest.mark.parametrize("wrong", [b"PRI * HTTP/2.0\r\n\r\nXX", b"PRI / HTTP/1.1\r\nHost: h\r\n\r\n", b"PRI * HTTP/1.1\r\nHost: h\r\n\r\n", b"P", b"PRI"])
def test_what_only_looks_like_the_preface(app, wrong):
    with app.node.wire() as wire:
        wire.send(wrong)
        if len(wrong) > 3:
            assert wire.read().status in (400, 404, 405, 501, 505)
    with app.node.wire() as wire:
        wire.send(get("/function/all.ping") + PREFACE)
        assert wire.read().status == 200
        wire.read().problem(505, "http-version")


def malformed(seed):
    """Bytes that begin as HTTP/2 does, or nearly, and go on in one of many wrong ways."""
    rng = random.Random(seed)
    encoder = hpack.Encoder()
    head = encoder.encode([(":method", "GET"), (":scheme", "http"), (":path", "/function/all.ping"), (":authority", "h")])

    def frame(kind, flags, stream, payload=b"", length=None):
        length = len(payload) if length is None else length
        return length.to_bytes(3) + bytes([kind, flags]) + (stream & 0xFFFFFFFF).to_bytes(4) + payload

    good = [frame(1, 5, 1, head), frame(6, 0, 0, bytes(8)), frame(8, 0, 0, (1000).to_bytes(4)), frame(1, 5, 3, head)]
    data = PREFACE + SETTINGS_FRAME
    match seed % 12:
        case 0:
            return data + rng.randbytes(rng.randrange(1, 400))
        case 1:
            return data + b"".join(frame(rng.randrange(256), rng.randrange(256), rng.randrange(6), rng.randbytes(rng.randrange(40))) for _ in range(30))
        case 2:
            mutated = bytearray(data + b"".join(good))
            for _ in range(rng.randrange(1, 6)):
                mutated[rng.randrange(len(PREFACE), len(mutated))] = rng.randrange(256)
            return bytes(mutated)
        case 3:
            return (data + b"".join(good))[: rng.randrange(1, len(data) + 40)]
        case 4:
            return data + frame(1, 1, 1, head[:5]) + b"".join(frame(9, 0, 1, rng.randbytes(16_000)) for _ in range(40))
        case 5:
            return data + frame(1, 5, 1, b"\x3f" + b"\xff" * 30)
        case 6:
            return data + frame(0, 0, rng.randrange(1, 9), b"data") + frame(9, 4, 1, head)
        case 7:
            return data + frame(4, 0, 0, struct.pack(">HI", rng.randrange(1, 8), rng.choice([0, 1, 2**31, 2**32 - 1]))) * 3
        case 8:
            return data + good[0] + frame(8, 0, rng.choice([0, 1]), (2**31 - 1).to_bytes(4)) * 3
        case 9:
            fields = rng.choice([[("connection", "close")], [(":path", "/x")], [("Upper", "x")], [("transfer-encoding", "chunked")], [("x", "a\r\nb: c")], [(":status", "200")], [("te", "gzip")]])
            basis = [(":method", "POST"), (":scheme", "http"), (":path", rng.choice(["", "x", "*", "/\0", "/ x"])), (":authority", rng.choice(["h", "@", "a b"]))]
            return data + frame(1, 5, 1, encoder.encode([*basis, *fields]))
        case 10:
            body = encoder.encode([(":method", "POST"), (":scheme", "http"), (":path", "/function/all.echo"), ("content-length", rng.choice(["3", "-1", "9" * 30, "1, 2"]))])
            return data + frame(1, 4, 1, body) + frame(0, 1, 1, b"ab") + frame(0, 1, 1, b"cd") + frame(1, 5, 1, head)
        case _:
            return data + good[0] + frame(rng.randrange(12), 0x2D, 1, b"\xff" + bytes(3)) + frame(2, 0, 1, bytes(rng.randrange(8))) * 50 + frame(3, 0, 1, bytes(rng.randrange(8)))


@pytest.mark.parametrize("way", ["h2c", "h2", "upgrade"])
def test_malformed_bytes_end_at_most_their_connection(app, files, way):
    """Each is on a connection of its own, beside one that must not notice."""
    with H2.clear(app.node.listen) as witness:
        for seed in range(240):
            if way == "h2":
                wire = TlsWire(app.node.tls, files[0], ("h2",))
            else:
                wire = app.node.wire()
            with wire, contextlib.suppress(OSError, Closed):
                if way == "upgrade":
                    wire.send(asking("/function/all.ping", settings_header()))
                    assert wire.read().status == 101
                wire.send(malformed(seed))
                if seed % 3 == 0:
                    wire.end() if way != "h2" else None
                if seed % 3 == 1:
                    wire.socket.settimeout(0.05)
                    wire._more()
            if seed % 20 == 0:
                assert witness.call("/function/all.ping")[2] == b"pong\n"
        assert witness.call("/function/all.ping")[2] == b"pong\n"
    quiet(app.node)
    assert "panicked" not in app.node.log.read_text(errors="replace")


def test_malformed_handshakes_of_tls(app, files):
    rng = random.Random(2)
    hello = bytearray(517)
    for seed in range(60):
        with app.node.wire() as wire:
            pass
        with contextlib.suppress(OSError, Closed), Wire(app.node.tls) as wire:
            hello[:6] = b"\x16\x03\x01\x02\0\x01"
            wire.send(bytes(hello[:6]) + rng.randbytes(rng.randrange(600)) if seed % 2 else rng.randbytes(rng.randrange(1, 600)))
            wire.socket.settimeout(0.05)
            wire._more()
    with TlsWire(app.node.tls, files[0]) as wire:
        wire.send(get("/function/all.ping"))
        assert wire.read().status == 200


def test_a_handshake_that_never_ends(app):
    with Wire(app.node.tls) as silent, Wire(app.node.tls) as half:
        half.send(b"\x16\x03\x01\x02\0\x01")
        for wire in (silent, half):
            assert wire.is_closed()


def test_the_wrong_port(app, files):
    with Wire(app.node.tls) as wire:
        wire.send(get("/function/all.ping"))
        wire.read().problem(400, "http-clear-text")
        assert wire.is_closed()
    with app.node.wire() as wire:
        wire.send(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03")
        wire.read().problem(400, "http-tls")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions_of_tls(app, files, version):
    made = context(files[0], ("h2", "http/1.1"))
    made.minimum_version = made.maximum_version = version
    with socket.create_connection(app.node.tls, timeout=PATIENCE) as raw, made.wrap_socket(raw, server_hostname="localhost") as secret:
        with H2(secret) as client:
            assert client.call("/function/all.ping")[0] == 200


def test_a_protocol_that_is_not_spoken(app, files):
    with pytest.raises(ssl.SSLError):
        TlsWire(app.node.tls, files[0], ("spdy/3",))
    with TlsWire(app.node.tls, files[0], ()) as wire:
        wire.send(get("/function/all.ping"))
        assert wire.read().status == 200, "without ALPN it is HTTP/1.1"


# --- certificates ---


def shown(node):
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate(node.tls).strip()


def replace(pair, cert, key):
    """Puts copies in the place of what the node reads, one file after the other, as renaming does."""
    for new, old in zip(pair, (cert, key), strict=True):
        copy = old.with_suffix(".new")
        copy.write_bytes(new.read_bytes())
        copy.rename(old)


def test_certificates_are_replaced_while_requests_run(make_node, tmp_path):
    pairs = [certificate(tmp_path / "made", name) for name in ("first", "second", "third")]
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    replace(pairs[0], cert, key)
    trusted = tmp_path / "trusted.pem"
    trusted.write_text("".join(pair[0].read_text() for pair in pairs))
    node = make_node(cores=PROCESSORS[:2], config=config(cert, key))
    app = node.deploy("rotate", {"ping": "ping"})
    failures, counts, stop = [], [0, 0, 0, 0], threading.Event()

    def ask(which):
        kept = None
        while not stop.is_set():
            try:
                if which == 0:  # a connection for each request
                    with TlsWire(node.tls, trusted) as wire:
                        wire.send(get(app.path("ping")))
                        assert wire.read().body == b"pong\n"
                elif which == 1:
                    with H2.tls(node.tls, trusted) as client:
                        assert client.call(app.path("ping"))[2] == b"pong\n"
                elif which == 2:  # one connection for all
                    kept = kept or H2.tls(node.tls, trusted)
                    assert kept.call(app.path("ping"))[2] == b"pong\n"
                else:
                    kept = kept or TlsWire(node.tls, trusted)
                    kept.send(get(app.path("ping")))
                    assert kept.read().body == b"pong\n"
                counts[which] += 1
            except Exception as error:
                failures.append((which, repr(error)))
                return

    threads = [threading.Thread(target=ask, args=(which,), daemon=True) for which in range(4)]
    for thread in threads:
        thread.start()
    try:
        assert shown(node) == pairs[0][0].read_text().strip()
        # By itself, by SIGHUP, and back.
        for turn, pair in enumerate([pairs[1], pairs[2], pairs[0]]):
            before = list(counts)
            replace(pair, cert, key)
            if turn > 0:
                node.process.send_signal(signal.SIGHUP)
            eventually(lambda pair=pair: shown(node) == pair[0].read_text().strip(), "the new certificate is shown")
            eventually(lambda before=before: failures or all(now > was for now, was in zip(counts, before, strict=True)), "all go on")
        # What cannot be used is not.
        for what, write in {
            "be used together": lambda: cert.write_bytes(pairs[1][0].read_bytes()),
            "no CERTIFICATE": lambda: cert.write_text("nothing\n"),
            "failed to read": cert.unlink,
        }.items():
            write()
            node.process.send_signal(signal.SIGHUP)
            eventually(lambda what=what: what in node.log.read_text(), f"the log says `{what}`")
            assert shown(node) == pairs[0][0].read_text().strip()
        replace(pairs[2], cert, key)
        eventually(lambda: shown(node) == pairs[2][0].read_text().strip(), "the last certificate is shown")
    finally:
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert not failures
    reloads = node.metrics()
    assert reloads['millpond_tls_certificate_reloads_total{outcome="ok"}'] >= 4
    assert reloads['millpond_tls_certificate_reloads_total{outcome="failed"}'] >= 3
    # Each failure is told once, however often it is looked at.
    assert node.log.read_text().count("no CERTIFICATE") == 1


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda cert, key: cert.unlink(), ["failed to read the TLS certificate", "cert.pem", "Check the path"]),
        (lambda cert, key: key.write_text("no key"), ["the TLS key", "key.pem", "no private key in PEM"]),
        (lambda cert, key: cert.write_bytes(key.read_bytes()), ["the TLS certificate", "no CERTIFICATE"]),
        (lambda cert, key: replace((cert, certificate(cert.parent, "other")[1]), cert, key), ["cannot be used together", "made for this key"]),
    ],
)
def test_files_that_cannot_be_used_are_told_at_the_start(tmp_path, broken, said):
    made = certificate(tmp_path, "made")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    replace(made, cert, key)
    broken(cert, key)
    node = Node(tmp_path / "node", config=config(cert, key))
    run = subprocess.run(node.command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 1
    for words in said:
        assert words in run.stderr, run.stderr


def test_half_a_configuration_is_none(tmp_path, files):
    node = Node(tmp_path / "node")
    for words in (["--tls-listen", "127.0.0.1:0"], ["--tls-certificate", files[0], "--tls-key", files[1]]):
        run = subprocess.run([*node.command, *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert run.returncode == 2
        assert "--tls-listen, --tls-certificate and --tls-key" in run.stderr


def test_where_tls_listens_is_told(app, files, tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(config(*files).replace(":0", ":8443"))
    doctor = cli("doctor", "--config", path).stdout.decode()
    assert "https://127.0.0.1:8443" in doctor
    path.write_text(config(files[0], files[0]))
    doctor = cli("doctor", "--config", path)
    assert doctor.returncode == 1 and "no private key in PEM" in doctor.stdout.decode()
    assert app.node.control("GET", "/v1/node").document["tls"] == "{}:{}".format(*app.node.tls)


# --- the end ---


def test_requests_in_flight_are_finished(make_node, files):
    node = make_node(cores=PROCESSORS[:2], config=config(*files))
    app = node.deploy("going", {"sleep": "sleep"})
    path = app.path("sleep", "?ms=2500")
    clear, secret = "http://{}:{}".format(*node.listen), "https://localhost:{}".format(node.tls[1])
    # Each on one connection, by a client that knows what GOAWAY means.
    asking = [
        (1, ["--http2", clear + path]),
        (1, ["--http2-prior-knowledge", clear + path]),
        (3, ["--http2", "--cacert", files[0], *[secret + path] * 3]),
    ]
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(TlsWire(node.tls, files[0])) for _ in range(4)]
        idle = stack.enter_context(TlsWire(node.tls, files[0]))
        lazy = stack.enter_context(node.wire())
        lazy.send(PREFACE + SETTINGS_FRAME)
        pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        curls = [(count, subprocess.Popen(["curl", "-sS", "-Z", "-m", "60", *words], **pipe)) for count, words in asking]
        for wire in wires:
            wire.send(get(path))
        parked = lambda: sum(v for k, v in node.metrics().items() if k.startswith("millpond_parked"))
        eventually(lambda: parked() == 9, "all sleep")
        node.terminate()
        assert idle.is_closed(), "an idle connection was kept"
        with pytest.raises(Closed):
            lazy.read_until(b"there is no such frame")
        goaway = [kind for kind, _, _ in frames(lazy.buffer) if kind == 7]
        assert goaway, "HTTP/2 says that it goes"
        for wire in wires:
            answer = wire.read()
            assert (answer.status, answer.text) == (200, "slept 2500 ms\n")
            assert wire.is_closed()
        for count, client in curls:
            out, said = client.communicate(timeout=PATIENCE)
            assert (client.returncode, out) == (0, b"slept 2500 ms\n" * count), said
    assert node.wait() == 0


def test_clients_that_stay_do_not_hold_up_the_end(make_node, files):
    """Connections that say nothing, never take their answers, or never finish their handshake."""
    node = make_node(config=config(*files, drain="2s"))
    app = node.deploy("going", {"echo": "echo"})
    with contextlib.ExitStack() as stack:
        stack.enter_context(Wire(node.tls))
        stack.enter_context(TlsWire(node.tls, files[0]))
        silent = stack.enter_context(node.wire())
        silent.send(PREFACE + SETTINGS_FRAME)
        greedy = stack.enter_context(H2.tls(node.tls, files[0]))
        greedy.grant = False
        stream = greedy.open(app.path("echo"), "POST", end=False)
        greedy.send(stream, bytes(4 << 20))
        while stream not in greedy.answers:
            greedy.step()
        node.terminate()
        assert node.wait() == 0
