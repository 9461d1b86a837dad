//! Requests that are kept and run later: `/async-function/NAME`, and Lambda's invocations of type `Event`.

use bytes::Bytes;
use calls::{CallId, Callback, CallbackError, Calls, Request, SubmitError, Timestamp};
use contract::{CoreId, FunctionRef, Head, Name, Problem, RequestId};
use crossbeam_queue::SegQueue;
use dispatcher::Reader;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use worker::Shared;

/// What `/async-function/` is instead of.
const FUNCTION: &str = "/function/";
const ASYNC: &str = "/async-function/";
/// Of a call that is kept: how many functions have called each other to make it ([`Head::depth`]).
pub const DEPTH: &str = "x-millpond-depth";
/// Whom the outcome is told; OpenFaaS's name.
const CALLBACK: &str = "x-callback-url";

/// Headers that say how a message travels, not what it is (RFC 9110, section 7.6.1), and the one that is the node's own to say.
const HOP: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    DEPTH,
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
    /// Hosts that may be told outcomes: in lower case, addresses without brackets.
    pub callbacks: Arc<[String]>,
}

/// What is to be kept, beside the request.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) function: FunctionRef,
    pub(crate) callback: Option<Callback>,
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later")
            .field("attempts", &self.attempts)
            .field("maximum_age", &self.maximum_age)
            .field("callbacks", &self.callbacks)
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

/// Whom a request wants to have its outcome told, if that may be.
pub(crate) fn callback(
    later: Option<&Later>,
    tenant: Option<&Name>,
    head: &Head,
    reader: &mut Reader,
) -> Result<Option<Callback>, Problem> {
    let (Some(later), Some(value)) = (later, head.header(CALLBACK)) else {
        return Ok(None);
    };
    let malformed = |reason: String| {
        Problem::new(
            400,
            "callback-malformed",
            format!("the request's X-Callback-Url cannot be used: {reason}"),
            "write /function/NAME, or a URL of http or https",
        )
    };
    let text = std::str::from_utf8(value).map_err(|error| malformed(error.to_string()))?;
    let callback: Callback = text
        .parse()
        .map_err(|error: CallbackError| malformed(error.to_string()))?;
    match callback.host() {
        Some(host) if !later.callbacks.contains(&host) => Err(Problem::new(
            403,
            "callback-host",
            format!("this node tells no outcome to the host `{host}`, which X-Callback-Url names"),
            format!("list it in the node's configuration: callbacks = [\"{host}\"] under [calls]"),
        )),
        Some(_) => Ok(Some(callback)),
        None => {
            if let Callback::Function { function, .. } = &callback {
                let found = reader.named(tenant, &function.to_string());
                found.map_err(|problem| malformed(problem.detail.into_owned()))?;
            }
            Ok(Some(callback))
        }
    }
}

impl Later {
    /// Has a request kept. What becomes of it comes through the inbox of this core.
    pub(crate) fn keep(
        &self,
        order: Order,
        head: &Head,
        body: Bytes,
        (core, inbox): (CoreId, &Inbox),
        (token, arrived): (u64, Instant),
    ) -> Result<(), SubmitError> {
        let Order { function, callback } = order;
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
            callback,
            tells: None,
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
pub fn problem(error: &SubmitError) -> Problem {
    let detail = error.to_string();
    match error {
        SubmitError::Full { .. } => Problem::new(
            429,
            "calls-full",
            detail,
            "see what is pending with `millpond calls list`",
        ),
        SubmitError::Untold { .. } => Problem::new(
            429,
            "callbacks-full",
            detail,
            "see what waits for it with `millpond calls list --state pending`",
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
