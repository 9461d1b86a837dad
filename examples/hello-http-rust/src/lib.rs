//! A component of `wasi:http/proxy`: `GET` greets, anything else gets its own body back.

use wasip2::{
    exports::http::incoming_handler::Guest,
    http::types::{Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam},
    io::streams::StreamError,
};

/// Bytes that are read and written at a time.
const PIECE: u64 = 4096;

struct Hello;

impl Guest for Hello {
    fn handle(request: IncomingRequest, outparam: ResponseOutparam) {
        let headers = Fields::new();
        let _ = headers.append("content-type", b"text/plain; charset=utf-8");
        let response = OutgoingResponse::new(headers);
        let Ok(body) = response.body() else { return };
        // From here on what is written goes to the client.
        ResponseOutparam::set(outparam, Ok(response));
        if let Ok(output) = body.write() {
            let written = match request.method() {
                Method::Get => output.blocking_write_and_flush(b"Hello from a component\n"),
                _ => echo(&request, &output),
            };
            if let Err(error) = written {
                eprintln!("the response broke off: {error}");
            }
        }
        let _ = OutgoingBody::finish(body, None);
    }
}

fn echo(request: &IncomingRequest, output: &wasip2::io::streams::OutputStream) -> Result<(), StreamError> {
    let Ok(body) = request.consume() else {
        return Ok(());
    };
    let Ok(input) = body.stream() else {
        return Ok(());
    };
    loop {
        match input.blocking_read(PIECE) {
            Ok(bytes) => output.blocking_write_and_flush(&bytes)?,
            Err(StreamError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

wasip2::http::proxy::export!(Hello);
