//! Events of the CloudEvents specification: `POST /events` and `/events/APPLICATION`.
//!
//! Whatever mode an event comes in, each function that wants it gets a call with the event in binary mode. The calls of one
//! request are accepted together or not at all.

use crate::later::{Inbox, Kept, Later, now};
use bytes::Bytes;
use calls::{CallId, Request, SubmitError};
use contract::{ApplicationId, CoreId, FunctionId, Head, Name, Problem, RequestId};
use dispatcher::Reader;
use std::time::Instant;
use triggers::{Event, MOST_HOPS, Message, identity};

const EVENTS: &str = "/events";
/// Bytes of a request: a call keeps no more.
pub(crate) const LARGEST: u64 = 6 << 20;
/// Calls that one request may make.
const MOST_CALLS: usize = 1_000;

/// Whether a path takes events.
pub(crate) fn is_events(path: &str) -> bool {
    path.strip_prefix(EVENTS)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whose events a path takes: those of all applications of a tenant, or one's.
fn application(tenant: Option<&Name>, path: &str, reader: &mut Reader) -> Result<Option<Name>, Problem> {
    let text = path
        .strip_prefix(EVENTS)
        .unwrap_or_default()
        .trim_start_matches('/');
    if text.is_empty() {
        return Ok(None);
    }
    let unknown = |reason: String| {
        let help = "POST to /events, or to /events/APPLICATION; `millpond list` shows the applications";
        Problem::new(404, "application-unknown", reason, help)
    };
    let name = text.parse::<Name>().map_err(|error| unknown(error.to_string()))?;
    let id = ApplicationId {
        tenant: tenant.cloned(),
        name,
    };
    match reader.snapshot().applications.contains_key(&id) {
        true => Ok(Some(id.name)),
        false => Err(unknown(format!(
            "there is no application `{}` on this node",
            id.name
        ))),
    }
}

/// What makes events: it goes into the ids of the calls that they become, so that the same cause makes the same calls.
#[derive(Clone, Copy, Debug)]
pub enum Cause<'a> {
    /// A request to the gateway.
    Request(RequestId),
    /// What a call was answered.
    Answer(CallId),
    /// A schedule, by its key, and when it was due.
    Schedule(&'a str, u64),
    /// A new object, by where objects are and its number among those that were told of there.
    Object(&'a str, u64),
}

impl Cause<'_> {
    /// The id of the call of one function by one event that it makes.
    pub fn call(self, index: usize, function: &FunctionId) -> CallId {
        let index = (index as u64).to_le_bytes();
        let function = function.to_string();
        let (kind, number, text) = match self {
            Self::Request(id) => (&b"event"[..], id.0.to_le_bytes(), ""),
            Self::Answer(id) => (&b"answer"[..], id.0.0.to_le_bytes(), ""),
            Self::Schedule(key, due) => (&b"schedule"[..], u128::from(due).to_le_bytes(), key),
            Self::Object(place, number) => (&b"object"[..], u128::from(number).to_le_bytes(), place),
        };
        let parts = [kind, &number, text.as_bytes(), &index, function.as_bytes()];
        CallId(RequestId(identity(&parts)))
    }
}

/// An event that cannot become calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It comes from a chain that is too long.
    #[error(
        "the event `{kind}` comes from a chain of {MOST_HOPS} functions that answered each other's events: is it a loop?"
    )]
    Loop {
        /// Its type.
        kind: String,
    },
    /// Its data is more than a function takes.
    #[error("the event's data of {size} bytes is larger than the limit of {limit} bytes of `{function}`")]
    TooLarge {
        /// Its bytes.
        size: usize,
        /// The function's limit.
        limit: u64,
        /// Which.
        function: FunctionId,
    },
    /// It would become too many calls.
    #[error("the events would make more than {MOST_CALLS} calls")]
    Fanout,
}

impl Later {
    /// The call by which a function gets an event.
    pub fn call(&self, id: CallId, function: &FunctionId, event: &Event) -> Request {
        let mut headers: Vec<_> = event.headers().collect();
        headers.push(("X-Call-Id".to_owned(), id.to_string().into_bytes()));
        Request {
            function: function.into(),
            method: "POST".to_owned(),
            target: format!("/function/{}", function.local()),
            headers,
            body: event.data.clone(),
            callback: None,
            tells: None,
            attempts: self.attempts,
            maximum_age: self.maximum_age,
        }
    }

