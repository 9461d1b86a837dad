//! loom's atomics, called as the crate calls its own.

pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Two can be torn.
pub(crate) const WORDS: usize = 2;
