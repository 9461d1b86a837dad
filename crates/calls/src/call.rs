//! What a call is made of.

use crate::Callback;
use bytes::Bytes;
use contract::{FunctionRef, NameError, RequestId};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, time::Duration};

/// Identifies a call: 32 hexadecimal digits, the `X-Call-Id` of its answer. The id of the request that made it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub RequestId);

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CallId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        text.parse().map(Self)
    }
}

/// Milliseconds since the Unix epoch, by the wall clock: it must mean the same after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// `self` and a duration, saturating.
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(milliseconds(duration)))
    }

    /// The time from `earlier` to `self`; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What is to be run, and how often it may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which function. Resolved at each attempt, so an alias means what it names then. Of a delivery: whose outcome it tells.
    pub function: FunctionRef,
    /// The method.
    pub method: String,
    /// Path and query; of a delivery the URL.
    pub target: String,
    /// Names and values, in their order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Bytes,
    /// Whom the outcome is told.
    pub callback: Option<Callback>,
    /// The call whose outcome this one tells.
    pub tells: Option<CallId>,
    /// How often it may fail before it is a dead letter; 0 means 1.
    pub attempts: u32,
    /// How old it may become before it is a dead letter.
    pub maximum_age: Duration,
}

/// What a function answered.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Names and values, in their order.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Bytes,
    /// The bytes of headers and body if they were too many to be kept; both are empty then.
    pub omitted: Option<u64>,
}

/// What came of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The function answered.
    Succeeded(Response),
    /// It did not.
    Failed {
        /// Why, for people; the first 256 bytes are kept.
        reason: String,
        /// Whether another attempt could end otherwise.
        retry: bool,
    },
    /// It was not let in, or was cut short by the node: nobody's fault, so it is tried again without being counted as a
    /// failure.
    Refused {
        /// Why, for people; the first 256 bytes are kept.
        reason: String,
    },
}

/// A call to run now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Which call.
    pub id: CallId,
    /// Counts the attempts at this call, from 1.
    pub number: u32,
    /// What to run.
    pub request: Request,
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Which call.
    pub id: CallId,
    /// Which attempt at it.
    pub number: u32,
    /// What came of it.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// What a finished attempt leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result is kept.
    Succeeded,
    /// The call is tried again then.
    RetryAt(Timestamp),
    /// The call is a dead letter.
    Dead(Cause),
    /// The call does not wait for this attempt: it has been finished already.
    Stale,
}

/// Why a call is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It failed as often as it may.
    Attempts,
    /// It became too old.
    Age,
    /// It failed in a way that no other attempt would change.
    Final,
    /// The node ended during too many attempts one after the other.
    Interrupted,
}

/// Where a call is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// On its way to the disk; not accepted yet.
    Accepting,
    /// For its time.
    Waiting {
        /// When it is to be run.
        due: Timestamp,
    },
    /// An attempt is under way.
    Running,
    /// It has a result.
    Succeeded {
        /// Since when.
        at: Timestamp,
        /// The result's status.
        status: u16,
    },
    /// A dead letter.
    Dead {
        /// Since when.
        at: Timestamp,
        /// Why.
        cause: Cause,
    },
}

impl State {
    /// Whether it is still to be run, or running.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Accepting | Self::Waiting { .. } | Self::Running)
    }
}

/// What is known of a call without reading the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub id: CallId,
    /// What it is to run.
    pub function: FunctionRef,
    /// When it was accepted.
    pub accepted: Timestamp,
    /// Attempts that were begun.
    pub begun: u32,
    /// Where it is in its life.
    pub state: State,
    /// Why its last attempt failed, if it did.
    pub reason: Option<String>,
    /// How far it is with telling its outcome, if somebody wants to hear of it.
    pub callback: Option<Telling>,
    /// The call whose outcome it tells, if it is a callback.
    pub tells: Option<CallId>,
}

/// How far it is with telling an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The call that tells it. There is none before there is an outcome.
    pub id: Option<CallId>,
    /// Where that is in its life; `None` also when it is not kept any more.
    pub state: Option<State>,
}
