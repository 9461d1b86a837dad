"""The zygote of a function's version: it imports the handler's module once, and forks a fresh process for each request.

It is started confined, with two descriptors: `CONTROL`, a socket to the process that started it, and its standard error, a file that it alone
has. On `CONTROL` it asks for links to services while it imports (`millpond.backend`), says `r` once it is ready, whether the import went well or not, and is asked to fork with `f`: with a socket for the process to
come, which says `h` on it when it is there. What that process does is `millpond.request`'s.
"""

import gc
import os
import sys

import _socket

from millpond import backend, native, request
from millpond.handler import Handler, installed_logging
from millpond.packets import receive

CONTROL = 3
# A packet of `CONTROL` has one byte, and one descriptor at most.
_ANCILLARY = _socket.CMSG_SPACE(4)


def main():
    """Imports what `_HANDLER` names, and serves until whoever started it has gone."""
    control = _socket.socket(fileno=CONTROL)
    os.chdir(os.environ["LAMBDA_TASK_ROOT"])
    installed_logging()
    backend.reach(control)
    handler = Handler(os.environ["_HANDLER"])
    # A fork shares nothing with another one.
    backend.leave()
    log = _log_of_import()
    # What is there now is nobody's garbage, and a collection in a fork would only copy its pages.
    gc.collect()
    gc.freeze()
    control.send(b"r")
    while True:
        packet, descriptors = receive(control, 1, _ANCILLARY)
        if not packet:
            return
        socket = _socket.socket(fileno=descriptors[0])
        try:
            if native.fork() == 0:
                control.close()
                request.serve(socket, handler, log)
        except OSError as error:
            # That the socket is closed tells who asked.
            sys.stderr.write(f"no process can be forked: {error}\n")
        socket.close()


def _log_of_import():
    sys.stdout.flush()
    sys.stderr.flush()
    return os.pread(2, 1 << 20, 0)


if __name__ == "__main__":
    main()
