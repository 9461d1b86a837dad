//! loom's locks and atomics, called as the crate calls its own.

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a model that panics has ended")
    }
}
