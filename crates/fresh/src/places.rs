//! How many sandboxes there may be.
//!
//! All threads take their places from one number, and a thread that has given one back keeps it for its next sandbox: as long as it needs
//! no more at once than before, it writes nothing that other threads write. Who finds no place has all threads give up what they keep.

use crate::{Spare, thread_index};
use parking_lot::Mutex;
use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Before there are as many places again as were asked for, once the host has refused something.
const LOWERED: Duration = Duration::from_secs(1);

/// A thread keeps no more than this.
const KEPT: u32 = 4;
/// Threads beyond these share what they keep.
const THREADS: usize = 256;

/// See the module.
pub struct Places {
    common: Arc<Common>,
    threads: Box<[OnceLock<Arc<Thread>>]>,
    refusals: Arc<AtomicU64>,
}

/// What a thread keeps.
#[repr(align(128))]
struct Thread {
    kept: AtomicU32,
    common: Arc<Common>,
}

/// Those that are taken, by sandboxes or kept, against all there are.
#[repr(align(128))]
struct Common {
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
    /// So many. `refusals` counts how often the host has refused what a sandbox needed that had a place.
    pub fn new(total: u32, spare: Option<Spare>, refusals: Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self {
            common: Arc::new(Common {
                taken: AtomicU32::new(0),
                most: AtomicU32::new(total),
                total,
                bound: Mutex::new(Bound { lowered: None, spare }),
            }),
            threads: (0..THREADS).map(|_| OnceLock::new()).collect(),
            refusals,
        })
    }

    /// So many at once. `None` if they are not free.
    pub fn take(&self, places: u32) -> Option<Place> {
        let thread = self.threads[thread_index() % THREADS].get_or_init(|| {
            Arc::new(Thread {
                kept: AtomicU32::new(0),
                common: self.common.clone(),
            })
        });
        let taken = thread.take_kept(places) || self.common.take(places) || {
            self.reclaim();
            self.common.take(places)
        };
        taken.then(|| Place {
            of: thread.clone(),
            places,
        })
    }

    /// Has all threads give up what they keep.
    fn reclaim(&self) {
        for thread in self.threads.iter().filter_map(OnceLock::get) {
            let kept = thread.kept.swap(0, Ordering::Relaxed);
            self.common.taken.fetch_sub(kept, Ordering::Relaxed);
        }
    }

    /// The host has refused what a sandbox needs that has a place: for a while there are no more places than are taken. Says when
    /// it may be tried again.
    pub fn refused(&self) -> Instant {
        // Nobody keeps any from now on until there are as many places again: what is taken is what sandboxes have.
        self.reclaim();
        if self.common.lower() {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
        Instant::now() + crate::AGAIN
    }

    /// Whether that has ever happened.
    pub fn was_refused(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) > 0
    }
}

impl Thread {
    fn take_kept(&self, places: u32) -> bool {
        let kept = &self.kept;
        let fewer = |kept: u32| kept.checked_sub(places);
        kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer)
            .is_ok()
    }
}

impl Common {
    fn take(&self, places: u32) -> bool {
        let taken = self
            .taken
            .fetch_add(places, Ordering::Relaxed)
            .saturating_add(places);
        let most = self.most.load(Ordering::Relaxed);
        let free = taken <= most || (most < self.total && self.raise() && taken <= self.total);
        if !free {
            self.taken.fetch_sub(places, Ordering::Relaxed);
        }
        free
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
    of: Arc<Thread>,
    places: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Thread { kept, common } = &*self.of;
        let all_there = common.most.load(Ordering::Relaxed) == common.total;
        if all_there && kept.load(Ordering::Relaxed) + self.places <= KEPT {
            kept.fetch_add(self.places, Ordering::Relaxed);
        } else {
            common.taken.fetch_sub(self.places, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn places(total: u32) -> Arc<Places> {
        Places::new(total, None, Arc::default())
    }

    #[test]
    fn what_a_thread_keeps_is_there_for_others() {
        let places = places(3);
        let its = places.clone();
        thread::spawn(move || drop([its.take(1), its.take(1)]))
            .join()
            .expect("it ends");
        assert_eq!(places.common.taken.load(Ordering::Relaxed), 2, "they are kept");
        let all = places.take(3);
        assert!(all.is_some());
        assert!(places.take(1).is_none());
        drop(all);
        let each: Vec<_> = (0..3).map(|_| places.take(1)).collect();
        assert!(each.iter().all(Option::is_some) && places.take(1).is_none());
        drop(each);
        assert!(places.take(4).is_none() && places.take(3).is_some());
    }

    #[test]
    fn a_thread_keeps_a_few_of_the_places_it_gives_back() {
        let places = places(100);
        for _ in 0..10 {
            drop([places.take(2), places.take(1)]);
        }
        assert_eq!(places.common.taken.load(Ordering::Relaxed), 3);
        let many: Vec<_> = (0..10).map(|_| places.take(1)).collect();
        drop(many);
        assert_eq!(places.common.taken.load(Ordering::Relaxed), KEPT);
    }

    #[test]
    fn nobody_keeps_any_once_the_host_has_refused() {
        let places = places(10);
        drop(places.take(1));
        let held: Vec<_> = (0..4).map(|_| places.take(1)).collect();
        places.refused();
        assert!(places.was_refused());
        // One of the four is the caller's, who could not use it.
        assert!(places.take(1).is_none());
        drop(held);
        assert_eq!(places.common.taken.load(Ordering::Relaxed), 0);
        let three: Vec<_> = (0..3).map(|_| places.take(1)).collect();
        assert!(three.iter().all(Option::is_some) && places.take(1).is_none());
    }
}
