"""A component of `wasi:http/proxy`: `GET` greets, anything else gets its own body back."""

from componentize_py_types import Err, Ok
from wit_world import exports
from wit_world.imports.streams import OutputStream, StreamError_Closed
from wit_world.imports.types import Fields, IncomingRequest, Method_Get, OutgoingBody, OutgoingResponse, ResponseOutparam

# Bytes that are read and written at a time.
PIECE = 4096


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request: IncomingRequest, response_out: ResponseOutparam) -> None:
        response = OutgoingResponse(Fields.from_list([("content-type", b"text/plain; charset=utf-8")]))
        body = response.body()
        # From here on what is written goes to the client.
        ResponseOutparam.set(response_out, Ok(response))
        with body.write() as output:
            if isinstance(request.method(), Method_Get):
                output.blocking_write_and_flush(b"Hello from a component\n")
            else:
                echo(request, output)
        OutgoingBody.finish(body, None)


def echo(request: IncomingRequest, output: OutputStream) -> None:
    with request.consume() as body, body.stream() as stream:
        while True:
            try:
                piece = stream.blocking_read(PIECE)
            except Err as error:
                if isinstance(error.value, StreamError_Closed):
                    return
                raise
            output.blocking_write_and_flush(piece)
