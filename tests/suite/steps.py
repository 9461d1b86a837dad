"""What is said to an S3 server and what it says, step by step: a proxy in front of a real one, which has something done when a step is there.

Each step is before what it names goes on: a connection, a request's head, each piece of its body, the answer's head, each piece of its body,
and the end of both. Pieces are cut by their lengths, whatever TCP makes of them, so an operation has the same steps each time.
"""

import contextlib
import socket
import threading

from lying import Lost, reset

PIECE = 1 << 20


class Steps:
    """Listens on loopback, and hands on to the server at `port`, as long as it is there."""

    def __init__(self, port):
        self._port, self._lock = port, threading.Condition()
        self._at, self._act, self._passed, self._under_way, self._acts, self._failed = None, None, [], 0, False, None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self):
        # Wakes the thread that listens.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def watch(self, at, act):
        """Has `act` called at the step of this number from now on, once, before anything more of its conversation is handed on."""
        with self._lock:
            self._at, self._act, self._passed, self._failed = at, act, [], None

    def passed(self):
        """The steps since then, once what was to be done at one has been. Nothing is done at any other now."""
        with self._lock:
            self._act = None
            self._lock.wait_for(lambda: not self._acts)
            if self._failed:
                raise self._failed
            return self._passed

    @property
    def under_way(self):
        """Requests that are neither answered nor given up."""
        with self._lock:
            return self._under_way

    def _step(self, name):
        with self._lock:
            act = self._act if len(self._passed) == self._at else None
            self._passed.append(name)
            self._acts |= act is not None
        if act:
            failed = None
            try:
                act()
            except Exception as error:
                failed = error
            with self._lock:
                self._acts, self._failed = False, failed
                self._lock.notify_all()

    def _listen(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, near):
        with near, contextlib.suppress(Lost, OSError):
            try:
                self._step("connection")
                with socket.create_connection(("127.0.0.1", self._port)) as far, near.makefile("rb") as asked, far.makefile("rb") as answered:
                    while self._hand_on(near, far, asked, answered):
                        pass
            except ConnectionError:
                # As a server does that is no more.
                reset(near)

    def _hand_on(self, near, far, asked, answered):
        """One request and its answer. Says whether there may be another."""
        line, fields, head = read_head(asked)
        if not head:
            return False
        with self._lock:
            self._under_way += 1
        try:
            self._step(f"asked: {line.rpartition(' ')[0].partition('?')[0]}")
            far.sendall(head)
            self._body(asked, fields, far, "asked")
            status, answer, head = read_head(answered)
            if not head:
                raise ConnectionResetError
            self._step(f"answered: {status.split()[1]}")
            near.sendall(head)
            if not line.startswith("HEAD ") and status.split()[1] not in ("204", "304"):
                self._body(answered, answer, near, "answered")
            self._step("end")
        finally:
            with self._lock:
                self._under_way -= 1
        return answer.get("connection", "").lower() != "close"

    def _body(self, file, fields, to, name):
        if fields.get("transfer-encoding") == "chunked":
            while True:
                line = file.readline()
                data = line + read(file, int(line or b"0", 16) + 2)
                self._step(f"{name}: a chunk")
                to.sendall(data)
                if line in (b"0\r\n", b""):
                    return
        left = int(fields.get("content-length", 0))
        while left:
            data = read(file, min(left, PIECE))
            left -= len(data)
            self._step(f"{name}: a piece")
            to.sendall(data)


def read_head(file):
    """The first line, the fields, and all of it as it came; nothing if there is none."""
    lines = []
    while (line := file.readline()) not in (b"\r\n", b""):
        lines.append(line)
    if not line:
        if lines:
            raise ConnectionResetError
        return "", {}, b""
    fields = (field.decode().partition(":") for field in lines[1:])
    return lines[0].decode().strip(), {name.lower(): value.strip() for name, _, value in fields}, b"".join([*lines, line])


def read(file, count):
    data = file.read(count)
    if len(data) < count:
        raise ConnectionResetError
    return data
