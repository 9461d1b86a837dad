//! What a node counts, as numbers that a program reads.

use contract::FunctionId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use telemetry::metrics;
use utoipa::ToSchema;

/// What a node has counted since it started. Two of these give what happened between them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// When this was read.
    #[schema(format = DateTime)]
    pub time: String,
    /// When the node began to count: if that differs, everything began at 0 again.
    #[schema(format = DateTime)]
    pub started: String,
    /// Seconds since then, by a clock that never jumps.
    pub uptime: f64,
    /// The upper bounds (inclusive) of the buckets of all times, in seconds. One more bucket has none.
    pub bounds: Vec<f64>,
    /// The node's own; absent for a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeCounters>,
    /// Each function's, by name. One that was deleted and deployed again began at 0 again.
    pub functions: Vec<FunctionCounters>,
}

/// What a node counts beyond single functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeCounters {
    /// Resident memory of the process in bytes, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    /// Each core's, from 0.
    pub cores: Vec<CoreCounters>,
}

/// What a core counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CoreCounters {
    /// Seconds in which it was not asleep.
    pub busy: f64,
    /// Connections that are open.
    pub connections: i64,
    /// Sandboxes alive.
    pub sandboxes: i64,
    /// Of these, those that wait for something.
    pub parked: i64,
    /// Sandboxes that can run, and requests that wait for one.
    pub runnable: i64,
    /// Requests parsed.
    pub requests: u64,
    /// Requests answered with a client's error before they reached a function.
    pub rejected: u64,
    /// Sandboxes that lost the core at the end of their quantum.
    pub preemptions: u64,
    /// Requests that it took from another core's queue.
    pub steals: u64,
}

/// What is counted of a function, all its versions together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FunctionCounters {
    /// Its name.
    #[schema(value_type = String, example = "shop.resize")]
    pub function: FunctionId,
    /// Invocations that succeeded.
    pub succeeded: u64,
    /// Those that did not, by whose fault: `function`, `client`, `platform`, or `refused` for overload.
    pub failed: BTreeMap<String, u64>,
    /// Invocations that have a sandbox now.
    pub running: u64,
    /// Invocations that were admitted and have none yet.
    pub queued: u64,
    /// Times that one lost its core at the end of a quantum.
    pub preemptions: u64,
    /// Those that a core took from another's queue.
    pub steals: u64,
    /// Seconds that they had a core.
    pub cpu: f64,
    /// Times of the phase `queue`.
    pub queue: Times,
    /// Times of the phase `run`.
    pub run: Times,
    /// Times of all phases together.
    pub total: Times,
}

/// A distribution of times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Times {
    /// How many each bucket holds, as `bounds` has them; the last those beyond all bounds.
    pub counts: Vec<u64>,
    /// The sum of all, in seconds.
    pub sum: f64,
}

impl From<metrics::Times> for Times {
    fn from(times: metrics::Times) -> Self {
        Self {
            counts: times.counts,
            sum: times.sum.as_secs_f64(),
        }
    }
}

impl From<&metrics::CoreReading> for CoreCounters {
    fn from(core: &metrics::CoreReading) -> Self {
        Self {
            busy: core.busy.as_secs_f64(),
            connections: core.connections_open,
            sandboxes: core.sandboxes,
            parked: core.parked,
            runnable: core.runnable,
            requests: core.requests,
            rejected: core.rejected,
            preemptions: core.preemptions,
            steals: core.steals,
        }
    }
}

impl FunctionCounters {
    pub(crate) fn new(function: FunctionId, reading: metrics::FunctionReading) -> Self {
        let failed = reading.failed.into_iter();
        Self {
            function,
            succeeded: reading.succeeded,
            failed: failed.map(|(kind, count)| (kind.to_owned(), count)).collect(),
            running: reading.occupancy.running,
            queued: reading.occupancy.queued,
            preemptions: reading.preemptions,
            steals: reading.steals,
            cpu: reading.cpu.as_secs_f64(),
            queue: reading.queue.into(),
            run: reading.run.into(),
            total: reading.total.into(),
        }
    }
}
