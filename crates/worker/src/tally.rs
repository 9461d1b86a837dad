//! How many requests of a version wait, counted by the core that read them.
//!
//! A version's queue has a bound, and each core has a part of it. As long as all cores keep within their parts all of them keep within the
//! bound, and nobody need look at what others have: that lies in others' caches, and changes with each request there. Only when a core
//! goes beyond its part, which it may while others have less, does everybody count all.

use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Tally {
    /// Of the bound, each core's.
    part: u32,
    by_core: Box<[CachePadded<AtomicU32>]>,
    /// How many cores have all of their part, or more.
    beyond: CachePadded<AtomicU32>,
}

impl Tally {
    pub(crate) fn new(bound: u32, cores: usize) -> Self {
        let parts = u32::try_from(cores).unwrap_or(u32::MAX).max(1);
        Self {
            part: bound / parts,
            by_core: (0..parts).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            beyond: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Of a core that there is.
    fn of(&self, core: usize) -> &AtomicU32 {
        &self.by_core[core]
    }

    /// One more waits.
    pub(crate) fn add(&self, core: usize) {
        if self.of(core).fetch_add(1, Ordering::Relaxed) + 1 == self.part {
            self.beyond.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// One of those that this core counted waits no more, whichever core says so.
    pub(crate) fn remove(&self, core: usize) {
        if self.of(core).fetch_sub(1, Ordering::Relaxed) == self.part {
            self.beyond.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many of this core's wait, if no core has more than its part of the bound.
    pub(crate) fn within(&self, core: usize) -> Option<u32> {
        let all_within = self.part > 0 && self.beyond.load(Ordering::Relaxed) == 0;
        all_within.then(|| self.of(core).load(Ordering::Relaxed))
    }

    /// All that wait.
    pub(crate) fn all(&self) -> u32 {
        let counts = self.by_core.iter().map(|count| count.load(Ordering::Relaxed));
        counts.fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_counted_once_a_core_has_its_part() {
        let tally = Tally::new(9, 2);
        for n in 0..4 {
            assert_eq!((tally.within(0), tally.within(1)), (Some(n), Some(0)));
            tally.add(0);
        }
        assert_eq!((tally.within(0), tally.within(1), tally.all()), (None, None, 4));
        tally.add(1);
        tally.add(0);
        assert_eq!((tally.within(1), tally.all()), (None, 6));
        for _ in 0..2 {
            tally.remove(0);
        }
        assert_eq!(
            (tally.within(0), tally.within(1), tally.all()),
            (Some(3), Some(1), 4)
        );
        // Fewer places than cores: there is no part to keep within.
        assert_eq!(Tally::new(1, 2).within(0), None);
        assert_eq!(Tally::new(0, 1).within(0), None);
    }
}
