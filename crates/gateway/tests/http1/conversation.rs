//! A server of no sockets: bytes in pieces, and a line of text that says what a connection loop would make of them.

use contract::RequestId;
use gateway::http1::{ChunkDecoder, Framing, Limits, Parsed, Reject, RequestHead, parse};

/// The most bytes of a chunked body.
pub(crate) const BODY_LIMIT: u64 = 1024;

enum Stage {
    Head,
    Length(RequestHead, u64),
    Chunked(RequestHead, ChunkDecoder, Vec<u8>),
    Closed,
}

/// What becomes of a connection's bytes, however they are cut into pieces. Events are joined by ` | `:
///
/// - `GET /a` a request without a body, `POST /a [x]` with a length, `POST /a {x}` in chunks; then `@HOST` unless its
///   `Host` is `h` (`@-` for none), `expect` if the client waits for leave to send, `close` if nothing may follow;
/// - `400 http-host` a refusal, and the end;
/// - `partial head`, `partial body` if more is needed.
pub(crate) fn converse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> String {
    let limits = Limits::default();
    let mut buffer = Vec::new();
    let mut stage = Stage::Head;
    let mut events = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match turn(stage, &mut buffer, &limits, &mut events) {
                Ok((next, more)) => {
                    stage = next;
                    if !more {
                        break;
                    }
                }
                Err(reject) => {
                    events.push(format!("{} {}", reject.status, reject.code));
                    return events.join(" | ");
                }
            }
        }
    }
    match stage {
        Stage::Head if buffer.is_empty() => {}
        Stage::Head => events.push("partial head".into()),
        Stage::Length(..) | Stage::Chunked(..) => events.push("partial body".into()),
        Stage::Closed => {}
    }
    events.join(" | ")
}

/// The next stage, and whether to go on before more has arrived.
fn turn(
    stage: Stage,
    buffer: &mut Vec<u8>,
    limits: &Limits,
    events: &mut Vec<String>,
) -> Result<(Stage, bool), Reject> {
    let mut finish = |head: &RequestHead, body: String| {
        events.push(describe(head, &body));
        (
            if head.keep_alive {
                Stage::Head
            } else {
                Stage::Closed
            },
            head.keep_alive,
        )
    };
    Ok(match stage {
        Stage::Closed => {
            buffer.clear();
            (Stage::Closed, false)
        }
        Stage::Head => match parse(buffer, limits, "http", RequestId(0))? {
            Parsed::Partial => (Stage::Head, false),
            Parsed::Head(head) => {
                buffer.drain(..head.consumed);
                match head.framing {
                    Framing::None => finish(&head, String::new()),
                    Framing::Length(length) => (Stage::Length(head, length), true),
                    Framing::Chunked => (Stage::Chunked(head, ChunkDecoder::new(), Vec::new()), true),
                }
            }
        },
        Stage::Length(head, length) => match usize::try_from(length) {
            Ok(length) if length <= buffer.len() => {
                let body: Vec<u8> = buffer.drain(..length).collect();
                finish(&head, format!(" [{}]", body.escape_ascii()))
            }
            _ => (Stage::Length(head, length), false),
        },
        Stage::Chunked(head, mut decoder, mut body) => {
            let fed = decoder.feed(buffer, &mut body, BODY_LIMIT)?;
            buffer.drain(..fed.consumed);
            if fed.done {
                finish(&head, format!(" {{{}}}", body.escape_ascii()))
            } else {
                (Stage::Chunked(head, decoder, body), false)
            }
        }
    })
}

fn describe(request: &RequestHead, body: &str) -> String {
    let head = &request.head;
    let host = match head.header("host") {
        Some(b"h") => String::new(),
        Some(host) => format!(" @{}", host.escape_ascii()),
        None => " @-".into(),
    };
    let expect = if request.expect_continue { " expect" } else { "" };
    let close = if request.keep_alive { "" } else { " close" };
    format!("{} {}{body}{host}{expect}{close}", head.method(), head.target())
}
