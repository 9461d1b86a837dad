"""An S3 server that does wrong on purpose: slow, short, long, damaged, overloaded, silent, or gone, as a test wants it.

It keeps objects in memory and speaks as much of S3 as the tests need: GET, HEAD, PUT (if there is none yet), copies and deletions
of objects, and uploads in parts. Whether it is the real thing that is spoken to is for the tests with versitygw.
"""

import base64
import hashlib
import itertools
import re
import socket
import struct
import threading
import zlib
from urllib.parse import parse_qsl, unquote, urlsplit


class Lost(Exception):
    """The connection ends here."""


def reset(connection):
    """Ends it as a crash would: by RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
    raise Lost


class Request:
    """One that has come, as far as it has been read."""

    def __init__(self, method, target, fields, file):
        url = urlsplit(target)
        self.method, self.path, self.query = method, unquote(url.path), dict(parse_qsl(url.query, keep_blank_values=True))
        self.fields, self._file = fields, file
        self.length = int(fields.get("content-length", 0))

    def read(self, count=None):
        """So much of the body as it is sent, or all."""
        count = self.length if count is None else min(count, self.length)
        data = self._file.read(count)
        if len(data) < count:
            raise Lost
        self.length -= count
        return data

    def body(self):
        """All of it, without the chunks of `aws-chunked`."""
        data = self.read()
        if "x-amz-decoded-content-length" not in self.fields:
            return data
        whole = b""
        while data:
            size, _, data = data.partition(b"\r\n")
            size = int(size.split(b";")[0], 16)
            if not size:
                break
            whole, data = whole + data[:size], data[size + 2 :]
        assert len(whole) == int(self.fields["x-amz-decoded-content-length"])
        return whole


class LyingServer:
    """Listens on loopback. `faults` are what it does to the next requests, one for each; after them, it behaves.

    A fault is a function of the server, the connection and the request. It returns true if that was all for the request.
    """

    def __init__(self):
        self.objects, self.etags, self.uploads, self.faults, self.seen = {}, {}, {}, [], []
        self.over = threading.Event()
        self._numbers = itertools.count(1)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self):
        self.over.set()
        # Wakes the thread that listens.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def put(self, key, data):
        self.objects["/pond/" + key] = data
        self.etags.pop("/pond/" + key, None)

    def attempts(self):
        """Methods and queries of the requests since this was last asked."""
        seen, self.seen = self.seen, []
        return seen

    def _listen(self):
        while not self.over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as file:
            try:
                while line := file.readline():
                    method, target, _ = line.decode().split()
                    fields = {}
                    while (line := file.readline()) not in (b"\r\n", b""):
                        name, _, value = line.decode().partition(":")
                        fields[name.lower()] = value.strip()
                    request = Request(method, target, fields, file)
                    self.seen.append((method, sorted(request.query)))
                    fault = self.faults.pop(0) if self.faults else None
                    if not (fault and fault(self, connection, request)):
                        connection.sendall(self.answer(request))
            except (Lost, OSError):
                pass

    def answer(self, request):
        """What an honest server says."""
        head, body = self.parts(request)
        return head + (b"" if request.method == "HEAD" else body)

    def parts(self, request):
        """The same as its head and its body."""
        data, query, path = request.body(), request.query, request.path
        if request.method in ("GET", "HEAD"):
            if path not in self.objects:
                return message("404 Not Found", error("NoSuchKey"))
            more = {"ETag": self.etags[path]} if path in self.etags else {}
            return message("200 OK", self.objects[path], checked=True, **more)
        if request.method == "POST" and "uploads" in query:
            upload = str(next(self._numbers))
            self.uploads[upload] = {}
            return message("200 OK", document("InitiateMultipartUploadResult", UploadId=upload))
        if request.method == "PUT" and "uploadId" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = data
            return message("200 OK", b"", ETag=etag(data))
        if request.method in ("POST", "DELETE") and "uploadId" in query:
            parts = self.uploads.pop(query["uploadId"], None)
            if parts is None:
                return message("404 Not Found", error("NoSuchUpload"))
            if request.method == "DELETE":
                return message("204 No Content", b"")
            parts = [parts[int(number)] for number in re.findall(rb"<PartNumber>(\d+)<", data)]
            sums = b"".join(hashlib.md5(part, usedforsecurity=False).digest() for part in parts)
            self.objects[path], self.etags[path] = b"".join(parts), f'{etag(sums)[:-1]}-{len(parts)}"'
            return message("200 OK", document("CompleteMultipartUploadResult", ETag=self.etags[path]))
        if request.method == "POST" and "delete" in query:
            keys = [key.decode() for key in re.findall(rb"<Key>([^<]*)<", data)]
            for key in keys:
                self.objects.pop(f"{path}/{key}", None)
            return message("200 OK", document("DeleteResult", Deleted="".join(f"<Key>{key}</Key>" for key in keys)))
        if request.method == "PUT" and request.fields.get("if-none-match") == "*" and path in self.objects:
            return message("412 Precondition Failed", error("PreconditionFailed"))
        if request.method == "PUT" and "x-amz-copy-source" in request.fields:
            self.objects[path] = self.objects["/" + unquote(request.fields["x-amz-copy-source"])]
            self.etags.pop(path, None)
            return message("200 OK", document("CopyObjectResult", ETag=etag(self.objects[path])))
        if request.method == "PUT":
            self.objects[path] = data
            self.etags.pop(path, None)
            return message("200 OK", b"", ETag=etag(data))
        return message("501 Not Implemented", error("NotImplemented"))


def etag(data):
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def error(code):
    return document("Error", Code=code, Message="on purpose")


def document(root, **members):
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in members.items())
    return f'<?xml version="1.0" encoding="UTF-8"?><{root}>{inner}</{root}>'.encode()


def message(status, body, checked=False, length=None, **fields):
    """Head and body of an answer."""
    if checked:
        fields.setdefault("ETag", etag(body))
        fields["x-amz-checksum-crc32"] = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    if body.startswith(b"<?xml"):
        fields["Content-Type"] = "application/xml"
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode(), body


# Faults.


def drips(server, connection, request):
    """All of the answer, in many small pieces, one a while after another."""
    data = server.answer(request)
    for begin in range(0, len(data), len(data) // 20):
        connection.sendall(data[begin : begin + len(data) // 20])
        server.over.wait(0.02)
    return True


def truncates(server, connection, request):
    """Less than the length that it says."""
    head, body = server.parts(request)
    connection.sendall(head + body[: len(body) // 2])
    raise Lost


def goes_on(server, connection, request):
    """More than the length that it says: what could be taken for the next answer."""
    forged = b"".join(message("200 OK", b"forged", checked=True))
    connection.sendall(server.answer(request) + forged)
    return True


def damages(server, connection, request):
    """One bit is another, near the end."""
    head, body = server.parts(request)
    body = bytearray(body)
    body[-2] ^= 0x10
    connection.sendall(head + body)
    return True


def damages_the_beginning(server, connection, request):
    head, body = server.parts(request)
    connection.sendall(head + bytes([body[0] ^ 1]) + body[1:])
    return True


def says_slow_down(server, connection, request):
    request.body()
    connection.sendall(b"".join(message("503 Slow Down", error("SlowDown"))))
    return True


def fails_inside(server, connection, request):
    request.body()
    connection.sendall(b"".join(message("500 Internal Server Error", error("InternalError"))))
    return True


def resets_at_once(_server, connection, _request):
    """When the head is here."""
    reset(connection)


def resets_in_the_body(_server, connection, request):
    request.read(request.length // 2)
    reset(connection)


def resets_when_done(server, connection, request):
    """What was asked for is done, and nobody hears of it."""
    server.answer(request)
    reset(connection)


def resets_in_the_answer(server, connection, request):
    connection.sendall(server.answer(request)[:40])
    reset(connection)


def resets_in_its_body(server, connection, request):
    head, body = server.parts(request)
    connection.sendall(head + body[: len(body) // 2])
    reset(connection)


def hangs(server, _connection, _request):
    """Does not read the body, and never answers."""
    server.over.wait()
    raise Lost


def hangs_when_done(server, _connection, request):
    server.answer(request)
    server.over.wait()
    raise Lost


class HangsWhenDone:
    """The same. `is_done` is set as soon as that is so, and as `then` has been called."""

    def __init__(self, then=lambda _server: None):
        self.is_done, self._then = threading.Event(), then

    def __call__(self, server, connection, request):
        server.answer(request)
        self._then(server)
        self.is_done.set()
        server.over.wait()
        raise Lost


def hangs_in_its_body(server, connection, request):
    head, body = server.parts(request)
    connection.sendall(head + body[: len(body) // 2])
    server.over.wait()
    raise Lost


def speaks_nonsense(_server, connection, request):
    request.body()
    connection.sendall(b"220 this is not HTTP\r\n\r\n")
    raise Lost
