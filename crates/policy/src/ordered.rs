//! One tenant's jobs.

use crate::{
    order::{Order, left},
    ready::Ready,
};
use contract::{Admission, Job, Load, Policy, Refusal, Stop, Ticket, Time, Turn};
use std::time::Duration;

/// Jobs in an [`Order`], each run for a quantum at a time.
#[derive(Clone, Debug)]
pub struct Ordered<O> {
    order: O,
    quantum: Duration,
    ready: Ready,
}

impl<O: Order> Ordered<O> {
    /// No jobs yet.
    pub fn new(order: O, quantum: Duration) -> Self {
        Self {
            order,
            quantum,
            ready: Ready::default(),
        }
    }

    /// By how much a job that came now would miss its deadline.
    fn late(&self, now: Time, job: &Job, deadline: Time, load: &Load) -> Duration {
        // Those that wait for their function's places come before it, too, and are in no core's queue.
        let held = job.estimate.saturating_add(job.waits).saturating_mul(load.held) / load.concurrency.max(1);
        let share = f64::from(load.share.clamp(f32::EPSILON, 1.0));
        let left = deadline.since(now).as_secs_f64() - (job.waits + reserve(job)).as_secs_f64();
        let enough = left * share - held.saturating_add(job.estimate).as_secs_f64();
        let bound = Duration::try_from_secs_f64(enough).unwrap_or(Duration::ZERO);
        let ahead = self.ready.ahead_of(self.order.rank(job), bound).as_secs_f64();
        // What is less than none, or than a nanosecond, is none.
        let late = ((ahead - enough) / share).min(Duration::MAX.as_secs_f64() / 2.0);
        Duration::try_from_secs_f64(late).unwrap_or(Duration::ZERO)
    }
}

/// How long this much work takes with that part of a core.
fn stretched(work: Duration, share: f32) -> Duration {
    let share = f64::from(share.clamp(f32::EPSILON, 1.0));
    Duration::try_from_secs_f64(work.as_secs_f64() / share).unwrap_or(Duration::MAX)
}

/// What a job is expected to take if nothing comes before it.
fn alone(job: &Job) -> Duration {
    job.estimate.saturating_add(job.waits)
}

/// What is kept back for a job that may take longer than expected: so much that nearly all of its kind are in time, as long as that
/// leaves half of what its deadline gives them to wait in.
fn reserve(job: &Job) -> Duration {
    let deadline = job.deadline.unwrap_or(job.arrived);
    let slack = deadline.since(job.arrived).saturating_sub(alone(job));
    job.spread.min(slack / 2)
}

/// Whether a job would miss its deadline though nothing came before it.
fn is_hopeless(job: &Job, deadline: Time) -> bool {
    alone(job) > deadline.since(job.arrived)
}

/// Until as much has ended as would let one more in.
const RETRY: Duration = Duration::from_secs(1);

impl<O: Order> Policy for Ordered<O> {
    fn admit(&mut self, now: Time, job: &Job, load: &Load) -> Admission {
        // What a core has read and not begun yet counts as queued, though a place may be free for it.
        let admitted = load.running.saturating_add(load.queued);
        if load.draining {
            return Admission::Refuse(Refusal::Draining);
        }
        if admitted >= load.concurrency.saturating_add(load.queue) {
            return Admission::Refuse(Refusal::QueueFull { retry_after: RETRY });
        }
        // Where every request seems to take too long, one at a time is let in, or nobody would learn when that has changed.
        let probes = |deadline| admitted == 0 && is_hopeless(job, deadline);
        if let Some(deadline) = job.deadline.filter(|deadline| !probes(*deadline)) {
            let late = self.late(now, job, deadline, load);
            if !late.is_zero() {
                return Admission::Refuse(Refusal::TooLate { retry_after: late });
            }
        }
        if admitted < load.concurrency {
            Admission::Run
        } else {
            Admission::Wait
        }
    }

    fn put(&mut self, _now: Time, job: &Job, ticket: Ticket) {
        self.ready.put(self.order.rank(job), ticket, left(job));
    }

    fn take(&mut self, _now: Time) -> Option<Turn> {
        let ticket = self.ready.take()?;
        let quantum = self.order.quantum(self.quantum, self.ready.shortest());
        Some(Turn { ticket, quantum })
    }

    fn overdue(&self, now: Time, job: &Job, share: f32) -> Option<Refusal> {
        let deadline = job.deadline?;
        let needed = if is_hopeless(job, deadline) {
            Duration::ZERO
        } else {
            stretched(job.estimate, share)
                .saturating_add(job.waits)
                .saturating_add(reserve(job))
        };
        let late = now.after(needed).since(deadline);
        (!late.is_zero()).then_some(Refusal::TooLate { retry_after: late })
    }

    fn give(&mut self) -> Option<Ticket> {
        self.ready.give()
    }

    fn charge(&mut self, now: Time, job: &mut Job, ran: Duration, stop: Stop) {
        job.ran += ran;
        if stop != Stop::Ended {
            job.enqueued = now;
        }
    }

    fn len(&self) -> usize {
        self.ready.len()
    }
}
