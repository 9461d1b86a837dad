"""Calls of services, which the backend makes: this process has no network, and no credential.

A call's head and its reply's are short JSON; bodies are bytes that go through memory which this process and the backend share.
"""

import _thread
import json
import os

import _socket

from millpond import native
from millpond.packets import receive

# Bytes that are taken of a file at a time, to send them.
_PIECE = 8 << 20


class Failed(Exception):
    """No reply came, or no more of it.

    `kind` is one of `denied`, `target` (there is no such thing to be asked for), `credentials` (there is nobody as whom it could be asked for),
    `busy` and `unavailable` (nobody was asked: it may be tried again), `timeout` and `broken` (it may have been done or not), `lost` (the same, since the backend has gone meanwhile) and `damaged` (what
    came does not have its checksum). `data` is what was read of the body before.
    """

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.data = b""


class Reply:
    """What a service answers: `status`, `headers` (names in lower case, with their values), and a body of `length` bytes, `None` if that is not known."""

    def __init__(self, call):
        self._call = call
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
        try:
            while piece := self._take(1 << 20):
                pieces.append(piece)
        except Failed as failure:
            failure.data = b"".join([*pieces, failure.data])
            raise
        return b"".join(pieces)

    def readinto(self, buffer):
        """Fills `buffer` with the next bytes: how many. Raises `Failed` if the body breaks off."""
        return _heard(self._call.readinto, buffer) if self._call else 0

    def close(self):
        """Gives up what has not been read."""
        self._call = None

    def _take(self, n):
        data = _heard(self._call.read, n)
        if len(data) < n:
            # Its end, or it breaks off.
            try:
                _heard(self._call.read, 1)
            except Failed as failure:
                failure.data = data
                raise
        return data


def call(service, operation, target, parameters, body=b"", length=None, patience=None):
    """Has `service` do `operation` to `target` with `parameters`, pairs of names and values, and sends `body`: bytes, or something whose `read` gives
    `length` of them. For so many seconds of `patience` the reply may be waited for, and so may each piece of its body; `None` leaves that to the service.
    Returns the `Reply`; raises `Failed`."""
    head = {"operation": operation, "target": target, "parameters": parameters}
    if patience is not None:
        head["patience"] = head["pause"] = int(patience * 1000)
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
        return Reply(made)
    except ConnectionAbortedError as error:
        raise Failed("lost", str(error)) from None
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
    except ConnectionAbortedError as error:
        raise Failed("lost", str(error)) from None
    except RuntimeError as error:
        try:
            said = json.loads(str(error))
            kind, message = said["kind"], said["message"]
        except (ValueError, KeyError):
            kind, message = "broken", str(error)
        raise Failed(kind, message) from None


_NONE = (None, False)
_NOWHERE = (
    "no service is reached from here: neither between an import and a request, nor from a program that a function has started, nor from a process that is"
    " left of an earlier request, nor after one has ended while it asked for a link"
)


class _Links:
    """The links of this process, by their services. Each is made when it is first wanted, and anew when the backend was.

    Processes that the function forks make their own, and ask for them on the same socket, each in its turn. Shortly before a request or an import is over,
    nobody asks any more: what comes next on the socket is not for who has asked too late.
    """

    def __init__(self):
        # The links, with whether each may be kept for further requests.
        self._socket, self._known, self._process = None, {}, os.getpid()
        # Whether what they read may stay in the memory that is shared with the backend.
        self._is_last = False
        self._lock = _thread.allocate_lock()
        # Among processes, once there are several; and which this one is, if it is not the first.
        self._turns, self._number = None, b""
        # Whether there may be an answer to come that nobody waits for.
        self._is_owed = False

    def begin(self, socket, keeps, is_last):
        self.end(keeps)
        with self._lock:
            self._socket, self._is_owed, self._number = socket, False, b""
            self._is_last = is_last

    def end(self, keeps=False):
        is_silent = self.settle()
        with self._lock:
            known, self._known = self._known, {}
            for service, (link, lasts) in known.items():
                if keeps and lasts:
                    self._known[service] = link, lasts
                else:
                    link.close()
        return is_silent

    def settle(self):
        with self._lock:
            turns, self._socket, self._turns = self._turns, None, None
            if turns and not turns.close():
                self._is_owed = True
            return not self._is_owed

    def get(self, service):
        link, _ = self._known.get(service, _NONE)
        if link is not None and not link.is_gone:
            return link
        if self._process != os.getpid():
            raise Failed("unavailable", "there are no services in a process that was forked past Python")
        with self._lock:
            link, _ = self._known.get(service, _NONE)
            if link is None or link.is_gone:
                link, _ = self._known[service] = self._made(service)
            return link

    def _made(self, service):
        if self._socket is None or self._is_owed:
            raise Failed("unavailable", _NOWHERE)
        if self._turns and not self._turns.take():
            raise Failed("unavailable", _NOWHERE)
        self._is_owed = True
        try:
            self._socket.send(b"c" + service.encode() + self._number)
            packet, descriptors = receive(self._socket, 4096, _socket.CMSG_SPACE(4))
            self._is_owed = False
        except OSError as error:
            raise Failed("unavailable", f"no link to the backend: {error}") from None
        finally:
            if self._turns:
                self._turns.give(not self._is_owed)
        if packet[:1] == b"n":
            raise Failed(*packet[1:].decode().split(" ", 1))
        if not descriptors:
            raise Failed("unavailable", "no descriptor is left for a link to the backend")
        try:
            return native.Link(descriptors[0], self._is_last), packet == b"k"
        except OSError as error:
            raise Failed("unavailable", f"no link to the backend: {error}") from None

    def before_fork(self):
        # Whoever asks has had its answer by then.
        self._lock.acquire()
        if self._socket is not None and self._turns is None:
            from millpond.turns import Turns

            self._turns = Turns()

    def after_fork(self):
        self._lock.release()

    def in_fork(self):
        # Links are of the process that has made them.
        self._known, self._process, self._lock = {}, os.getpid(), _thread.allocate_lock()
        if self._turns is None:
            self._socket = None
        else:
            self._number = b" %d" % self._process


_links = _Links()
os.register_at_fork(before=_links.before_fork, after_in_parent=_links.after_fork, after_in_child=_links.in_fork)


def reach(socket, keeps=False, is_last=False):
    """Has links be asked for on `socket`: `c` and a service's name, in a fork with a blank and its process's number; what comes is `c` or `k` with the link's socket, or `n` and why there is none: a kind
    of failure, a blank, and in words. Those before it end, but for those that came with `k` if it `keeps` them. What is read need not be freed if it `is_last` what this process does: nobody shares its memory, and none
    comes after it."""
    _links.begin(socket, keeps, is_last)


def settle():
    """Has no more links be asked for, in this process and in its forks, until there is another socket to `reach` them by: whether nothing will come on
    this one that was asked for before."""
    return _links.settle()


def leave():
    """Ends all links. Says what `settle` does."""
    return _links.end()
