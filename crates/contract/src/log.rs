//! The seam of durable logs: records in an order that never changes, as an embedded database and NATS JetStream both
//! give it.

use std::{fmt, sync::mpsc};

/// A record's place in its log. The first record that a log ever had is at 0, and each further one at the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

/// A record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where it is.
    pub position: Position,
    /// What was appended.
    pub data: Vec<u8>,
}

/// What a log holds now: the records from `first` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Extent {
    /// The oldest record that is still there, if `first < end`.
    pub first: Position,
    /// Where the next record will be.
    pub end: Position,
    /// Bytes of all records that are there.
    pub bytes: u64,
}

/// What an append ends in: the position of its first record.
pub type Appended = Result<Position, LogError>;

/// Told once of an append's end.
pub type OnAppended = Box<dyn FnOnce(Appended) + Send>;

/// A bell: a message means that there may be new records. Whoever takes it reads until there are none before it waits
/// again; several appends may share one message. Ends when dropped.
pub type Tail = mpsc::Receiver<()>;

/// Durable logs, each known by its name. A log that was never appended to is empty.
///
/// # Contract
/// - Names are 1 to 512 bytes of `a-z`, `0-9`, `-`, `.`, `_` and `/`; records at most 8 MiB.
/// - When an append has ended with `Ok`, its records are on disk: they survive `kill -9` and power loss.
/// - The records of one append are at consecutive positions, and after any crash all of them are there or none.
/// - Positions are dense and never used twice, not even after everything was trimmed; a read after an append in any
///   thread sees it.
/// - Appends that are under way at the same time share a flush where they can.
/// - Of an append that ended with [`LogError::Storage`] it is not known whether it happened. The other errors say
///   that it did not.
/// - Logs and the keys of a [`crate::Store`] in the same place do not know of each other.
pub trait Log: Send + Sync {
    /// Appends records and waits until they are durable. An append of no records waits for those before it in this
    /// process, whichever log they are for.
    fn append(&self, log: &str, records: Vec<Vec<u8>>) -> Appended;

    /// Appends records without ever waiting for the disk or for room.
    ///
    /// After `Ok`, `done` is called once, on a thread of the log's own: it is to be quick, must not panic, and must
    /// not wait for this log. After `Err`, nothing was appended and `done` is dropped.
    fn append_then(&self, log: &str, records: Vec<Vec<u8>>, done: OnAppended) -> Result<(), LogError>;

    /// The oldest records at `from` or later, in order: `most` of them, or fewer once they have more than 4 MiB
    /// together. There is nothing at `from` or later if, and only if, the answer is empty (and `most` is not 0).
    fn read(&self, log: &str, from: Position, most: usize) -> Result<Vec<Record>, LogError>;

    /// What the log holds.
    fn extent(&self, log: &str) -> Result<Extent, LogError>;

    /// A bell that rings after each append from now on.
    fn tail(&self, log: &str) -> Result<Tail, LogError>;

    /// Forgets all records before a position, for good. A position beyond the end means the end.
    fn trim(&self, log: &str, before: Position) -> Result<(), LogError>;
}

/// An append that did not happen, or an answer that could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A name or record against the rules.
    #[error("the log `{log}` cannot take this: {reason}")]
    Invalid {
        /// The log's name.
        log: String,
        /// Which rule.
        reason: &'static str,
    },
    /// As many appends wait for the disk as may.
    #[error("too many appends wait for the disk already; try again when some have ended")]
    Busy,
    /// The storage failed.
    #[error("the log failed to {attempt}: {reason}")]
    Storage {
        /// What was attempted.
        attempt: String,
        /// What came of it.
        reason: String,
    },
}

impl LogError {
    /// Wraps an implementation's error.
    pub fn storage(attempt: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Storage {
            attempt: attempt.into(),
            reason: reason.to_string(),
        }
    }
}
