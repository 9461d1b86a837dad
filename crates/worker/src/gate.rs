//! A number of places over all cores, and those who wait for one. Model-checked by `tests/loom_gate.rs`, which is why
//! its locks and atomics come from [`crate::sync`].

use crate::{
    line::{Line, Waiting},
    sync::{AtomicU32, Ordering},
};

/// See the module's introduction.
pub(crate) struct Gate<T> {
    places: u32,
    taken: AtomicU32,
    line: Line<T>,
}

impl<T> Gate<T> {
    pub(crate) fn new(places: u32) -> Self {
        Self {
            places,
            taken: AtomicU32::new(0),
            line: Line::new(),
        }
    }

    /// How many places are taken; for a moment it may be more than there are.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place, or keeps whoever wants one until another leaves.
    pub(crate) fn enter(&self, one: T) -> Option<T> {
        if self.take() {
            return Some(one);
        }
        match self
            .line
            .wait(one, u32::MAX, |_, _| false, || self.take().then_some(()))
        {
            // How many wait is bounded where they are admitted.
            Waiting::Not(one, ()) | Waiting::Full(one) => Some(one),
            Waiting::Kept => None,
        }
    }

    fn take(&self) -> bool {
        if self.taken.fetch_add(1, Ordering::SeqCst) < self.places {
            return true;
        }
        self.taken.fetch_sub(1, Ordering::SeqCst);
        false
    }

    /// Gives a place back. Returns one who waited for it, to enter again.
    pub(crate) fn leave(&self) -> Option<T> {
        self.taken.fetch_sub(1, Ordering::SeqCst);
        self.line.next()
    }

    /// How many wait.
    pub(crate) fn held(&self) -> u32 {
        self.line.held()
    }

    /// Whether anybody waits.
    pub(crate) fn is_holding(&self) -> bool {
        self.line.is_holding()
    }

    /// Takes out those who wait and have waited too long.
    pub(crate) fn sweep(&self, too_long: impl Fn(&T) -> bool) -> Vec<T> {
        self.line.sweep(too_long)
    }
}
