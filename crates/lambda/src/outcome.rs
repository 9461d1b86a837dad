//! What an invocation came to.

use crate::{LOG_TAIL, event_stream};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use contract::{Fault, RequestId, VersionNumber};
use serde::Serialize;
use std::time::Duration;

/// The header that carries [`request_uuid`].
pub const REQUEST_ID: &str = "x-amzn-RequestId";

/// A request's id as Lambda writes it: with hyphens.
pub fn request_uuid(id: RequestId) -> String {
    let hex = id.to_string();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// An invocation that ran to its end, good or bad.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The function's payload, or its fault.
    pub result: Result<&'a [&'a [u8]], &'a Fault>,
    /// For messages.
    pub id: RequestId,
}

/// An answer of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// What the API says in headers, the request's id among them.
    pub headers: Vec<(&'static str, String)>,
    /// What follows them.
    pub body: Vec<u8>,
}

impl Reply {
    /// To a `DryRun`: this version would have been invoked.
    pub fn dry(version: VersionNumber, id: RequestId) -> Self {
        Self {
            status: 204,
            headers: vec![
                ("X-Amz-Executed-Version", version.to_string()),
                (REQUEST_ID, request_uuid(id)),
            ],
            body: Vec::new(),
        }
    }

    /// To an `Event`: it is kept.
    pub fn accepted(id: RequestId) -> Self {
        Self {
            status: 202,
            headers: vec![(REQUEST_ID, request_uuid(id))],
            body: Vec::new(),
        }
    }
}

#[derive(Serialize)]
struct FunctionError {
    #[serde(rename = "errorType")]
    kind: String,
    #[serde(rename = "errorMessage")]
    message: String,
}

impl Outcome<'_> {
    /// The answer to the `Invoke` that led to it, or, as a stream, to the `InvokeWithResponseStream`.
    pub fn reply(&self, version: VersionNumber, log: Option<&Log<'_>>, stream: bool) -> Reply {
        let mut headers = Vec::with_capacity(5);
        let body = if stream {
            headers.push(("Content-Type", "application/vnd.amazon.eventstream".to_owned()));
            self.events(log)
        } else {
            headers.push(("Content-Type", "application/json".to_owned()));
            headers.extend(
                self.function_error()
                    .map(|error| ("X-Amz-Function-Error", error.to_owned())),
            );
            headers.extend(log.map(|log| ("X-Amz-Log-Result", log.encoded())));
            self.payload()
        };
        headers.push(("X-Amz-Executed-Version", version.to_string()));
        headers.push((REQUEST_ID, request_uuid(self.id)));
        Reply {
            status: 200,
            headers,
            body,
        }
    }

    /// What the header `X-Amz-Function-Error` says, if the function failed.
    pub fn function_error(&self) -> Option<&'static str> {
        self.result.is_err().then_some("Unhandled")
    }

    /// The body of an `Invoke`'s answer: the payload as the function wrote it, or its error as JSON.
    pub fn payload(&self) -> Vec<u8> {
        match self.result {
            Ok(pieces) => pieces.concat(),
            Err(Fault::Raised { document, .. }) => document.to_vec(),
            // It has only texts.
            Err(fault) => serde_json::to_vec(&error(fault, self.id)).unwrap_or_default(),
        }
    }

    /// The body of an `InvokeWithResponseStream`'s answer: events.
    pub fn events(&self, log: Option<&Log<'_>>) -> Vec<u8> {
        let mut events = Vec::new();
        let mut complete = serde_json::Map::new();
        match self.result {
            Ok(pieces) => {
                let chunks = pieces
                    .iter()
                    .flat_map(|piece| piece.chunks(event_stream::LARGEST_PAYLOAD));
                chunks.for_each(|chunk| {
                    event_stream::event(&mut events, "PayloadChunk", "application/octet-stream", chunk);
                });
            }
            Err(fault) => {
                let FunctionError { kind, message } = error(fault, self.id);
                complete.insert("ErrorCode".to_owned(), kind.into());
                complete.insert("ErrorDetails".to_owned(), message.into());
            }
        }
        if let Some(log) = log {
            complete.insert("LogResult".to_owned(), log.encoded().into());
        }
        let complete = serde_json::Value::Object(complete).to_string();
        event_stream::event(
            &mut events,
            "InvokeComplete",
            "application/json",
            complete.as_bytes(),
        );
        events
    }
}

