//! AWS Lambda's Invoke API as values: requests are read, answers are written, nothing is sent.
//!
//! Two operations of the [API reference](https://docs.aws.amazon.com/lambda/latest/api/API_Invoke.html): `Invoke` and
//! `InvokeWithResponseStream`. Names of errors, headers and shapes are that reference's, so that its clients work
//! unmodified. Where the platform knows more than Lambda can say, the message says it.
//!
//! - [`request`]: what a path and its headers ask for.
//! - [`rejection`]: why a function was not invoked, as an error of the API.
//! - [`outcome`]: what an invocation came to: a payload, or a function error, and the tail of its log.
//! - [`event_stream`]: the framing of streamed responses.
//! - [`http`]: requests of HTTP as events, and answers to these as responses.
//! - [`signature`]: who sent a request, where that matters.

#![forbid(unsafe_code)]

mod event_stream;
pub mod http;
mod outcome;
mod rejection;
mod request;
mod signature;

pub use outcome::{Log, Outcome, REQUEST_ID, Reply, request_uuid};
pub use rejection::Rejection;
pub use request::{Invoke, Kind, MAX_EVENT, MAX_PAYLOAD, is_invoke};
pub use signature::{Claim, Key, Keys, Secret};

/// How much of an invocation's log `LogType: Tail` returns, in bytes.
pub const LOG_TAIL: usize = 4 << 10;
