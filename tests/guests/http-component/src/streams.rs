//! Bodies that are read and written as they come.

use wasip2::{
    clocks::monotonic_clock,
    http::{
        outgoing_handler,
        types::{
            ErrorCode, Fields, IncomingBody, IncomingRequest, IncomingResponse, OutgoingBody,
            OutgoingRequest, OutgoingResponse, RequestOptions, ResponseOutparam, Scheme, http_error_code,
        },
    },
    io::{
        poll,
        streams::{InputStream, OutputStream, StreamError},
    },
};

const PIECE: u64 = 64 << 10;

pub(crate) fn handle(manner: &str, query: &str, request: &IncomingRequest, outparam: ResponseOutparam) {
    let number = query.parse::<u64>().unwrap_or(0);
    match manner {
        // What came, trailers included.
        "echo" => respond(outparam, None, |to| {
            let body = request.consume().expect("its body");
            let from = body.stream().expect("its stream");
            while let Some(piece) = next(&from) {
                put(to, &piece);
            }
            drop(from);
            trailers(body)
        }),
        // The same without blocking calls, and with the length that the request had.
        "poll" => {
            let length = request.headers().get("content-length").pop();
            respond(outparam, length, |to| {
                let body = request.consume().expect("its body");
                let from = body.stream().expect("its stream");
                pump(&from, to);
                drop(from);
                trailers(body)
            });
        }
        // `splice` in place of a read and a write.
        "splice" => respond(outparam, None, |to| {
            let body = request.consume().expect("its body");
            let from = body.stream().expect("its stream");
            while to.blocking_splice(&from, PIECE).is_ok() {}
            drop(from);
            trailers(body)
        }),
        // A greeting, and then what came.
        "greet" => respond(outparam, None, |to| {
            put(to, b"hello\n");
            let body = request.consume().expect("its body");
            let from = body.stream().expect("its stream");
            while let Some(piece) = next(&from) {
                put(to, &piece);
            }
            None
        }),
        // How long it was.
        "count" => respond(outparam, None, |to| {
            let body = request.consume().expect("its body");
            let from = body.stream().expect("its stream");
            let mut count = 0;
            while let Some(piece) = next(&from) {
                count += piece.len();
            }
            put(to, count.to_string().as_bytes());
            None
        }),
        // As many bytes as the query says.
        "long" => respond(outparam, None, |to| {
            let piece = vec![b'x'; PIECE as usize];
            let mut left = number;
            while left > 0 {
                let length = left.min(PIECE);
                put(to, &piece[..length as usize]);
                left -= length;
            }
            None
        }),
        // As many lines, each after a wait.
        "ticks" => respond(outparam, None, |to| {
            for tick in 0..number {
                put(to, format!("tick {tick}\n").as_bytes());
                monotonic_clock::subscribe_duration(1_000_000).block();
            }
            None
        }),
        // A line, and then computing without an end.
        "spin" => respond(outparam, None, |to| {
            put(to, b"before\n");
            to.blocking_flush().expect("it is flushed");
            loop {
                std::hint::spin_loop();
            }
        }),
        // Without reading what was sent.
        "early" => respond(outparam, None, |to| {
            put(to, b"enough");
            None
        }),
        // So many bytes, and then a trap.
        "cut" => respond(outparam, None, |to| {
            put(to, &vec![b'x'; number as usize]);
            std::process::abort();
        }),
        // Fewer than it says.
        "short" => respond(outparam, Some(b"1000000".to_vec()), |to| {
            put(to, &[b'x'; 200_000]);
            None
        }),
        // More than it says.
        "over" => respond(outparam, Some(b"1000".to_vec()), |to| {
            put(to, &[b'x'; 200_000]);
            None
        }),
        // Reads until it is told why there is no more.
        "broken" => {
            let body = request.consume().expect("its body");
            let from = body.stream().expect("its stream");
            loop {
                match from.blocking_read(PIECE) {
                    Ok(_) => {}
                    Err(StreamError::Closed) => panic!("it ended well"),
                    Err(StreamError::LastOperationFailed(error)) => {
                        eprintln!("broken: {}", error.to_debug_string());
                        return respond(outparam, None, |_| None);
                    }
                }
            }
        }
        // The reply of whoever the query names, to the same request; or why there is none.
        "fetch" => match fetch(query, request) {
            Ok(reply) => pass(&reply, outparam),
            Err(error) => {
                let text = format!("{error:?}");
                let response = OutgoingResponse::new(Fields::new());
                response.set_status_code(502).expect("it is a status");
                let body = response.body().expect("its body");
                ResponseOutparam::set(outparam, Ok(response));
                let stream = body.write().expect("its stream");
                put(&stream, text.as_bytes());
                drop(stream);
                OutgoingBody::finish(body, None).expect("it is finished");
            }
        },
        // How the body of that reply broke off.
        "cause" => respond(outparam, None, |to| {
            let reply = fetch(query, request).expect("it begins");
            let body = reply.consume().expect("its body");
            let from = body.stream().expect("its stream");
            let cause = loop {
                match from.blocking_read(PIECE) {
                    Ok(_) => {}
                    Err(StreamError::Closed) => break "nothing".to_owned(),
                    Err(StreamError::LastOperationFailed(error)) => {
                        break format!("{:?}", http_error_code(&error));
                    }
                }
            };
            put(to, cause.as_bytes());
            None
        }),
        // The replies of whoever the query names, asked as often at once.
        "many" => respond(outparam, None, |to| {
            let (count, target) = query.split_once(',').expect("how often, and whom");
            let count = count.parse::<usize>().expect("a number");
            let sent: Vec<_> = (0..count)
                .map(|number| {
                    send(&format!("{target}?{number}"), request)
                        .expect("it is sent")
                        .0
                })
                .collect();
            for (number, sent) in sent.iter().enumerate() {
                sent.subscribe().block();
                let reply = sent
                    .get()
                    .expect("it is here")
                    .expect("once")
                    .expect("it is good");
                put(to, format!("{number}: {}\n", reply.status()).as_bytes());
            }
            None
        }),
        other => panic!("there is no manner `{other}`"),
    }
}

