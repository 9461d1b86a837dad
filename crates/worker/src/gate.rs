//! A number of places over all cores, and those who wait for one. Model-checked by `tests/loom_gate.rs`, which is why
//! its locks and atomics come from [`crate::sync`].
//!
//! A free place lies where it was given back, and whoever looks for one looks there first: as long as each core finds the places that
//! its own requests gave back, no core writes what another one's cache holds.

use crate::{
    line::{Line, Waiting},
    sync::{AtomicI32, Ordering},
};
use crossbeam_utils::CachePadded;

/// See the module's introduction.
pub(crate) struct Gate<T> {
    places: u32,
    /// Free places, by the core that gave them back. One who looks for a place where there is none makes it one less than none, for a
    /// moment.
    free: Box<[CachePadded<AtomicI32>]>,
    line: CachePadded<Line<T>>,
}

impl<T> Gate<T> {
    /// All of them free, and as many for each core as for the next one.
    pub(crate) fn new(places: u32, cores: usize) -> Self {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX).max(1);
        // No node has room for as many sandboxes as would not fit.
        let places = places.min(i32::MAX.unsigned_abs());
        let part = |core: u32| places / cores + u32::from(core < places % cores);
        let free = |core| CachePadded::new(AtomicI32::new(i32::try_from(part(core)).unwrap_or(i32::MAX)));
        Self {
            places,
            free: (0..cores).map(free).collect(),
            line: CachePadded::new(Line::new()),
        }
    }

    /// How many places are taken. Looks at all cores'.
    pub(crate) fn taken(&self) -> u32 {
        let free = self.free.iter().map(|free| free.load(Ordering::Relaxed));
        let free = free.fold(0_u32, |sum, free| {
            sum.saturating_add(u32::try_from(free).unwrap_or(0))
        });
        self.places.saturating_sub(free)
    }

    /// Takes a place, or keeps whoever wants one until another leaves.
    pub(crate) fn enter(&self, one: T, core: usize) -> Option<T> {
        if self.take(core, false) {
            return Some(one);
        }
        match self.line.wait(
            one,
            u32::MAX,
            |_, _| false,
            || self.take(core, true).then_some(()),
        ) {
            // How many wait is bounded where they are admitted.
            Waiting::Not(one, ()) | Waiting::Full(one) => Some(one),
            Waiting::Kept => None,
        }
    }

    /// Places do not move: one that is free all the while is found, and one that is given back meanwhile finds who waits. Who makes sure
    /// asks for a place where there seems to be none, too.
    fn take(&self, core: usize, sure: bool) -> bool {
        let (before, from) = self.free.split_at(core % self.free.len());
        from.iter().chain(before).any(|free| {
            if !sure && free.load(Ordering::Relaxed) <= 0 {
                return false;
            }
            let taken = free.fetch_sub(1, Ordering::SeqCst) > 0;
            if !taken {
                free.fetch_add(1, Ordering::SeqCst);
            }
            taken
        })
    }

    /// Gives a place back. Returns one who waited for it, to enter again.
    pub(crate) fn leave(&self, core: usize) -> Option<T> {
        if let Some(free) = self.free.get(core % self.free.len()) {
            free.fetch_add(1, Ordering::SeqCst);
        }
        self.line.next()
    }

    /// How many wait.
    pub(crate) fn held(&self) -> u32 {
        self.line.held()
    }

    /// Whether anybody waits.
    pub(crate) fn is_holding(&self) -> bool {
        self.line.is_holding()
    }

    /// Takes out those who wait and have waited too long.
    pub(crate) fn sweep(&self, too_long: impl Fn(&T) -> bool) -> Vec<T> {
        self.line.sweep(too_long)
    }
}
