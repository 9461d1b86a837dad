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

    /// When a job would have been answered that came in now.
    fn done(&self, now: Time, job: &Job, load: &Load) -> Time {
        let ahead = self.ready.ahead_of(self.order.rank(job));
        // Those that wait for their function's places come before it, too, and are in no core's queue.
        let held = job.estimate.saturating_mul(load.held) / load.concurrency.max(1);
        let share = f64::from(load.share.max(f32::EPSILON));
        let core = (ahead + held + job.estimate).as_secs_f64() / share;
        now.after(Duration::try_from_secs_f64(core).unwrap_or(Duration::MAX))
            .after(job.waits)
    }
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
        if let Some(deadline) = job.deadline {
            let late = self.done(now, job, load).since(deadline);
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