fn respond(
    outparam: ResponseOutparam,
    length: Option<Vec<u8>>,
    write: impl FnOnce(&OutputStream) -> Option<Fields>,
) {
    let fields = Fields::new();
    fields
        .append("content-type", b"application/octet-stream")
        .expect("it is allowed");
    if let Some(length) = length {
        fields.append("content-length", &length).expect("it is allowed");
    }
    let response = OutgoingResponse::new(fields);
    let body = response.body().expect("its body");
    ResponseOutparam::set(outparam, Ok(response));
    let stream = body.write().expect("its stream");
    let trailers = write(&stream);
    drop(stream);
    // It fails where the length is not what was said, which the host answers for.
    let _ = OutgoingBody::finish(body, trailers);
}

fn next(from: &InputStream) -> Option<Vec<u8>> {
    match from.blocking_read(PIECE) {
        Ok(piece) => {
            assert!(!piece.is_empty(), "it blocks until there is something");
            Some(piece)
        }
        Err(StreamError::Closed) => None,
        Err(error) => panic!("reading failed: {error}"),
    }
}

fn put(to: &OutputStream, bytes: &[u8]) {
    for piece in bytes.chunks(4096) {
        to.blocking_write_and_flush(piece).expect("it is written");
    }
}

fn pump(from: &InputStream, to: &OutputStream) {
    let (readable, writable) = (from.subscribe(), to.subscribe());
    loop {
        poll::poll(&[&writable]);
        let room = to.check_write().expect("somebody reads");
        if room == 0 {
            continue;
        }
        match from.read(room) {
            Ok(piece) if piece.is_empty() => {
                readable.block();
            }
            Ok(piece) => to.write(&piece).expect("there was room"),
            Err(StreamError::Closed) => return,
            Err(error) => panic!("reading failed: {error}"),
        }
    }
}

