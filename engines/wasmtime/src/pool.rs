//! What all sandboxes of an engine share: the places, and the instances between two requests.

use crate::{
    Options, component,
    guard::Guards,
    host::Park,
    idle::{self, Idle},
    instance::Instance,
    pages::Pages,
    spare::Spare,
    turn,
};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
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
    refusals: Arc<AtomicU64>,
}

impl Pool {
    pub(crate) fn new(options: &Options, threads: usize) -> Self {
        Self {
            sandboxes: Places::new(options.sandboxes, Spare::hold()),
            pristine: Places::new(PRISTINE, None),
            guards: Arc::new(Guards::new(2 * idle::most(threads))),
            idle: Idle::new(threads),
            components: Idle::new(threads),
            pages: Pages::open(),
            keep_resident: options.keep_resident,
            refusals: options.refusals.clone(),
        }
    }

    /// So many places at once: one for each memory.
    pub(crate) fn take(&self, places: u32) -> Option<Place> {
        self.sandboxes.take(places)
    }

    /// The host has refused what a sandbox needs that has a place: for a while there are no more places than are taken. Waits until
    /// it may be tried again.
    pub(crate) async fn refused(&self) {
        if self.sandboxes.lower() {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        turn::wait_until(Instant::now() + AGAIN);
        Park::default().await;
    }

    /// Whether that has ever happened.
    pub(crate) fn was_refused(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > 0
    }

    /// A place for an instance that never runs.
    pub(crate) fn take_kept(&self) -> Option<Place> {
        self.pristine.take(1)
    }
}

/// Whether an instance could not be made because the host lacks maps or memory for it.
pub(crate) fn is_refused(error: &wasmtime::Error) -> bool {
    error.downcast_ref() == Some(&Errno::NOMEM)
        || error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.raw_os_error() == Some(Errno::NOMEM.raw_os_error()))
}

/// Before a sandbox tries again that the host has refused something;
const AGAIN: Duration = Duration::from_millis(10);
/// and before there are as many places again as were asked for.
const LOWERED: Duration = Duration::from_secs(1);

/// Components whose first state is kept at once; others are made anew for each request.
pub(crate) const PRISTINE: u32 = 256;

/// Those that are taken, against all there are.
struct Places {
    taken: AtomicU32,
    /// What can be taken now.
    most: AtomicU32,
    total: u32,
    bound: Mutex<Bound>,
}

struct Bound {
    /// When there became fewer places than the total.
    lowered: Option<Instant>,
    /// Held while there are as many places as the total.
    spare: Option<Spare>,
}

impl Places {
    fn new(total: u32, spare: Option<Spare>) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU32::new(0),
            most: AtomicU32::new(total),
            total,
            bound: Mutex::new(Bound { lowered: None, spare }),
        })
    }

    fn take(self: &Arc<Self>, places: u32) -> Option<Place> {
        let taken = self.taken.fetch_add(places, Ordering::Relaxed);
        let place = Place {
            of: self.clone(),
            places,
        };
        let taken = taken.saturating_add(places);
        let most = self.most.load(Ordering::Relaxed);
        let free = taken <= most || (most < self.total && self.raise() && taken <= self.total);
        free.then_some(place)
    }

    /// No more than are taken now, but for the caller's. Whether there were more before.
    fn lower(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed).saturating_sub(1).max(1);
        let mut bound = self.bound.lock();
        bound.spare = None;
        let fewer = self.most.fetch_min(taken, Ordering::Relaxed) > taken;
        if fewer {
            bound.lowered = Some(Instant::now());
        }
        fewer
    }

    /// As many as there were, once they have been fewer for a while and the kernel has maps to spare again.
    fn raise(&self) -> bool {
        let mut bound = self.bound.lock();
        let Some(since) = bound.lowered else {
            return true;
        };
        if since.elapsed() < LOWERED {
            return false;
        }
        bound.spare = bound.spare.take().or_else(Spare::hold);
        let over = bound.spare.is_some();
        if over {
            self.most.store(self.total, Ordering::Relaxed);
        }
        bound.lowered = (!over).then(Instant::now);
        over
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
