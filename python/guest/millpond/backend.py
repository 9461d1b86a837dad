"""Calls of services, which the backend makes: this process has no network, and no credential.

A call's head and its reply's are short JSON; bodies are bytes that go through memory which this process and the backend share.
"""

import _thread
import json
import os

from millpond import native

# Bytes that are taken of a file at a time, to send them.
_PIECE = 8 << 20


class Failed(Exception):
    """No reply came, or no more of it.

    `kind` is one of `denied`, `target` (there is no such thing to be asked for), `busy`, `timeout`, `unavailable` (nobody could be asked: it may be
    tried again) and `broken` (it may have been done or not).
    """

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind
        self.message = message


class Reply:
    """What a service answers: `status`, `headers` (names in lower case, with their values), and a body of `length` bytes, `None` if that is not known."""

    def __init__(self, link, call):
        self._link, self._call = link, call
        head, self.length = _heard(call.head)
        head = json.loads(head)
        self.status, self.headers = head["status"], [tuple(field) for field in head["headers"]]

    def read(self, n=-1):
        """The next `n` bytes of the body, or all of it: fewer at its end. Raises `Failed` if it breaks off."""
        if self._call is None:
            return b""
        if n is not None and n >= 0:
            return self._take(n)
        if self.length is not None:
            # More than there is would be taken and be for nothing.
            return self._take(self.length)
        pieces = []
        while piece := self._take(1 << 20):
            pieces.append(piece)
        return b"".join(pieces)

    def readinto(self, buffer):
        """Fills `buffer` with the next bytes: how many. Raises `Failed` if the body breaks off."""
        return _heard(self._call.readinto, buffer) if self._call else 0

    def close(self):
        """Gives up what has not been read."""
        self._call = None

    def _take(self, n):
        return _heard(self._call.read, n)


def call(service, operation, target, parameters, body=b"", length=None):
    """Has `service` do `operation` to `target` with `parameters`, pairs of names and values, and sends `body`: bytes, or something whose `read` gives
    `length` of them. Returns the `Reply`; raises `Failed`."""
    head = {"operation": operation, "target": target, "parameters": parameters}
    head = json.dumps(head, separators=(",", ":")).encode()
    link = _links.get(service)
    rest = body if hasattr(body, "read") else None
    view = memoryview(rest.read(min(length, _PIECE)) if rest else body).cast("B")
    try:
        made, sent = link.call(head, view, length if rest else len(view))
        _send(made, view[sent:])
        left = length - len(view) if rest else 0
        while left > 0:
            piece = rest.read(min(left, _PIECE))
            if not piece:
                raise Failed("broken", f"the body ends {left} bytes before its length")
            left -= len(piece)
            if not _send(made, memoryview(piece).cast("B")):
                break
        return Reply(link, made)
    except ConnectionResetError as error:
        raise Failed("unavailable", str(error)) from None
    except ValueError as error:
        raise Failed("target", str(error)) from None


def _send(made, view):
    """Whether all of it was sent: what has its reply takes no more."""
    while view:
        sent = made.send(view)
        if not sent:
            return False
        view = view[sent:]
    return True


def _heard(ask, *arguments):
    try:
        return ask(*arguments)
    except ConnectionResetError as error:
        raise Failed("unavailable", str(error)) from None
    except RuntimeError as error:
        try:
            said = json.loads(str(error))
            kind, message = said["kind"], said["message"]
        except (ValueError, KeyError):
            kind, message = "broken", str(error)
        raise Failed(kind, message) from None


class _Links:
    """The links of this process, by their services. Each is made when it is first wanted, and anew when the backend was."""

    def __init__(self):
        self._ask = None
        self._known = {}
        self._lock = _thread.allocate_lock()
        self._process = os.getpid()

    def begin(self, ask):
        self.__init__()
        self._ask = ask

    def get(self, service):
        link = self._known.get(service)
        if link is not None and not link.is_gone and self._process == os.getpid():
            return link
        if self._ask is None:
            raise Failed("unavailable", "there are no services while a module is imported, but only while a request is served")
        if self._process != os.getpid():
            raise Failed("unavailable", "there are no services in a process that the function has forked: call them in its first one")
        with self._lock:
            link = self._known.get(service)
            if link is None or link.is_gone:
                try:
                    file, reason = self._ask(service)
                    if file is None:
                        raise Failed(*reason.split(" ", 1))
                    link = self._known[service] = native.Link(file)
                except OSError as error:
                    raise Failed("unavailable", f"no link to the backend: {error}") from None
            return link


_links = _Links()


def reach(ask):
    """Has links be made by `ask`: it gives a descriptor for a service's name, and `""`; or `None`, and why there is none: kind and message."""
    _links.begin(ask)
