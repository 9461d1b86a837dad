"""One request, in a process of its own that was forked for it.

Whoever made the process sends one packet on its socket: `1` if it is the first that serves a request, and else `0`; a line of JSON; then the event unless it comes
in a file. With it come descriptors: `answer`, a socket on which this process answers; `log`, a file for what it writes; and the event's file, if it has one. The line's keys are those of
`Context`, `event_bytes` where there is a file, and `is_last` if this process serves no other request.

What it says on `answer` are packets whose first byte says what they are:

- `a`: a piece of the answer, and more to come;
- `A`: the last piece: all is said;
- `h`: before any piece: status and headers, in JSON;
- `s`: before any piece: it is an answer in pieces, each to go to the client at once;
- `E`: the function failed: Lambda's JSON;
- `B`: the request is not what the function takes: why;
- `c`: a link to the service of this name is wanted, by a fork if there is a blank and its number behind it; what comes of that, `millpond.backend` says.
"""

import json
import os
import sys

import _socket

from millpond import backend, native
from millpond import handler as handlers
from millpond.packets import receive

# Bytes of a packet: more than a socket has room for would wait for nothing.
_PIECE = 64 << 10
_DESCRIPTORS = 4


def serve(socket, handler, log, is_fork):
    """Serves requests, and ends this process. The first one tells what the import had to say: `log`."""
    status = 1
    try:
        native.enclose(not is_fork)
        _rehearse()
        socket.send(b"h")
        _serve(socket, handler, log)
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # There is nobody to tell but the log.
        sys.stderr.write(f"the runtime failed: {error!r}\n")
    finally:
        leave(status)


def leave(status):
    """Ends this process. Nothing that the function has registered for an exit runs in Lambda either."""
    _flush()
    os._exit(status & 0xFF)


def _rehearse():
    """Does what each request does, but for the function: the pages that this writes to are copied before anybody waits for it."""
    json.loads(json.dumps({"aws_request_id": "", "deadline": 0, "invoked_function_arn": ""}))
    handlers.installed_logging("")
    handlers.Context("", 0, "")
    handlers.encoded(handlers.event_of(b'{"a": [0, 0.5, "\\u00e9", true, null]}'))


def _flush():
    """What was written is to be in the log before the answer leaves: the process may end with that."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # The function may have closed it, or put something in its place.
            pass


def _serve(socket, handler, log):
    packet, descriptors = _heard(socket)
    if not packet:
        return
    socket.close()
    answer = _socket.socket(fileno=descriptors.pop(0))
    if packet[:1] == b"1":
        os.write(descriptors[0], log)
    while packet:
        _serve_one(answer, handler, packet[1:], descriptors)
        native.rest(answer.fileno())
        packet, descriptors = _heard(answer)


def _heard(socket):
    while True:
        packet, descriptors = receive(socket, 192 << 10, _socket.CMSG_SPACE(4 * _DESCRIPTORS))
        if not packet or packet[:1] in b"01":
            return packet, descriptors
        # A link for a process that has ended before it came.
        for descriptor in descriptors:
            os.close(descriptor)


def _serve_one(answer, handler, packet, descriptors):
    line, _, event = packet.partition(b"\n")
    about = json.loads(line)
    output, *files = descriptors
    # In a trace, links are for one request.
    backend.reach(answer, keeps="is_traced" not in about, is_last="is_last" in about)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    if "event_bytes" in about:
        event = _whole(files[0], about["event_bytes"])
        os.close(files[0])
    _reseed()
    if "trace" in about:
        os.environ["_X_AMZN_TRACE_ID"] = about["trace"]
    else:
        os.environ.pop("_X_AMZN_TRACE_ID", None)
    handlers.installed_logging(about["aws_request_id"])
    client = about.get("client_context")
    client = client and handlers.ClientContext.read(client)
    context = handlers.Context(about["aws_request_id"], about["deadline"], about["invoked_function_arn"], client)
    process = os.getpid()
    try:
        try:
            event = handlers.event_of(event)
        except ValueError as error:
            _say(answer, b"B", f"its body is not JSON: {error}".encode())
            return
        _answer(answer, handler.call(event, context), process)
    except handlers.Failed as failure:
        document = {**failure.document, "requestId": about["aws_request_id"]}
        _tell(document)
        _end_fork(process, 1)
        _say(answer, b"E", json.dumps(document).encode())


def _end_fork(process, status=0):
    """Whoever comes here is to answer. A process that the function has forked and let go on has done what it was for."""
    if os.getpid() != process:
        leave(status)


def _answer(answer, result, process):
    """Sends what the handler returned: what can be gone through piece by piece goes to the client so."""
    _end_fork(process)
    if hasattr(result, "__next__") or hasattr(result, "__anext__"):
        answer.send(b"s")
        for piece in _pieces(result):
            _end_fork(process)
            piece = piece.encode() if isinstance(piece, str) else bytes(piece)
            for begin in range(0, len(piece), _PIECE):
                answer.send(b"a" + piece[begin : begin + _PIECE])
        _end_fork(process)
        _flush()
        backend.settle()
        answer.send(b"A")
    else:
        _say(answer, b"A", handlers.encoded(result))


def _pieces(result):
    try:
        if hasattr(result, "__next__"):
            yield from result
        else:
            yield from _awaited(result)
    except Exception as error:
        raise handlers.failed(error) from None


def _awaited(result):
    import asyncio

    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(_next(result))
            except StopAsyncIteration:
                return


async def _next(result):
    return await result.__anext__()


def _say(answer, kind, document):
    """Sends `document`, of which the last packet says what it is."""
    _flush()
    backend.settle()
    cut = max(len(document) - 1, 0) // _PIECE * _PIECE
    for begin in range(0, cut, _PIECE):
        answer.send(b"a" + document[begin : begin + _PIECE])
    answer.send(kind + document[cut:])


def _tell(document):
    """Writes a failure to the log, as Lambda does."""
    trace = "".join(document.get("stackTrace", ()))
    sys.stdout.write(f"[ERROR] {document['errorType']}: {document['errorMessage']}\n")
    if trace:
        sys.stdout.write(f"Traceback (most recent call last):\n{trace}")


def _whole(file, length):
    pieces = []
    while length:
        piece = os.read(file, length)
        if not piece:
            raise EOFError("the event is cut off")
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _reseed():
    """The kernel's generator, `random` and OpenSSL see to it themselves; NumPy does not."""
    numpy = sys.modules.get("numpy.random")
    if numpy and not native.reseed():
        numpy.seed()


def learn():
    """Learns of NumPy what spares forks to go through it for that, if the import has left its generator as NumPy does."""
    numpy = sys.modules.get("numpy.random")
    try:
        kind, key, drawn, has_normal, _ = numpy.get_state()
        generator = numpy.get_bit_generator()
        # Normals are drawn in pairs, and the second would be every fork's.
        if kind == "MT19937" and not has_normal:
            native.know(generator, generator.capsule, key.tobytes(), int(drawn))
    except Exception:  # It is not there, or another version: forks seed it by its own functions.
        pass
