//! What went wrong, as every HTTP answer of the platform says it (RFC 9457, `application/problem+json`).

use crate::{Fault, Quota, Refusal, RequestId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Most of what is said is always the same: a refusal under load allocates none of it.
type Text = Cow<'static, str>;

/// An error for a person and for a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// A stable code, for example `limit-timeout`. The manual has a page for each, `docs/src/reference/errors/CODE.md`, which
    /// `millpond explain` prints.
    pub code: Text,
    /// What was attempted, on what, and what came of it.
    pub detail: Text,
    /// What to try.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub hint: Text,
    /// The request it happened to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
}

impl Problem {
    /// The media type of its JSON.
    pub const MEDIA_TYPE: &'static str = "application/problem+json";

    /// A problem without a request.
    pub fn new(status: u16, code: impl Into<Text>, detail: impl Into<Text>, hint: impl Into<Text>) -> Self {
        Self {
            status,
            code: code.into(),
            detail: detail.into(),
            hint: hint.into(),
            request_id: None,
        }
    }

    /// What a client reads when a function failed.
    pub fn of_fault(fault: &Fault) -> Self {
        let (status, hint) = match fault {
            Fault::Timeout { .. } => (
                504,
                "raise `timeout` of this function in millpond.toml, or make it faster",
            ),
            Fault::CpuTime { .. } => (
                504,
                "raise `cpu_time` of this function in millpond.toml, or make it compute less",
            ),
            Fault::OutputTooLarge { .. } => (
                502,
                "raise `response_body` of this function in millpond.toml, or make it answer less",
            ),
            Fault::OutOfMemory { .. } => (
                502,
                "raise `memory` of this function in millpond.toml, or make it use less",
            ),
            Fault::StackOverflow => (502, "look for unbounded recursion or very large local variables"),
            Fault::BadInput { .. } => (
                400,
                "a pure function takes one body for its first input set, or a form (`multipart/form-data`) with a part `SET/ITEM` for each item; a \
                 handler takes an event in JSON",
            ),
            Fault::BadOutput { .. } => (
                502,
                "a command with `protocol = \"cgi\"` begins its output with header lines and an empty line; an HTTP handler sets \
                 a response, and writes its body to the end; a pure function leaves items in its output sets and nothing else",
            ),
            Fault::Raised { .. } => (502, "see its stack trace and output with `millpond logs`"),
            Fault::Exit { .. } | Fault::Trap { .. } => (502, "see its output with `millpond logs`"),
        };
        Self::new(status, fault.code(), fault.to_string(), hint)
    }

    /// The code of a refusal, in problems as in metrics.
    pub fn refusal_code(refusal: Refusal) -> &'static str {
        match refusal {
            Refusal::TooLate { .. } => "limit-deadline",
            Refusal::QueueFull { .. } => "limit-queue",
            Refusal::Quota { quota, .. } => match quota {
                Quota::Concurrency => "quota-concurrency",
                Quota::Memory => "quota-memory",
                Quota::Rate => "quota-rate",
            },
            Refusal::Draining => "draining",
        }
    }

    /// What a client reads when the node would not take a request.
    pub fn of_refusal(refusal: Refusal) -> Self {
        let (status, detail, hint) = match refusal {
            Refusal::TooLate { .. } => (
                429,
                "so much is to be done before it that this request would miss its function's deadline",
                "try again later, or raise `deadline` of this function in millpond.toml",
            ),
            Refusal::QueueFull { .. } => (
                429,
                "as many requests of this function run and wait as may",
                "try again later, or raise `concurrency` or `queue` of this function in millpond.toml",
            ),
            Refusal::Quota { quota, .. } => (
                429,
                match quota {
                    Quota::Concurrency => {
                        "this tenant's functions serve as many requests at once as they may"
                    }
                    Quota::Memory => {
                        "the memory limits of this tenant's running functions add up to what they may"
                    }
                    Quota::Rate => "this tenant had as many requests in a second as it may",
                },
                "try again later, or ask the node's operator to raise the quota: `millpond tenant update`",
            ),
            Refusal::Draining => (
                503,
                "this node is shutting down",
                "try again: another node or a restarted one will answer",
            ),
        };
        Self::new(status, Self::refusal_code(refusal), detail, hint)
    }
}
