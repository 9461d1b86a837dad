//! What all sandboxes of an engine share: the places, and the instances between two requests.

use crate::{guard::Guards, idle::Idle, pages::Pages};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

pub(crate) struct Pool {
    /// Places of the sandboxes that live, against all there are.
    taken: AtomicU32,
    total: u32,
    pub(crate) idle: Idle,
    pub(crate) guards: Arc<Guards>,
    /// None where the kernel cannot tell which pages were written: then every instance is a new one.
    pub(crate) pages: Option<Pages>,
    /// Bytes of written pages that an instance may have and still be restored.
    pub(crate) keep_resident: usize,
}

impl Pool {
    pub(crate) fn new(total: u32, keep_resident: usize, threads: usize) -> Self {
        let idle = Idle::new(threads);
        Self {
            taken: AtomicU32::new(0),
            total,
            guards: Arc::new(Guards::new(idle.most())),
            idle,
            pages: Pages::open(),
            keep_resident,
        }
    }

    /// So many places at once: one for each memory.
    pub(crate) fn take(self: &Arc<Self>, places: u32) -> Option<Place> {
        let taken = self.taken.fetch_add(places, Ordering::Relaxed);
        let place = Place {
            pool: self.clone(),
            places,
        };
        (taken.saturating_add(places) <= self.total).then_some(place)
    }
}

/// A sandbox's places, given back when dropped.
pub(crate) struct Place {
    pool: Arc<Pool>,
    places: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.taken.fetch_sub(self.places, Ordering::Relaxed);
    }
}
