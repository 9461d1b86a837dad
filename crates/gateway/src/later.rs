//! Requests that are kept and run later: `/async-function/NAME`, and Lambda's invocations of type `Event`.

use bytes::Bytes;
use calls::{CallId, Calls, Request, SubmitError, Timestamp};
use contract::{CoreId, FunctionRef, Head, Problem, RequestId};
use crossbeam_queue::SegQueue;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use worker::Shared;

/// What `/async-function/` is instead of.
const FUNCTION: &str = "/function/";
const ASYNC: &str = "/async-function/";

/// Headers that say how a message travels, not what it is (RFC 9110, section 7.6.1).
const HOP: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where calls are kept, and how often they are tried.
#[derive(Clone)]
pub struct Later {
    /// All calls of the node.
    pub calls: Calls,
    /// To wake the core whose client waits until its call is durable.
    pub shared: Arc<Shared>,
    /// Attempts at a call before it is a dead letter.
    pub attempts: u32,
    /// How old a call may become before it is a dead letter.
    pub maximum_age: Duration,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("attempts", &self.attempts)
            .field("maximum_age", &self.maximum_age)
            .finish_non_exhaustive()
    }
}

/// What became of a call whose client waits.
pub(crate) struct Kept {
    /// The connection.
    pub(crate) token: u64,
    pub(crate) id: RequestId,
    pub(crate) arrived: Instant,
    pub(crate) result: Result<CallId, SubmitError>,
    /// The calls, if it published events.
    pub(crate) accepted: Option<Vec<CallId>>,
}

pub(crate) type Inbox = Arc<SegQueue<Kept>>;

/// The function's name in the path of an asynchronous call, if it is one.
pub(crate) fn name(path: &str) -> Option<&str> {
    path.strip_prefix(ASYNC)?.split('/').next()
}

/// The part of an asynchronous call's path that names its function, in bytes.
pub(crate) fn script(name: &str) -> usize {
    ASYNC.len() + name.len()
}

impl Later {
    /// Has a request kept. What becomes of it comes through the inbox of this core.
    pub(crate) fn keep(
        &self,
        function: FunctionRef,
        head: &Head,
        body: Bytes,
        (core, inbox): (CoreId, &Inbox),
        (token, arrived): (u64, Instant),
    ) -> Result<(), SubmitError> {
        let id = CallId(head.id);
        let target = match head.target().strip_prefix(ASYNC) {
            Some(rest) => format!("{FUNCTION}{rest}"),
            None => format!("{FUNCTION}{}", function.local()),
        };
        let mut headers: Vec<_> = head
            .headers()
            .filter(|(name, _)| !HOP.iter().any(|hop| hop.eq_ignore_ascii_case(name)))
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        headers.push(("X-Call-Id".to_owned(), id.to_string().into_bytes()));
        let request = Request {
            function,
            method: head.method().to_owned(),
            target,
            headers,
            body,
            callback: None,
            attempts: self.attempts,
            maximum_age: self.maximum_age,
        };
        let (inbox, shared) = (inbox.clone(), self.shared.clone());
        self.calls.submit_then(id, &request, now(), move |result| {
            inbox.push(Kept {
                token,
                id: id.0,
                arrived,
                result,
                accepted: None,
            });
            shared.wake(core);
        })
    }
}

/// The wall clock, as calls count it.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What a client reads whose call was not kept.
pub(crate) fn problem(error: &SubmitError) -> Problem {
    let detail = error.to_string();
    match error {
        SubmitError::Full { .. } => Problem::new(
            429,
            "calls-full",
            detail,
            "see what is pending with `millpond calls list`",
        ),
        SubmitError::Busy => Problem::new(429, "calls-busy", detail, "try again in a second"),
        SubmitError::TooLarge { .. } => Problem::new(
            413,
            "calls-size",
            detail,
            "send the body's place instead of the body",
        ),
        _ => Problem::new(
            500,
            "calls-store",
            format!("the call could not be kept: {detail}"),
            "see the node's own log; is the disk full?",
        ),
    }
}
