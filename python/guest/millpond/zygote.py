"""The zygote of a function's version: it imports the handler's module once, and forks a fresh process for each request.

It is started confined, with two descriptors: `CONTROL`, a socket to the process that started it, and its standard error, a file that it alone
has. On `CONTROL` it asks for links to services while it imports (`millpond.backend`), says `r` once it is ready, whether the import went well or not, and is asked to fork with `f`: with a socket for the process to
come, which says `h` on it when it is there. What that process does is `millpond.request`'s.

If the import has started threads, it is asked with `s` to serve one request by itself, in place of a fork.
"""

import gc
import os
import sys

import _socket

# First: nothing else is to import `threading` or `logging` before.
from millpond import forks  # isort: skip
from millpond import backend, native, network, request
from millpond.handler import Handler, installed_logging

CONTROL = 3


def main():
    """Imports what `_HANDLER` names, and serves until whoever started it has gone."""
    control = _socket.socket(fileno=CONTROL)
    os.environ.pop("LD_BIND_NOW", None)
    native.gather()
    os.chdir(os.environ["LAMBDA_TASK_ROOT"])
    installed_logging()
    network.tell()
    backend.reach(control)
    process = os.getpid()
    handler = Handler(os.environ["_HANDLER"])
    if os.getpid() != process:
        # A fork of the function's, which has imported to the end.
        request.leave(0)
    # A fork shares nothing with another one.
    if not backend.leave():
        sys.exit("a process that the import has forked ended while it asked for a service")
    log = _log_of_import()
    request.learn()
    # What is there now is nobody's garbage, and a collection in a fork would only copy its pages.
    gc.collect()
    gc.freeze()
    control.send(b"r")
    order, descriptor = forks.of_zygote(lambda: native.obey(CONTROL))
    if descriptor is None:
        return
    control.close()
    request.serve(_socket.socket(fileno=descriptor), handler, log, is_fork=order == ord("f"))


def _log_of_import():
    sys.stdout.flush()
    sys.stderr.flush()
    return os.pread(2, 1 << 20, 0)


if __name__ == "__main__":
    main()