/// What came behind a body, as trailers to send.
fn trailers(body: IncomingBody) -> Option<Fields> {
    let future = IncomingBody::finish(body);
    let ready = future.subscribe();
    loop {
        if let Some(result) = future.get() {
            let trailers = result.expect("it is asked once").expect("they came");
            return trailers.map(|trailers| {
                let copy = Fields::new();
                for (name, value) in trailers.entries() {
                    copy.append(&name, &value).expect("it is allowed");
                }
                copy
            });
        }
        ready.block();
    }
}

type Sent = (wasip2::http::types::FutureIncomingResponse, Option<OutgoingBody>);

/// Sends a request like this one, of which the body is yet to be written. `X-Patience` and `X-Pause` say how long its reply and
/// the pieces of that may take, in nanoseconds; with `X-Fresh` its trace context is not passed on.
fn send(target: &str, like: &IncomingRequest) -> Result<Sent, ErrorCode> {
    let (scheme, rest) = target.split_once("://").expect("an absolute URI");
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let fields = Fields::new();
    for (name, value) in like.headers().entries() {
        if like.headers().has("x-fresh") && name.starts_with("trace") {
            continue;
        }
        // Those of the connection are refused.
        let _ = fields.append(&name, &value);
    }
    let request = OutgoingRequest::new(fields);
    request.set_method(&like.method()).expect("it is a method");
    request
        .set_scheme(Some(&match scheme {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => Scheme::Other(other.to_owned()),
        }))
        .expect("it is a scheme");
    request
        .set_authority(Some(authority))
        .expect("it is an authority");
    request
        .set_path_with_query((!path.is_empty()).then_some(path))
        .expect("it is a path");
    let bodies = like.headers().has("content-length") || like.headers().has("x-body");
    let body = bodies.then(|| request.body().expect("its body"));
    let said = |name: &str| {
        let value = like.headers().get(name).pop()?;
        Some(String::from_utf8(value).expect("text").parse().expect("a number"))
    };
    let (patience, pause) = (said("x-patience"), said("x-pause"));
    let options = (patience.is_some() || pause.is_some()).then(|| {
        let options = RequestOptions::new();
        options.set_first_byte_timeout(patience).expect("it is known");
        options.set_between_bytes_timeout(pause).expect("it is known");
        options
    });
    Ok((outgoing_handler::handle(request, options)?, body))
}

fn fetch(target: &str, request: &IncomingRequest) -> Result<IncomingResponse, ErrorCode> {
    let (reply, body) = send(target, request)?;
    if let Some(to) = body {
        let from = request.consume().expect("its body");
        let (source, sink) = (
            from.stream().expect("its stream"),
            to.write().expect("its stream"),
        );
        while let Some(piece) = next(&source) {
            for part in piece.chunks(4096) {
                if sink.blocking_write_and_flush(part).is_err() {
                    break;
                }
            }
        }
        drop((source, sink));
        OutgoingBody::finish(to, trailers(from))?;
    }
    reply.subscribe().block();
    reply.get().expect("it is here").expect("it is asked once")
}

/// Answers with what somebody else has answered.
fn pass(reply: &IncomingResponse, outparam: ResponseOutparam) {
    let fields = Fields::new();
    for (name, value) in reply.headers().entries() {
        let _ = fields.append(&name, &value);
    }
    let response = OutgoingResponse::new(fields);
    response.set_status_code(reply.status()).expect("it is a status");
    let to = response.body().expect("its body");
    ResponseOutparam::set(outparam, Ok(response));
    let body = reply.consume().expect("its body");
    let (from, sink) = (
        body.stream().expect("its stream"),
        to.write().expect("its stream"),
    );
    while let Some(piece) = next(&from) {
        put(&sink, &piece);
    }
    drop((from, sink));
    // A HEAD's reply has the length of what it leaves out.
    let _ = OutgoingBody::finish(to, trailers(body));
}
