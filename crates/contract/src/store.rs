//! The seam of durable metadata: a small key-value store with compare-and-set, as an embedded database and NATS
//! JetStream both give it.

use std::{fmt, sync::mpsc};

/// Counts up with every change to the store; 0 means "never written".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

/// A key's value and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// When it was written.
    pub revision: Revision,
}

/// What must be true of a key for a change to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Whatever it is.
    Any,
    /// It has no value.
    Absent,
    /// It was last written by this revision.
    At(Revision),
}

/// A change as a watcher sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value was written.
    Put(Entry),
    /// A key was deleted.
    Delete {
        /// The key.
        key: String,
        /// The deletion's revision.
        revision: Revision,
    },
}

/// Changes under a prefix, from the moment of the call on, in order. Ends when dropped.
pub type Watch = mpsc::Receiver<Change>;

/// Durable metadata.
///
/// # Contract
/// - Keys are 1 to 512 bytes of `a-z`, `0-9`, `-`, `.`, `_` and `/`; values at most 1 MiB.
/// - When `put` or `delete` has returned `Ok`, the change is on disk: it survives `kill -9` and power loss.
/// - A change is whole or absent after any crash.
/// - Changes are totally ordered by their revisions; a `get` after a `put` in any thread sees it.
/// - Calls may block for a disk's flush; concurrent changes share one where they can.
pub trait Store: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;
    /// Writes a value if the expectation holds.
    fn put(&self, key: &str, value: &[u8], expect: Expect) -> Result<Revision, StoreError>;
    /// Deletes a key if the expectation holds. Deleting an absent key with [`Expect::Any`] succeeds.
    fn delete(&self, key: &str, expect: Expect) -> Result<Revision, StoreError>;
    /// All entries whose key starts with a prefix, in the order of their keys.
    fn list(&self, prefix: &str) -> Result<Vec<Entry>, StoreError>;
    /// Changes to keys that start with a prefix.
    fn watch(&self, prefix: &str) -> Result<Watch, StoreError>;
}

/// A change that did not happen, or an answer that could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The expectation did not hold.
    #[error("`{key}` has changed meanwhile (expected {expected:?}, found {found:?})")]
    Conflict {
        /// The key.
        key: String,
        /// What the caller expected.
        expected: Expect,
        /// What was there; `None` if nothing.
        found: Option<Revision>,
    },
    /// A key or value against the rules.
    #[error("`{key}` cannot be stored: {reason}")]
    Invalid {
        /// The key.
        key: String,
        /// Which rule.
        reason: &'static str,
    },
    /// The storage failed.
    #[error("the store failed to {attempt}: {reason}")]
    Storage {
        /// What was attempted.
        attempt: String,
        /// What came of it.
        reason: String,
    },
}

impl StoreError {
    /// Wraps an implementation's error.
    pub fn storage(attempt: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self::Storage {
            attempt: attempt.into(),
            reason: reason.to_string(),
        }
    }
}
