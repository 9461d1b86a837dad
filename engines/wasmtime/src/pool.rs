//! What all sandboxes of an engine share: the places, and the instances between two requests.

use crate::{idle::Idle, pages::Pages};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

pub(crate) struct Pool {
    /// How many sandboxes live, against how many may.
    taken: AtomicU32,
    total: u32,
    pub(crate) idle: Idle,
    /// None where the kernel cannot tell which pages were written: then every instance is a new one.
    pub(crate) pages: Option<Pages>,
    /// Bytes of written pages that an instance may have and still be restored.
    pub(crate) keep_resident: usize,
}

impl Pool {
    pub(crate) fn new(total: u32, keep_resident: usize, threads: usize) -> Self {
        Self {
            taken: AtomicU32::new(0),
            total,
            idle: Idle::new(threads),
            pages: Pages::open(),
            keep_resident,
        }
    }

    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        (taken < self.total).then_some(place)
    }
}

/// A sandbox's place, given back when dropped.
pub(crate) struct Place(Arc<Pool>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