    /// The calls that events make: one for each function that wants one, and each event. Events of a tenant reach its functions
    /// only, all of them or one application's.
    pub fn calls_of(
        &self,
        events: Vec<Event>,
        cause: Cause<'_>,
        (tenant, application): (Option<&Name>, Option<&Name>),
        reader: &mut Reader,
    ) -> Result<Vec<(CallId, Request)>, PublishError> {
        let mut calls = Vec::new();
        for (index, event) in events.into_iter().enumerate() {
            let hops = event.hops();
            if hops > MOST_HOPS {
                return Err(PublishError::Loop {
                    kind: event.kind().to_owned(),
                });
            }
            // Each says how far it has come, so that what a function answers to it is known to be its answer.
            let event = event.with_hops(hops);
            for target in reader.subscribers(tenant, application, &event) {
                let grant = target.grant();
                let (size, limit) = (event.data.len(), grant.limits.request_body.0);
                let function = &grant.function;
                if size as u64 > limit {
                    return Err(PublishError::TooLarge {
                        size,
                        limit,
                        function: function.local(),
                    });
                }
                if calls.len() == MOST_CALLS {
                    return Err(PublishError::Fanout);
                }
                let id = cause.call(index, function);
                calls.push((id, self.call(id, function, &event)));
            }
        }
        Ok(calls)
    }

    /// Takes a request with events. The answer comes through the inbox of this core, unless it is a problem.
    pub(crate) fn publish(
        &self,
        (tenant, head, body): (Option<&Name>, &Head, &Bytes),
        reader: &mut Reader,
        (core, inbox): (CoreId, &Inbox),
        (token, arrived): (u64, Instant),
    ) -> Result<(), Problem> {
        let application = application(tenant, head.path(), reader)?;
        let message = Message::read(head.headers(), body).map_err(|error| {
            let help = "send an event of CloudEvents 1.0: its attributes as `ce-` headers and its data as the body, or all of it as application/cloudevents+json";
            Problem::new(400, "event-malformed", format!("this is not an event: {error}"), help)
        })?;
        let first = message.events.first().map(|event| event.kind().to_owned());
        let cause = Cause::Request(head.id);
        let mut calls = self
            .calls_of(message.events, cause, (tenant, application.as_ref()), reader)
            .map_err(|error| refused(&error))?;
        if let (Some(kind), true) = (first, calls.is_empty()) {
            return Err(Problem::new(
                404,
                "event-unwanted",
                format!("no function wants an event of the type {kind:?} and this source"),
                "add a `[[trigger.cloudevents]]` with this type to the manifest of the function that is to get it",
            ));
        }
        for header in ["traceparent", "tracestate"] {
            if let Some(value) = head.header(header) {
                for (_, request) in &mut calls {
                    request.headers.push((header.to_owned(), value.to_vec()));
                }
            }
        }
        let accepted: Vec<_> = calls.iter().map(|(id, _)| *id).collect();
        let (inbox, shared, id) = (inbox.clone(), self.shared.clone(), head.id);
        let done = move |result: Result<(), SubmitError>| {
            inbox.push(Kept {
                token,
                id,
                arrived,
                result: result.map(|()| CallId(id)),
                accepted: Some(accepted),
            });
            shared.wake(core);
        };
        self.calls
            .submit_all_then(&calls, now(), done)
            .map_err(|error| crate::later::problem(&error))
    }
}

fn refused(error: &PublishError) -> Problem {
    let detail = error.to_string();
    match error {
        PublishError::Loop { .. } => Problem::new(
            400,
            "event-loop",
            detail,
            "let the functions of the loop answer without an event once there is nothing left to do",
        ),
        PublishError::TooLarge { .. } => Problem::new(
            413,
            "limit-request-body",
            detail,
            "raise `request_body` of this function in millpond.toml, or send less",
        ),
        PublishError::Fanout => Problem::new(413, "event-fanout", detail, "send fewer events in one batch"),
    }
}

/// What a client reads whose events were accepted.
pub(crate) fn accepted(calls: &[CallId]) -> Vec<u8> {
    let ids: Vec<_> = calls.iter().map(ToString::to_string).collect();
    let mut text = serde_json::json!({ "calls": ids }).to_string().into_bytes();
    text.push(b'\n');
    text
}

/// What a client reads whose request has a method that takes no events.
pub(crate) fn method(head: &Head) -> Problem {
    Problem::new(
        405,
        "route-method",
        format!("{} does not take {}; it takes POST", head.path(), head.method()),
        "POST an event of CloudEvents 1.0",
    )
}

/// What a client reads whose events are too large.
pub(crate) fn too_large(length: u64) -> Problem {
    Problem::new(
        413,
        "calls-size",
        format!("the body of {length} bytes is too large: at most {LARGEST} are kept"),
        "send the data's place instead of the data",
    )
}
