//! Wakes a core out of its wait. Model-checked by `tests/loom_bell.rs`, which is why its atomics come from
//! [`crate::sync`].

use crate::sync::{AtomicBool, Ordering};

/// What a core waits for: an eventfd.
pub(crate) trait Event {
    /// Ends the wait, be it the next one.
    fn signal(&self);
    /// Forgets all signals so far.
    fn clear(&self);
}

/// A core that is about to wait says so ([`Bell::expect`]), looks once more whether there is anything to do, and only
/// then waits; a ringer publishes its work first and then rings. Both exchange the same flag, so whichever comes second
/// sees what the other did before: the core sees the work, or the ringer sees the core waiting.
pub(crate) struct Bell<E> {
    event: E,
    waiting: AtomicBool,
}

impl<E: Event> Bell<E> {
    pub(crate) fn new(event: E) -> Self {
        Self {
            event,
            waiting: AtomicBool::new(false),
        }
    }

    pub(crate) fn event(&self) -> &E {
        &self.event
    }

    pub(crate) fn expect(&self) {
        // An exchange, not a store: see above.
        self.waiting.swap(true, Ordering::SeqCst);
    }

    pub(crate) fn unexpect(&self) {
        self.waiting.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Wakes the core if it waits.
    pub(crate) fn ring(&self) -> bool {
        let waited = self.waiting.swap(false, Ordering::SeqCst);
        if waited {
            self.event.signal();
        }
        waited
    }

    /// Ends the core's wait, be it the next one: for news that it does not look for before it waits.
    pub(crate) fn interrupt(&self) {
        self.event.signal();
    }

    /// The core has seen the event.
    pub(crate) fn quiet(&self) {
        self.event.clear();
    }
}
