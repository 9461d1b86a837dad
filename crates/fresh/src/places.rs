//! How many sandboxes there may be.

use crate::Spare;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Before there are as many places again as were asked for, once the host has refused something.
const LOWERED: Duration = Duration::from_secs(1);

/// Those that are taken, against all there are.
pub struct Places {
    taken: AtomicU32,
    /// What can be taken now.
    most: AtomicU32,
    total: u32,
    bound: Mutex<Bound>,
    refusals: Arc<AtomicU64>,
}

struct Bound {
    /// When there became fewer places than the total.
    lowered: Option<Instant>,
    /// Held while there are as many places as the total.
    spare: Option<Spare>,
}

impl Places {
    /// So many. `refusals` counts how often the host has refused what a sandbox needed that had a place.
    pub fn new(total: u32, spare: Option<Spare>, refusals: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicU32::new(0),
            most: AtomicU32::new(total),
            total,
            bound: Mutex::new(Bound { lowered: None, spare }),
            refusals,
        })
    }

    /// So many at once. `None` if they are not free.
    pub fn take(self: &Arc<Self>, places: u32) -> Option<Place> {
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

    /// The host has refused what a sandbox needs that has a place: for a while there are no more places than are taken. Says when
    /// it may be tried again.
    pub fn refused(&self) -> Instant {
        if self.lower() {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        Instant::now() + crate::AGAIN
    }

    /// Whether that has ever happened.
    pub fn was_refused(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > 0
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
pub struct Place {
    of: Arc<Places>,
    places: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.taken.fetch_sub(self.places, Ordering::Relaxed);
    }
}
