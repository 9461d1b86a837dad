//! An HTTP component that does what the last word of its path says, if that begins with `stream-`, or else the first word of
//! its request's body.

mod streams;

use std::sync::atomic::{AtomicU32, Ordering};
use wasip2::{
    clocks::monotonic_clock,
    exports::http::incoming_handler::Guest,
    http::{
        outgoing_handler,
        types::{
            ErrorCode, Fields, IncomingRequest, OutgoingBody, OutgoingRequest, OutgoingResponse,
            ResponseOutparam, Scheme,
        },
    },
    io::streams::StreamError,
    random::random,
};

static CALLS: AtomicU32 = AtomicU32::new(0);
/// Zero in a new instance.
static SCRATCH: [AtomicU32; 64 << 10] = [const { AtomicU32::new(0) }; 64 << 10];

struct Component;

impl Guest for Component {
    fn handle(request: IncomingRequest, outparam: ResponseOutparam) {
        let target = request.path_with_query().unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        if let Some((_, manner)) = path.rsplit_once("/stream-") {
            return streams::handle(manner, query, &request, outparam);
        }
        let asked = String::from_utf8(read(&request)).expect("the tests send text");
        let calls = CALLS.fetch_add(1, Ordering::Relaxed) + 1;
        match asked.split_whitespace().next().unwrap_or_default() {
            "count" => answer(outparam, 200, &format!("{calls}")),
            "trace" => answer(outparam, 200, &trace(calls, &asked)),
            "echo" => answer(outparam, 200, &asked),
            "describe" => answer(outparam, 201, &describe(&request)),
            "fields" => answer(outparam, 200, &fields(&request)),
            "outgoing" => answer(outparam, 200, &outgoing()),
            "sleep" => {
                monotonic_clock::subscribe_duration(20_000_000).block();
                answer(outparam, 200, "slept");
            }
            "random" => answer(outparam, 200, &format!("{}", random::get_random_bytes(32).len())),
            "endless" => loop {
                std::hint::spin_loop();
            },
            "trap" => std::process::abort(),
            "grow" => {
                let all: Vec<Vec<u8>> = (0..100).map(|_| vec![1; 1 << 20]).collect();
                answer(outparam, 200, &format!("{}", all.len()));
            }
            "flood" => answer(outparam, 200, &"x".repeat(5 << 20)),
            "hoard" => {
                let all: Vec<Fields> = (0..1_000_000).map(|_| Fields::new()).collect();
                answer(outparam, 200, &format!("{}", all.len()));
            }
            "fatten" => {
                let fields = Fields::new();
                while fields.append("x", &[b'a'; 60_000]).is_ok() {}
                answer(outparam, 200, "it has an end");
            }
            "nothing" => drop(outparam),
            "error" => ResponseOutparam::set(outparam, Err(ErrorCode::ConfigurationError)),
            "unfinished" => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("its body");
                ResponseOutparam::set(outparam, Ok(response));
                drop(body);
            }
            "crumbs" => {
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("its body");
                ResponseOutparam::set(outparam, Ok(response));
                let stream = body.write().expect("its stream");
                for n in 0..200_000_u32 {
                    stream.write(&[b'0' + (n % 10) as u8]).expect("it is written");
                    stream.write(&[]).expect("nothing is written");
                }
                drop(stream);
                OutgoingBody::finish(body, None).expect("it is finished");
            }
            "late" => {
                // The body is written before the response is set.
                let response = OutgoingResponse::new(Fields::new());
                let body = response.body().expect("its body");
                write(&body, "written early");
                ResponseOutparam::set(outparam, Ok(response));
                OutgoingBody::finish(body, Some(Fields::new())).expect("it is finished");
            }
            "short" => {
                let fields = Fields::new();
                fields.append("content-length", b"10").expect("it is allowed");
                let response = OutgoingResponse::new(fields);
                let body = response.body().expect("its body");
                ResponseOutparam::set(outparam, Ok(response));
                write(&body, "1234");
                let finished = OutgoingBody::finish(body, None);
                assert!(matches!(finished, Err(ErrorCode::HttpResponseBodySize(Some(4)))));
            }
            other => answer(outparam, 404, other),
        }
    }
}

/// What of an earlier request can be seen here; and then leaves traces of its own, others for each number.
fn trace(calls: u32, asked: &str) -> String {
    let number: usize = asked.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let dirty = SCRATCH.iter().filter(|word| word.load(Ordering::Relaxed) != 0).count();
    let mut fields: Vec<_> = (0..8).map(|_| Fields::new()).collect();
    let handles: Vec<_> = fields.iter().map(Fields::handle).collect();
    for n in 0..number % 40 {
        SCRATCH[(n * number * 1_031) % SCRATCH.len()].store(1, Ordering::Relaxed);
    }
    for n in 0..8 {
        drop(fields.swap_remove((number / (n + 1)) % fields.len()));
    }
    if number % 13 == 12 {
        std::mem::forget(Fields::new());
    }
    if number % 17 == 16 {
        std::hint::black_box(Vec::leak(vec![1_u8; 3 << 20]));
    }
    format!("{calls} {dirty} {handles:?}")
}

fn read(request: &IncomingRequest) -> Vec<u8> {
    let body = request.consume().expect("its body");
    assert!(request.consume().is_err(), "a body is consumed once");
    let stream = body.stream().expect("its stream");
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(1 << 16) {
            Ok(piece) => bytes.extend(piece),
            Err(StreamError::Closed) => return bytes,
            Err(error) => panic!("reading failed: {error}"),
        }
    }
}

fn write(body: &OutgoingBody, text: &str) {
    let stream = body.write().expect("its stream");
    for piece in text.as_bytes().chunks(4096) {
        stream.blocking_write_and_flush(piece).expect("it is written");
    }
}

fn answer(outparam: ResponseOutparam, status: u16, text: &str) {
    let fields = Fields::new();
    fields
        .append("content-type", b"text/plain")
        .expect("it is allowed");
    fields.append("x-guest", b"yes").expect("it is allowed");
    let response = OutgoingResponse::new(fields);
    response.set_status_code(status).expect("it is a status");
    let body = response.body().expect("its body");
    ResponseOutparam::set(outparam, Ok(response));
    write(&body, text);
    OutgoingBody::finish(body, None).expect("it is finished");
}

fn describe(request: &IncomingRequest) -> String {
    format!(
        "{:?} {:?} {:?} {:?} {:?}",
        request.method(),
        request.scheme(),
        request.path_with_query(),
        request.authority(),
        request.headers().get("x-suite"),
    )
}

/// What becomes of header fields that are not allowed.
fn fields(request: &IncomingRequest) -> String {
    let fields = Fields::new();
    format!(
        "{:?} {:?} {:?}",
        fields.append("connection", b"close"),
        fields.append("a b", b"c"),
        request.headers().append("x", b"y"),
    )
}

fn outgoing() -> String {
    let request = OutgoingRequest::new(Fields::new());
    request.set_scheme(Some(&Scheme::Https)).expect("it is a scheme");
    request
        .set_authority(Some("example.org"))
        .expect("it is an authority");
    request.set_path_with_query(Some("/")).expect("it is a path");
    match outgoing_handler::handle(request, None) {
        Ok(_) => "sent".to_owned(),
        Err(error) => format!("{error:?}"),
    }
}

wasip2::http::proxy::export!(Component);
