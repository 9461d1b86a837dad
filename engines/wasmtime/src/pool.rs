//! What all sandboxes of an engine share: the places, and the instances between two requests.

use crate::{component, guard::Guards, idle::Idle, instance::Instance, pages::Pages};
use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

pub(crate) struct Pool {
    sandboxes: Arc<Places>,
    /// Of instances that never run.
    pristine: Arc<Places>,
    /// Instances of modules,
    pub(crate) idle: Idle<Box<Instance>>,
    /// and of components, that are as new ones.
    pub(crate) components: Idle<Box<component::Instance>>,
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
            sandboxes: Places::new(total),
            pristine: Places::new(PRISTINE),
            guards: Arc::new(Guards::new(2 * idle.most())),
            idle,
            components: Idle::new(threads),
            pages: Pages::open(),
            keep_resident,
        }
    }

    /// So many places at once: one for each memory.
    pub(crate) fn take(&self, places: u32) -> Option<Place> {
        self.sandboxes.take(places)
    }

    /// A place for an instance that never runs.
    pub(crate) fn take_kept(&self) -> Option<Place> {
        self.pristine.take(1)
    }
}

/// Components whose first state is kept at once; others are made anew for each request.
pub(crate) const PRISTINE: u32 = 256;

/// Those that are taken, against all there are.
struct Places {
    taken: AtomicU32,
    total: u32,
}

impl Places {
    fn new(total: u32) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU32::new(0),
            total,
        })
    }

    fn take(self: &Arc<Self>, places: u32) -> Option<Place> {
        let taken = self.taken.fetch_add(places, Ordering::Relaxed);
        let place = Place {
            of: self.clone(),
            places,
        };
        (taken.saturating_add(places) <= self.total).then_some(place)
    }
}

/// A sandbox's places, given back when dropped.
pub(crate) struct Place {
    of: Arc<Places>,
    places: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.places, Ordering::Relaxed);
    }
}
