//! Who of one tenant's jobs runs first.

use crate::SHORTEST_QUANTUM;
use contract::{Job, Time};
use std::{cmp::Reverse, time::Duration};

/// The smaller runs earlier; equals in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    urgency: Reverse<i8>,
    at: Time,
}

impl Rank {
    fn plain(at: Time) -> Self {
        Self {
            urgency: Reverse(0),
            at,
        }
    }
}

/// An order among jobs that can run.
pub trait Order: Clone + Send {
    /// A job's place, which it keeps until it has run.
    fn rank(&self, job: &Job) -> Rank;

    /// For how long one runs at a time, of a `quantum` at most, while others wait of which the shortest is expected to take so
    /// long.
    fn quantum(&self, quantum: Duration, _shortest: Option<Duration>) -> Duration {
        quantum
    }
}

/// First come first served, and to the back of the queue after each quantum, which is shorter while short work waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

/// While short work waits, everybody runs for so many times its length.
const TIMES_THE_SHORTEST: u32 = 2;

impl Order for RoundRobin {
    fn rank(&self, job: &Job) -> Rank {
        Rank::plain(job.enqueued)
    }

    fn quantum(&self, quantum: Duration, shortest: Option<Duration>) -> Duration {
        let fitting = shortest.map(|shortest| shortest * TIMES_THE_SHORTEST);
        fitting.map_or(quantum, |fitting| fitting.max(SHORTEST_QUANTUM).min(quantum))
    }
}

/// The higher priority first, then the earlier deadline. A job whose function declares none has the one that a slowdown of
/// [`Deadline::SLOWDOWN`] would give it: so short work goes before long work, and nobody waits for ever. After each turn what is
/// left of it counts as if it had come then, if that is later: a long job that is late already would else go before all short
/// ones to its end, and make those late, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deadline;

impl Deadline {
    /// How many times its length a job may take that has no deadline of its own.
    pub const SLOWDOWN: u32 = 10;
}

impl Order for Deadline {
    fn rank(&self, job: &Job) -> Rank {
        let usual = || {
            let whole = job.arrived.after(length(job).saturating_mul(Self::SLOWDOWN));
            whole.max(job.enqueued.after(left(job).saturating_mul(Self::SLOWDOWN)))
        };
        Rank {
            urgency: Reverse(job.priority),
            at: job.deadline.unwrap_or_else(usual),
        }
    }
}

/// The shortest time left first. Long jobs may wait for as long as short ones keep coming.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shortest;

impl Order for Shortest {
    fn rank(&self, job: &Job) -> Rank {
        Rank::plain(Time::default().after(left(job)))
    }
}

/// Who came first runs first, to its end or until it waits. What comes later never goes before it, be it ever so short: what
/// servers without preemption do, to compare with.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstCome;

impl Order for FirstCome {
    fn rank(&self, job: &Job) -> Rank {
        Rank::plain(job.arrived)
    }
}

/// How long a job is thought to run altogether. One that has outrun what is known of its kind is taken to be half through,
/// as is right for lengths without a scale.
fn length(job: &Job) -> Duration {
    if job.ran < job.estimate {
        job.estimate
    } else {
        job.ran * 2
    }
}

/// How long a job is thought to run yet; zero if nothing is known of its kind.
#[must_use]
pub fn left(job: &Job) -> Duration {
    length(job).saturating_sub(job.ran)
}
