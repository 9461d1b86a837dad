//! A `wasi:http/proxy` component that answers as the benches' other servers do: "pong" to a GET, and the request's own
//! body to a POST; to a PUT with as many rounds of xorshift as its query says. It uses the bindings alone, without a framework around them.

use wasip2::{
    exports::http::incoming_handler::Guest,
    http::types::{
        Fields, IncomingRequest, Method, OutgoingBody, OutgoingResponse, ResponseOutparam,
    },
    io::streams::{OutputStream, StreamError},
};

struct Peer;

impl Guest for Peer {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let body = match request.method() {
            Method::Post => echo(request),
            Method::Put => work(&request),
            _ => b"pong\n".to_vec(),
        };
        let headers = Fields::new();
        let _ = headers.set("content-type", &[b"text/plain; charset=utf-8".to_vec()]);
        let _ = headers.set("content-length", &[body.len().to_string().into_bytes()]);
        let response = OutgoingResponse::new(headers);
        let Ok(outgoing) = response.body() else { return };
        ResponseOutparam::set(out, Ok(response));
        let Ok(stream) = outgoing.write() else { return };
        let written = write(&stream, &body);
        drop(stream);
        if written.is_ok() {
            let _ = OutgoingBody::finish(outgoing, None);
        }
    }
}

fn echo(request: IncomingRequest) -> Vec<u8> {
    let mut all = Vec::new();
    let Ok(body) = request.consume() else { return all };
    let Ok(stream) = body.stream() else { return all };
    while let Ok(piece) = stream.blocking_read(64 << 10) {
        all.extend(piece);
    }
    all
}

/// What `tests/guests/work.c` does with `?n=N`.
fn work(request: &IncomingRequest) -> Vec<u8> {
    let target = request.path_with_query().unwrap_or_default();
    let given = target.split_once("n=").map_or("", |(_, given)| given);
    let rounds: u64 = given.parse().unwrap_or(0);
    let mut state: u32 = 2_463_534_242;
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
    }
    format!("{state:08x}\n").into_bytes()
}

fn write(stream: &OutputStream, mut bytes: &[u8]) -> Result<(), StreamError> {
    let ready = stream.subscribe();
    while !bytes.is_empty() {
        let room = stream.check_write()?.min(bytes.len() as u64) as usize;
        if room == 0 {
            ready.block();
            continue;
        }
        let (now, later) = bytes.split_at(room);
        stream.write(now)?;
        bytes = later;
    }
    Ok(())
}

wasip2::http::proxy::export!(Peer);
