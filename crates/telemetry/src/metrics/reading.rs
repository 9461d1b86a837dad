//! What is counted, as numbers that a program reads: two readings give what happened between them.

use super::{
    CoreMetrics, Occupancy, Totals,
    histogram::{Snapshot, time_bounds},
};
use contract::FunctionId;
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

/// What a node has counted since it started.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When counting began.
    pub started: SystemTime,
    /// How long ago that was when this was read, by a clock that never jumps.
    pub uptime: Duration,
    /// Resident memory of the process in bytes, where the system tells.
    pub resident: Option<u64>,
    /// Each core's, from 0.
    pub cores: Vec<CoreReading>,
    /// Each function's, by name.
    pub functions: Vec<(FunctionId, FunctionReading)>,
}

impl Reading {
    /// The upper bounds (inclusive) of the buckets of all [`Times`]; one more bucket has none.
    pub fn bounds() -> impl Iterator<Item = Duration> {
        time_bounds()
    }
}

/// See [`CoreMetrics`] for what each is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "they are documented where they are counted")]
pub struct CoreReading {
    pub connections_open: i64,
    pub requests: u64,
    pub rejected: u64,
    pub steals: u64,
    pub preemptions: u64,
    pub sandboxes: i64,
    pub runnable: i64,
    pub parked: i64,
    pub busy: Duration,
}

impl CoreReading {
    pub(super) fn of(core: &CoreMetrics) -> Self {
        Self {
            connections_open: core.connections_open.get(),
            requests: core.requests.get(),
            rejected: core.rejected.iter().map(|(_, count)| count).sum(),
            steals: core.steals.get(),
            preemptions: core.preemptions.get(),
            sandboxes: core.sandboxes.get(),
            runnable: core.runnable.get(),
            parked: core.parked.get(),
            busy: Duration::from_nanos(core.busy.get()),
        }
    }
}

/// A function's numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionReading {
    /// Invocations that succeeded.
    pub succeeded: u64,
    /// Those that failed, by whose fault: `function`, `client`, `platform`, or `refused` for overload.
    pub failed: BTreeMap<&'static str, u64>,
    /// How many there are now.
    pub occupancy: Occupancy,
    /// Times that one lost its core at the end of a quantum.
    pub preemptions: u64,
    /// Those that a core took from another's queue.
    pub steals: u64,
    /// Time that they had a core.
    pub cpu: Duration,
    /// The phase `queue`.
    pub queue: Times,
    /// The phase `run`.
    pub run: Times,
    /// All phases together.
    pub total: Times,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many times each bucket of [`Reading::bounds`] holds, and the last those beyond all bounds.
    pub counts: Vec<u64>,
    /// The sum of all.
    pub sum: Duration,
}

impl From<&Snapshot> for Times {
    fn from(snapshot: &Snapshot) -> Self {
        Self {
            counts: snapshot.counts().to_vec(),
            sum: Duration::from_nanos(snapshot.total()),
        }
    }
}

impl From<Totals> for FunctionReading {
    fn from(totals: Totals) -> Self {
        let mut failed = BTreeMap::new();
        for ((kind, _), count) in &totals.errors {
            *failed.entry(*kind).or_default() += *count;
        }
        Self {
            succeeded: totals.invocations,
            failed,
            occupancy: totals.occupancy,
            preemptions: totals.preemptions,
            steals: totals.steals,
            cpu: Duration::from_nanos(totals.cpu.total()),
            queue: (&totals.queue).into(),
            run: (&totals.run).into(),
            total: (&totals.total).into(),
        }
    }
}