fn error(fault: &Fault, id: RequestId) -> FunctionError {
    if let Fault::Raised { kind, message, .. } = fault {
        return FunctionError {
            kind: kind.clone(),
            message: message.clone(),
        };
    }
    let kind = match fault {
        Fault::Timeout { .. } | Fault::CpuTime { .. } => "Sandbox.Timedout",
        Fault::OutOfMemory { .. } => "Runtime.OutOfMemory",
        Fault::OutputTooLarge { .. } => "Function.ResponseSizeTooLarge",
        Fault::BadOutput { .. } => "Runtime.InvalidResponse",
        _ => "Runtime.ExitError",
    };
    let what = match fault {
        Fault::Exit { code } => format!("Runtime exited with error: exit status {code}"),
        Fault::Timeout { limit } => format!("Task timed out after {:.2} seconds", limit.as_secs_f64()),
        other => other.to_string(),
    };
    FunctionError {
        kind: kind.to_owned(),
        message: format!("RequestId: {} Error: {what}", request_uuid(id)),
    }
}

/// The end of an invocation's log, between the lines that Lambda writes around it.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    /// What the function wrote last, at most [`LOG_TAIL`] bytes of it are used.
    pub tail: &'a [u8],
    /// Of the invocation.
    pub id: RequestId,
    /// What ran.
    pub version: VersionNumber,
    /// From the sandbox's start to the function's end.
    pub duration: Duration,
    /// The function's limit, in bytes.
    pub memory: u64,
    /// The most that it used, in bytes.
    pub used: u64,
}

impl Log<'_> {
    fn text(&self) -> Vec<u8> {
        let id = request_uuid(self.id);
        let milliseconds = self.duration.as_secs_f64() * 1e3;
        let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
        let mut text = format!("START RequestId: {id} Version: {}\n", self.version).into_bytes();
        text.extend_from_slice(self.tail);
        if !self.tail.is_empty() && !self.tail.ends_with(b"\n") {
            text.push(b'\n');
        }
        text.extend_from_slice(
            format!(
                "END RequestId: {id}\nREPORT RequestId: {id}\tDuration: {milliseconds:.2} ms\tBilled Duration: {:.0} ms\tMemory Size: {} MB\tMax Memory Used: {} MB\t\n",
                milliseconds.ceil(),
                megabytes(self.memory),
                megabytes(self.used),
            )
            .as_bytes(),
        );
        let from = text.len().saturating_sub(LOG_TAIL);
        text.split_off(from)
    }

    /// Its last [`LOG_TAIL`] bytes in Base64, as the header `X-Amz-Log-Result` carries them.
    pub fn encoded(&self) -> String {
        BASE64_STANDARD.encode(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    const ID: RequestId = RequestId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);

    fn log(tail: &[u8]) -> String {
        let log = Log {
            tail,
            id: ID,
            version: VersionNumber(NonZeroU32::MIN),
            duration: Duration::from_micros(1234),
            memory: 64 << 20,
            used: (1 << 20) + 1,
        };
        String::from_utf8(BASE64_STANDARD.decode(log.encoded()).unwrap()).unwrap()
    }

    #[test]
    fn ids_have_hyphens() {
        assert_eq!(request_uuid(ID), "01234567-89ab-cdef-0011-223344556677");
    }

    #[test]
    fn logs_end_with_a_report_and_have_four_kibibytes() {
        let id = "01234567-89ab-cdef-0011-223344556677";
        assert_eq!(
            log(b"hello"),
            format!(
                "START RequestId: {id} Version: 1\nhello\nEND RequestId: {id}\nREPORT RequestId: {id}\tDuration: 1.23 ms\tBilled Duration: 2 ms\tMemory Size: 64 MB\tMax Memory Used: 2 MB\t\n"
            )
        );
        let long = log(&[b'x'; LOG_TAIL]);
        assert_eq!(long.len(), LOG_TAIL);
        assert!(long.starts_with('x') && long.ends_with("MB\t\n"));
    }

    #[test]
    fn failures_are_told_in_lambdas_words() {
        let said = |fault: &Fault| {
            let outcome = Outcome {
                result: Err(fault),
                id: ID,
            };
            assert_eq!(outcome.function_error(), Some("Unhandled"));
            let body: serde_json::Value = serde_json::from_slice(&outcome.payload()).unwrap();
            (
                body["errorType"].as_str().unwrap().to_owned(),
                body["errorMessage"].as_str().unwrap().to_owned(),
            )
        };
        let id = request_uuid(ID);
        assert_eq!(
            said(&Fault::Exit { code: 3 }),
            (
                "Runtime.ExitError".into(),
                format!("RequestId: {id} Error: Runtime exited with error: exit status 3")
            )
        );
        assert_eq!(
            said(&Fault::Timeout {
                limit: Duration::from_millis(1500)
            }),
            (
                "Sandbox.Timedout".into(),
                format!("RequestId: {id} Error: Task timed out after 1.50 seconds")
            )
        );
    }

    #[test]
    fn a_payload_is_what_the_function_wrote() {
        let outcome = Outcome {
            result: Ok(&[b"{\"a\"", b": 1}"]),
            id: ID,
        };
        assert_eq!(outcome.function_error(), None);
        assert_eq!(outcome.payload(), b"{\"a\": 1}");
    }
}
