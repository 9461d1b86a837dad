use crate::CallId;
use contract::{LogError, Position};

/// A call that was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// As much is pending as may.
    #[error("no more calls are accepted: {limit} {what} are pending already; try again later")]
    Full {
        /// `calls` or `bytes of calls`.
        what: &'static str,
        /// How many may be pending.
        limit: u64,
    },
    /// As much waits for a server to be told as may.
    #[error(
        "no more calls are accepted whose outcome {server} is told: it is to hear of {limit} already; is it up?"
    )]
    Untold {
        /// Its scheme, host and port.
        server: String,
        /// Of how many it may have to hear.
        limit: usize,
    },
    /// The request is too large to be kept.
    #[error(
        "the call's {part} of {size} bytes is too large: at most {limit} are kept; send what is large by reference"
    )]
    TooLarge {
        /// `body` or `head`.
        part: &'static str,
        /// Its bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The id is taken.
    #[error("there is a call {0} already; use a new id")]
    Duplicate(CallId),
    /// The log would have to wait; nothing was appended.
    #[error("too much waits for the disk; try again in a moment")]
    Busy,
    /// The log failed. It is not known whether the call was accepted: it may yet be run after a restart.
    #[error(transparent)]
    Log(LogError),
}

/// Something that could not be done with calls.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none, or none any more.
    #[error("there is no call {0}: it never was accepted, or what was kept of it has expired")]
    Unknown(CallId),
    /// Only dead letters can be retried or discarded.
    #[error("the call {0} is no dead letter: only those can be retried or discarded")]
    NotDead(CallId),
    /// A change of this call is on its way to the disk.
    #[error("the call {0} is being changed at this moment; try again")]
    Changing(CallId),
    /// No room among the pending calls.
    #[error("the call {0} cannot be retried now: as many calls are pending as may; try again later")]
    Full(CallId),
    /// A record is not what this program writes.
    #[error(
        "record {} of the log `{log}` cannot be read ({reason}): was it written by a newer version?",
        position.0
    )]
    Unreadable {
        /// The log's name.
        log: &'static str,
        /// Which record.
        position: Position,
        /// What is wrong with it.
        reason: String,
    },
    /// The log failed.
    #[error(transparent)]
    Log(#[from] LogError),
}
