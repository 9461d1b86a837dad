//! Whether others may steal from a core. Model-checked by `tests/loom_offer.rs`, which is why its atomic comes from
//! [`crate::sync`].

use crate::sync::{AtomicBool, Ordering};

/// Set while the owner found it worth others' while, or does not come to what it has.
///
/// The owner fills its deque before it offers, and a core that goes to sleep says so before it looks at offers: an idle core sees
/// the offer, or the owner sees the idle core. A thief takes back an offer of nothing, so that it looks no further; should the
/// owner have filled the deque meanwhile, the offer stands.
pub(crate) struct Offer(AtomicBool);

impl Offer {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    pub(crate) fn make(&self) {
        // An exchange, not a store: between it and a thief's exchange one is the later.
        self.0.swap(true, Ordering::SeqCst);
    }

    pub(crate) fn withdraw(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    pub(crate) fn stands(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// A thief found nothing.
    pub(crate) fn found_empty(&self, is_empty: impl FnOnce() -> bool) {
        // An exchange, too: who takes back an offer has seen what it was made for.
        if self.0.swap(false, Ordering::SeqCst) && !is_empty() {
            self.make();
        }
    }
}
