//! Those who wait for something that others give back, on whichever core. Model-checked with the gate, which is made of one.

use crate::sync::{AtomicU32, Mutex, Ordering};
use std::collections::VecDeque;

/// See the module's introduction.
pub(crate) struct Line<T> {
    held: Mutex<VecDeque<T>>,
    holding: AtomicU32,
}

/// What became of one that may have to wait.
pub(crate) enum Waiting<T, R> {
    /// It need not.
    Not(T, R),
    /// It does.
    Kept,
    /// It may not: as many do as may.
    Full(T),
}

impl<T> Line<T> {
    pub(crate) fn new() -> Self {
        Self {
            held: Mutex::new(VecDeque::new()),
            holding: AtomicU32::new(0),
        }
    }

    /// Keeps one before whom `goes_before` says, of `most` at the same time, unless `take` has an answer after all.
    ///
    /// Taking and keeping race with giving back on another core: the keeper announces itself before it tries once more, whoever
    /// gives back does so before it looks for keepers. Both change one number and read the other, all sequentially consistent; so
    /// one of them sees what the other did, and acts.
    pub(crate) fn wait<R>(
        &self,
        one: T,
        most: u32,
        goes_before: impl Fn(&T, &T) -> bool,
        take: impl FnOnce() -> Option<R>,
    ) -> Waiting<T, R> {
        let mut held = self.held.lock();
        let before = self.holding.fetch_add(1, Ordering::SeqCst);
        if let Some(taken) = take() {
            self.holding.fetch_sub(1, Ordering::SeqCst);
            return Waiting::Not(one, taken);
        }
        if before >= most {
            self.holding.fetch_sub(1, Ordering::SeqCst);
            return Waiting::Full(one);
        }
        let place = held.iter().rposition(|held| !goes_before(&one, held));
        held.insert(place.map_or(0, |place| place + 1), one);
        Waiting::Kept
    }

    /// One who waited, to try again. Called after something was given back.
    pub(crate) fn next(&self) -> Option<T> {
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
