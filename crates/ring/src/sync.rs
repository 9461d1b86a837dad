//! What [`crate::channel::ring`] is made of. Its model check puts loom's in its place, and has messages of fewer words.

pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Of a message.
pub(crate) const WORDS: usize = 8;
