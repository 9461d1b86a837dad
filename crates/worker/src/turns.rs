//! Whose turn it is on a core, and who wants it. Model-checked by `tests/loom_turns.rs`, which is why its atomics come from
//! [`crate::sync`].
//!
//! Whoever brings a core mail publishes it first and then looks at the turn; the core publishes the turn and then looks for mail.
//! The same holds of the ticker: it says that a guest takes long, or that it sleeps, before it looks for mail and for turns.
//! All of it is sequentially consistent, so whichever of two comes second sees what the other did before.

use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// Of one core.
pub(crate) struct Turns {
    /// Odd while a guest runs; each turn adds two. Written by the core.
    turn: AtomicU64,
    /// The guest that runs is known to take long.
    long: AtomicBool,
    /// The guest is to give its core back: see [`contract::Until`].
    asked: AtomicBool,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self {
            turn: AtomicU64::new(0),
            long: AtomicBool::new(false),
            asked: AtomicBool::new(false),
        }
    }

    /// A guest is about to run. If it is known to take long, mail that came before is for the core to look for: see [`Turns::ask`].
    pub(crate) fn begin(&self, turn: u64, long: bool) {
        self.asked.store(false, Ordering::Relaxed);
        self.long.store(long, Ordering::Relaxed);
        self.turn.store(turn, Ordering::SeqCst);
    }

    /// It does not run any more.
    pub(crate) fn end(&self, turn: u64) {
        self.turn.store(turn, Ordering::Release);
    }

    /// Odd while a guest runs.
    pub(crate) fn now(&self) -> u64 {
        self.turn.load(Ordering::SeqCst)
    }

    /// Whether a guest runs that is known to take long.
    pub(crate) fn is_long(&self) -> bool {
        self.long.load(Ordering::SeqCst) && self.now() % 2 == 1
    }

    /// The guest that runs takes long. True for the first who says so: mail that came before is for that one to look for.
    pub(crate) fn found_long(&self) -> bool {
        !self.long.swap(true, Ordering::SeqCst)
    }

    /// Has a guest that takes long give its core back, if there is one: then its engine is to be told.
    #[must_use]
    pub(crate) fn ask(&self) -> bool {
        let long = self.is_long();
        if long {
            self.asked.store(true, Ordering::SeqCst);
        }
        long
    }

    /// What the guest looks at.
    pub(crate) fn asked(&self) -> &AtomicBool {
        &self.asked
    }
}

/// The sleep of the ticker while no guest runs.
pub(crate) struct Nap(AtomicBool);

impl Nap {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// The ticker is about to sleep, unless it finds that a guest has begun.
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn goes_on(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn end(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// A guest has begun. True for the one who is to wake the ticker.
    pub(crate) fn interrupt(&self) -> bool {
        self.goes_on() && self.0.swap(false, Ordering::SeqCst)
    }
}
