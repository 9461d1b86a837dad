//! A number of places over all cores, and those who wait for one. Model-checked by `tests/loom_gate.rs`, which is why
//! its locks and atomics come from [`crate::sync`].

use crate::sync::{AtomicU32, Mutex, Ordering};
use std::collections::VecDeque;

/// See the module's introduction.
pub(crate) struct Gate<T> {
    places: u32,
    taken: AtomicU32,
    held: Mutex<VecDeque<T>>,
    holding: AtomicU32,
}

impl<T> Gate<T> {
    pub(crate) fn new(places: u32) -> Self {
        Self {
            places,
            taken: AtomicU32::new(0),
            held: Mutex::new(VecDeque::new()),
            holding: AtomicU32::new(0),
        }
    }

    /// How many places are taken; for a moment it may be more than there are.
    pub(crate) fn taken(&self) -> u32 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Takes a place, or keeps whoever wants one until another leaves.
    ///
    /// Taking and keeping race with [`Gate::leave`] on another core: the keeper announces itself before it looks at the
    /// places once more, the leaver frees its place before it looks for keepers. Whichever changed `taken` later has
    /// seen what the other did before, so one of them acts.
    pub(crate) fn enter(&self, one: T) -> Option<T> {
        if self.take() {
            return Some(one);
        }
        let mut held = self.held.lock();
        self.holding.fetch_add(1, Ordering::SeqCst);
        if self.take() {
            self.holding.fetch_sub(1, Ordering::SeqCst);
            return Some(one);
        }
        held.push_back(one);
        None
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
        if self.holding.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let next = self.held.lock().pop_front()?;
        self.holding.fetch_sub(1, Ordering::SeqCst);
        Some(next)
    }

    /// How many wait.
    pub(crate) fn held(&self) -> u32 {
        self.holding.load(Ordering::Relaxed)
    }

    /// Whether anybody waits.
    pub(crate) fn is_holding(&self) -> bool {
        self.holding.load(Ordering::SeqCst) > 0
    }

    /// Takes out those who wait and have waited too long.
    pub(crate) fn sweep(&self, too_long: impl Fn(&T) -> bool) -> Vec<T> {
        let mut held = self.held.lock();
        let (over, kept) = held.drain(..).partition::<VecDeque<T>, _>(too_long);
        *held = kept;
        self.holding
            .fetch_sub(u32::try_from(over.len()).unwrap_or(u32::MAX), Ordering::SeqCst);
        over.into()
    }
}
