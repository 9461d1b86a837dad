//! The seam of scheduling decisions.

use std::time::Duration;

/// Nanoseconds on the node's monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

impl Time {
    /// The time from `earlier` to `self`; zero if it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// `self` and a duration, saturating.
    pub fn after(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

/// What a policy may know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// When it arrived.
    pub arrived: Time,
    /// When it last joined a queue.
    pub enqueued: Time,
    /// When it must have been answered.
    pub expires: Time,
    /// How long it has run.
    pub ran: Duration,
}

/// What a policy may know of the node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests of this function that have a sandbox.
    pub running: u32,
    /// Requests of this function that wait for one.
    pub queued: u32,
    /// The function's limit of the former.
    pub concurrency: u32,
    /// The function's limit of the latter.
    pub queue: u32,
    /// The node is draining.
    pub draining: bool,
}

/// What becomes of a request.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may have a sandbox as soon as a core is free.
    Run,
    /// It waits until one of its function's requests ends.
    Wait,
    /// It is answered at once.
    Refuse(Refusal),
}

/// Why a request was refused: overload, whose owner is the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As many requests wait as may.
    QueueFull {
        /// Worth trying again after.
        retry_after: Duration,
    },
    /// The function's tenant has as much of this as it may.
    Quota {
        /// Of what.
        quota: Quota,
        /// Worth trying again after.
        retry_after: Duration,
    },
    /// The node is shutting down.
    Draining,
}

impl Refusal {
    /// When it is worth trying again.
    pub fn retry_after(self) -> Duration {
        match self {
            Self::QueueFull { retry_after } | Self::Quota { retry_after, .. } => retry_after,
            Self::Draining => Duration::from_secs(1),
        }
    }
}

/// What the operator limits for a tenant while its functions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Its sandboxes that serve a request at once.
    Concurrency,
    /// The sum of their memory limits.
    Memory,
    /// Its requests in a second.
    Rate,
}

/// Who runs first: smaller runs earlier, equals in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(pub u64);

/// Why a sandbox stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is over.
    Ended,
    /// Its quantum was.
    Preempted,
    /// It waits.
    Waiting,
}

/// Decides; never acts. The worker runs the job of the smallest rank first. One instance for each core; no clock, lock or I/O inside.
pub trait Policy: Send {
    /// Whether a request may come in.
    fn admit(&mut self, now: Time, load: &Load) -> Admission;
    /// Its place among those that can run.
    fn rank(&self, job: &Job) -> Rank;
    /// How long it may run at a time.
    fn quantum(&self, job: &Job) -> Duration;
    /// Told after each turn; writes what ran into the job.
    fn charge(&mut self, now: Time, job: &mut Job, ran: Duration, stop: Stop);
}
