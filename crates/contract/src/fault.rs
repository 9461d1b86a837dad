//! How a function fails.

use crate::ByteSize;
use bytes::Bytes;
use std::time::Duration;

/// A fault of the function: its owner must mend it. Overload is a [`crate::Refusal`], the platform's own failures
/// are [`crate::SpawnError`] and [`crate::PrepareError`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The program left with a code other than 0.
    #[error("the function exited with code {code}")]
    Exit {
        /// Its exit code.
        code: i32,
    },
    /// The program did something that its machine forbids.
    #[error("the function trapped: {reason}")]
    Trap {
        /// What it did, in the engine's words.
        reason: String,
    },
    /// It used more stack than a sandbox has.
    #[error("the function overflowed its stack")]
    StackOverflow,
    /// It was refused more memory, and then failed.
    #[error("the function failed ({reason}) after it was refused memory beyond its limit of {limit}")]
    OutOfMemory {
        /// The limit.
        limit: ByteSize,
        /// How it failed.
        reason: String,
    },
    /// Its handler failed and said how, or could not be found.
    #[error("the function failed: {kind}: {message}")]
    Raised {
        /// What kind of failure it is, in its own words or those of AWS Lambda's runtimes.
        kind: String,
        /// What it says about it.
        message: String,
        /// All of it, as AWS Lambda would answer: `errorMessage`, `errorType`, `stackTrace`, `requestId` in JSON.
        document: Bytes,
    },
    /// The request is not what it takes: whoever sent it is to mend it.
    #[error("the request is not what the function takes: {reason}")]
    BadInput {
        /// What is wrong with it.
        reason: String,
    },
    /// It wrote more than it may.
    #[error("the function wrote more than its limit of {limit}")]
    OutputTooLarge {
        /// The limit.
        limit: ByteSize,
    },
    /// It took longer than it may.
    #[error("the function did not answer within its timeout of {limit:?}")]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// It computed longer than it may.
    #[error("the function used more than its cpu time of {limit:?}")]
    CpuTime {
        /// The limit.
        limit: Duration,
    },
    /// Its output is not what its protocol asks for.
    #[error("the function's output is not a response: {reason}")]
    BadOutput {
        /// What is wrong with it.
        reason: String,
    },
}

impl Fault {
    /// A stable code for machines and for the manual.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Exit { .. } => "function-exit",
            Self::Trap { .. } => "function-trap",
            Self::StackOverflow => "function-stack-overflow",
            Self::OutOfMemory { .. } => "function-out-of-memory",
            Self::Raised { .. } => "function-raised",
            Self::BadInput { .. } => "function-bad-input",
            Self::OutputTooLarge { .. } => "limit-response-body",
            Self::Timeout { .. } => "limit-timeout",
            Self::CpuTime { .. } => "limit-cpu-time",
            Self::BadOutput { .. } => "function-bad-output",
        }
    }
}
