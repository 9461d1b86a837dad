"""Answers one request: `answer` is yours, the rest brings the request in and the response out."""

import sys
from urllib.parse import urlsplit

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports.streams import StreamError_Closed
from wit_world.imports.types import Fields, IncomingRequest, Method_Other, OutgoingBody, OutgoingResponse, ResponseOutparam


def answer(method: str, path: str, query: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """The status, the headers and the body of the response."""
    name = body.decode(errors="replace").strip() or "world"
    # Standard error is the log.
    print(f"greeted {name}", file=sys.stderr)

    text = f'Hello, {name}!\nYou sent {method} to {path} with the query "{query}" and {len(body)} bytes.\n'
    return 200, {"content-type": "text/plain; charset=utf-8", "cache-control": "no-store"}, text.encode()


class IncomingHandler(exports.IncomingHandler):
    """The interface `wasi:http/incoming-handler`."""

    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        method = request.method()
        name = method.value if isinstance(method, Method_Other) else type(method).__name__.removeprefix("Method_").upper()
        url = urlsplit(request.path_with_query() or "/")
        status, headers, body = answer(name, url.path, url.query, read(request))

        response = OutgoingResponse(Fields.from_list([(name, value.encode()) for name, value in headers.items()]))
        response.set_status_code(status)
        outgoing = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        write(outgoing, body)


def read(request: IncomingRequest) -> bytes:
    """The whole body of the request."""
    pieces = bytearray()
    with request.consume() as body, body.stream() as stream:
        while True:
            try:
                pieces += stream.blocking_read(65536)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return bytes(pieces)
                raise


def write(outgoing: OutgoingBody, body: bytes) -> None:
    """Sends the whole body of the response, in pieces of the size that a stream takes at a time."""
    with outgoing.write() as stream:
        for at in range(0, len(body), 4096):
            stream.blocking_write_and_flush(body[at : at + 4096])
    OutgoingBody.finish(outgoing, None)
