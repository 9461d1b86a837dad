//! An HTTP component that asks S3 for whatever it is asked for, and answers what S3 does: with method, path, body and most fields as they are. With the field
//! `x-length`, it says how long its body is; with `x-address`, it names a host, which is S3's own business.

use wasip2::{
    exports::http::incoming_handler::Guest,
    http::types::{
        ErrorCode, Fields, IncomingBody, IncomingRequest, OutgoingBody, OutgoingRequest,
        OutgoingResponse, ResponseOutparam,
    },
    io::streams::{InputStream, OutputStream, StreamError},
};

mod s3 {
    wit_bindgen::generate!({
        path: ["../../../crates/cli/templates/js-http/wit/proxy.wit", "../../../wit/s3.wit"],
        world: "millpond:s3/uses-objects",
        with: {
            "wasi:http/types@0.2.10": wasip2::http::types,
            "wasi:io/streams@0.2.10": wasip2::io::streams,
            "wasi:io/error@0.2.10": wasip2::io::error,
            "wasi:io/poll@0.2.10": wasip2::io::poll,
            "wasi:clocks/monotonic-clock@0.2.10": wasip2::clocks::monotonic_clock,
        },
    });
}

struct Component;

impl Guest for Component {
    fn handle(request: IncomingRequest, outparam: ResponseOutparam) {
        match ask(&request) {
            Ok(response) => {
                let headers = response.headers().clone();
                // Those of the connection are not its to say.
                for name in ["connection", "transfer-encoding", "date", "server", "keep-alive"] {
                    let _ = headers.delete(name);
                }
                let answer = OutgoingResponse::new(headers);
                answer.set_status_code(response.status()).expect("it is a status");
                let body = answer.body().expect("its body");
                ResponseOutparam::set(outparam, Ok(answer));
                let coming = response.consume().expect("its body");
                let stream = coming.stream().expect("its stream");
                if pass(&stream, &body.write().expect("its stream")).is_ok() {
                    OutgoingBody::finish(body, None).expect("it is finished");
                }
            }
            Err(error) => {
                let answer = OutgoingResponse::new(Fields::new());
                answer.set_status_code(502).expect("it is a status");
                let body = answer.body().expect("its body");
                ResponseOutparam::set(outparam, Ok(answer));
                let stream = body.write().expect("its stream");
                stream
                    .blocking_write_and_flush(format!("{error:?}").as_bytes())
                    .expect("it is written");
                drop(stream);
                OutgoingBody::finish(body, None).expect("it is finished");
            }
        }
    }
}

fn ask(request: &IncomingRequest) -> Result<wasip2::http::types::IncomingResponse, ErrorCode> {
    let fields = Fields::new();
    for (name, value) in request.headers().entries() {
        if name.starts_with("x-amz-")
            || name.starts_with("x-millpond-")
            || ["range", "content-type"].contains(&&*name)
        {
            fields.append(&name, &value).expect("it is a field");
        }
    }
    // The node keeps to itself how long what it gives is.
    for length in request.headers().get("x-length") {
        fields.append("content-length", &length).expect("it is a field");
    }
    let names_host = request.headers().has("x-address");
    let asked = OutgoingRequest::new(fields);
    asked.set_method(&request.method()).expect("it is a method");
    // Behind `/function/APPLICATION.FUNCTION`.
    let target = request.path_with_query().expect("it has a path");
    let path = target.splitn(4, '/').nth(3).expect("it names a bucket");
    asked
        .set_path_with_query(Some(&format!("/{path}")))
        .expect("it is a path");
    if names_host {
        asked
            .set_authority(Some("s3.example.org"))
            .expect("it is an authority");
    }
    let body = asked.body().expect("its body");
    let reply = s3::millpond::s3::objects::handle(asked, None)?;
    let coming: IncomingBody = request.consume().expect("its body");
    let stream = coming.stream().expect("its stream");
    // A reply before the end of what is sent has the rest be dropped.
    if pass(&stream, &body.write().expect("its stream")).is_ok() {
        let _ = OutgoingBody::finish(body, None);
    }
    reply.subscribe().block();
    reply.get().expect("it is there").expect("it is taken once")
}

/// All of one into the other: an error if either breaks off.
fn pass(from: &InputStream, to: &OutputStream) -> Result<(), StreamError> {
    loop {
        match from.blocking_read(1 << 16) {
            Ok(piece) => {
                for part in piece.chunks(4096) {
                    to.blocking_write_and_flush(part)?;
                }
            }
            Err(StreamError::Closed) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

wasip2::http::proxy::export!(Component);
