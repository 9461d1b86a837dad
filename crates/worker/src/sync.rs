//! What [`crate::gate`], [`crate::line`], [`crate::bell`], [`crate::turns`] and [`crate::offer`] are made of. Their model checks put
//! loom's in its place.

pub(crate) use parking_lot::Mutex;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
