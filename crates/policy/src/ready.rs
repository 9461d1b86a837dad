//! Jobs that can run, in an order.

use crate::Rank;
use contract::Ticket;
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// Two queues in the same order: who has a sandbox, and who has none and could be another core's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ready {
    fresh: BinaryHeap<Reverse<Entry>>,
    begun: BinaryHeap<Reverse<Entry>>,
    serial: u64,
    lengths: Lengths,
    /// All that is left of all.
    work: Duration,
    /// No job has come after this one since there were none.
    last: Option<Rank>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: Rank,
    /// Orders equals.
    serial: u64,
    index: u32,
    left: Duration,
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.fresh.len() + self.begun.len()
    }

    pub(crate) fn put(&mut self, rank: Rank, ticket: Ticket, left: Duration) {
        self.serial += 1;
        let (queue, index) = match ticket {
            Ticket::Fresh(index) => (&mut self.fresh, index),
            Ticket::Begun(index) => (&mut self.begun, index),
        };
        queue.push(Reverse(Entry {
            rank,
            serial: self.serial,
            index,
            left,
        }));
        self.work += left;
        self.lengths.add(left);
        self.last = self.last.max(Some(rank));
    }

    pub(crate) fn take(&mut self) -> Option<Ticket> {
        let fresh = match (self.fresh.peek(), self.begun.peek()) {
            // Reversed: the greater is the earlier.
            (Some(fresh), Some(begun)) => fresh > begun,
            (fresh, _) => fresh.is_some(),
        };
        if fresh {
            return self.give();
        }
        let Reverse(Entry { index, left, .. }) = self.begun.pop()?;
        self.gone(left);
        Some(Ticket::Begun(index))
    }

    /// The first of those without a sandbox.
    pub(crate) fn give(&mut self) -> Option<Ticket> {
        let Reverse(Entry { index, left, .. }) = self.fresh.pop()?;
        self.gone(left);
        Some(Ticket::Fresh(index))
    }

    fn gone(&mut self, left: Duration) {
        self.work -= left;
        self.lengths.remove(left);
        if self.len() == 0 {
            self.last = None;
        }
    }

    /// The work that comes before a job of this rank. Where that is not more than `enough`, something that is not more either; where
    /// it is, at least something that is more.
    pub(crate) fn ahead_of(&self, rank: Rank, enough: Duration) -> Duration {
        // Nearly always one of both: under light load everything fits, and under heavy load who comes last runs last.
        if self.work <= enough || self.last <= Some(rank) {
            return self.work;
        }
        let mut ahead = Duration::ZERO;
        for Reverse(entry) in self.fresh.iter().chain(&self.begun) {
            if entry.rank <= rank {
                ahead += entry.left;
                if ahead > enough {
                    break;
                }
            }
        }
        ahead
    }

    /// How long the shortest takes, within a factor of two; none if nothing waits of which anything is known.
    pub(crate) fn shortest(&self) -> Option<Duration> {
        self.lengths.shortest()
    }
}

/// Counts jobs by the magnitude of their length.
#[derive(Clone, Debug)]
struct Lengths {
    counts: [u32; u64::BITS as usize],
    /// Which counts are not zero.
    present: u64,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            counts: [0; u64::BITS as usize],
            present: 0,
        }
    }
}

impl Lengths {
    /// Bit lengths of microseconds, which fit 64; 0 is for lengths that are not known.
    fn class(length: Duration) -> usize {
        let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        (u64::BITS - micros.leading_zeros()).min(u64::BITS - 1) as usize
    }

    fn add(&mut self, length: Duration) {
        let class = Self::class(length);
        self.counts[class] += 1;
        self.present |= 1 << class;
    }

    fn remove(&mut self, length: Duration) {
        let class = Self::class(length);
        self.counts[class] -= 1;
        if self.counts[class] == 0 {
            self.present &= !(1 << class);
        }
    }

    fn shortest(&self) -> Option<Duration> {
        let known = self.present & !1;
        (known != 0).then(|| Duration::from_micros(1 << known.trailing_zeros()))
    }
}
