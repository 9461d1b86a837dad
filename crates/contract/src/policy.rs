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
    /// How long it is expected to run altogether, from its version's history; zero if there is none.
    pub estimate: Duration,
    /// How long it is expected to wait for I/O meanwhile.
    pub waits: Duration,
    /// How much longer than both it takes if it is slower than nearly all of its kind; zero if all take the same.
    pub spread: Duration,
    /// When its answer is wanted. A claim of its function's: it orders work within a tenant's share.
    pub deadline: Option<Time>,
    /// Larger is more urgent. A claim, too.
    pub priority: i8,
    /// Whose share of the cores it uses.
    pub tenant: Party,
}

/// One of those who share a node's cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Party {
    /// Which; those of a node are numbered from 0 on without large gaps.
    pub index: u32,
    /// How large its share is beside others that have work; 0 is taken as 1.
    pub weight: u32,
}

/// A worker's name for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// It has no sandbox, so another core may have it.
    Fresh(u32),
    /// It has one, which stays where it is.
    Begun(u32),
}

/// What a core does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whom it runs.
    pub ticket: Ticket,
    /// For how long at most.
    pub quantum: Duration,
}

/// What a policy may know of the node.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests of this function that have a sandbox. Of one without a deadline whose queue is known not to be full, this is 0, and
    /// `queued` is what its core knows of: nothing depends on them then.
    pub running: u32,
    /// Requests of this function that wait for one.
    pub queued: u32,
    /// The function's limit of the former.
    pub concurrency: u32,
    /// The function's limit of the latter.
    pub queue: u32,
    /// Of these requests, those that wait until another of their function ends.
    pub held: u32,
    /// The part of the core that its tenant can count on now, of 1.
    pub share: f32,
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
    /// It would not be answered by its deadline: said when it comes, or when its turn has come too late.
    TooLate {
        /// Worth trying again after.
        retry_after: Duration,
    },
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
            Self::TooLate { retry_after }
            | Self::QueueFull { retry_after }
            | Self::Quota { retry_after, .. } => retry_after,
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

/// Decides; never acts. One instance for each core, which tells it what can run and asks it what is to run. No clock, lock or
/// I/O inside; the same calls give the same answers.
///
/// A job is put, taken, charged, and put again if it can run on at once, or once what it waited for has come. What is taken is
/// charged before anything else is taken, and the worker's tickets are unique among the jobs that are put.
pub trait Policy: Send {
    /// Whether a request may come in.
    fn admit(&mut self, now: Time, job: &Job, load: &Load) -> Admission;
    /// From now on, this job can run.
    fn put(&mut self, now: Time, job: &Job, ticket: Ticket);
    /// Takes out the job that is to run now.
    fn take(&mut self, now: Time) -> Option<Turn>;
    /// Why a fresh job that was taken is not begun, if it is not worth that any more. `share`: the part of the core that its turns
    /// will have, as [`Load::share`].
    fn overdue(&self, now: Time, job: &Job, share: f32) -> Option<Refusal>;
    /// Takes out a fresh job that another core may have, the most urgent first.
    fn give(&mut self) -> Option<Ticket>;
    /// Told after each turn; writes what ran into the job.
    fn charge(&mut self, now: Time, job: &mut Job, ran: Duration, stop: Stop);
    /// Whether a tenant beside the node's own has had work; else what follows is for nothing.
    fn is_shared(&self) -> bool {
        false
    }
    /// Whether anybody else than this tenant has work: then it is told of what [`Policy::spend`] is for. None is whose tenant nobody
    /// knows.
    fn is_contended(&self, _: Option<Party>) -> bool {
        false
    }
    /// Told of what a tenant's requests took of the core beside their turns: to read them, to refuse them, to write their answers.
    fn spend(&mut self, _: Party, _: Duration) {}
    /// Whether a tenant had so much more than its share that its requests are better not even read while others wait for their turns.
    fn is_ahead(&mut self, _: Party) -> bool {
        false
    }
    /// How many jobs are put.
    fn len(&self) -> usize;
    /// Whether none is.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
