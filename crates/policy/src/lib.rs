//! Scheduling and admission decisions: pure functions of what the worker tells them. No clock, no lock, no I/O.
//!
//! [`RoundRobin`] is Sledge's policy (paper section 4: a run queue for each core, a fixed quantum, first come first
//! served). Others stand beside it behind [`contract::Policy`]; the worker knows only the trait.

#![forbid(unsafe_code)]

use contract::{Admission, Job, Load, Policy, Rank, Refusal, Stop, Time};
use std::time::Duration;

/// First come first served, and to the back of the queue after each quantum.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    quantum: Duration,
}

impl RoundRobin {
    /// Sledge's quantum (paper section 4).
    pub const QUANTUM: Duration = Duration::from_millis(5);

    /// A policy that lets a sandbox run for `quantum` at a time.
    pub fn new(quantum: Duration) -> Self {
        Self { quantum }
    }
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self::new(Self::QUANTUM)
    }
}

impl Policy for RoundRobin {
    fn admit(&mut self, _now: Time, load: &Load) -> Admission {
        // What a core has read and not begun yet counts as queued, though a place may be free for it.
        let admitted = load.running.saturating_add(load.queued);
        if load.draining {
            Admission::Refuse(Refusal::Draining)
        } else if admitted < load.concurrency {
            Admission::Run
        } else if admitted < load.concurrency.saturating_add(load.queue) {
            Admission::Wait
        } else {
            Admission::Refuse(Refusal::QueueFull {
                retry_after: Duration::from_secs(1),
            })
        }
    }

    fn rank(&self, job: &Job) -> Rank {
        Rank(job.enqueued.0)
    }

    fn quantum(&self, _job: &Job) -> Duration {
        self.quantum
    }

    fn charge(&mut self, now: Time, job: &mut Job, ran: Duration, stop: Stop) {
        job.ran += ran;
        if stop != Stop::Ended {
            job.enqueued = now;
        }
    }
}

/// Whether an idle core is worth waking for a backlog: waking costs two to ten microseconds of two cores, and moving a
/// request costs cold caches, so a queue of pings is better left where it is.
///
/// `waiting` counts requests that could move, `mean` is what one of them takes (zero: not known yet), `busy` says that
/// the core already has a sandbox to go on with.
#[must_use]
pub fn worth_waking(waiting: usize, mean: Duration, busy: bool) -> bool {
    const UNKNOWN: Duration = Duration::from_micros(100);
    const WORTH: Duration = Duration::from_micros(60);
    let mean = if mean.is_zero() { UNKNOWN } else { mean };
    let movable = if busy { waiting } else { waiting.saturating_sub(1) };
    mean.saturating_mul(u32::try_from(movable).unwrap_or(u32::MAX)) >= WORTH
}

/// Whether a function has places to spare for requests that are not all here: a quarter of its places is kept from them, as long
/// as it has four. A sandbox that waits for a slow client is then never the last that a function has for those who do not
/// make it wait.
#[must_use]
pub fn may_wait_inside(load: &Load) -> bool {
    load.running.saturating_add(load.queued) < load.concurrency - load.concurrency / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BinaryHeap;

    fn load(running: u32, queued: u32, concurrency: u32, queue: u32) -> Load {
        Load {
            running,
            queued,
            concurrency,
            queue,
            draining: false,
        }
    }

    proptest! {
        #[test]
        fn admission_keeps_both_bounds(
            running in 0u32..8, queued in 0u32..8, concurrency in 1u32..8, queue in 0u32..8,
        ) {
            let load = load(running, queued, concurrency, queue);
            match RoundRobin::default().admit(Time(0), &load) {
                Admission::Run => prop_assert!(running + queued < concurrency),
                Admission::Wait => prop_assert!(
                    running + queued >= concurrency && running + queued < concurrency + queue
                ),
                Admission::Refuse(_) => prop_assert!(running + queued >= concurrency + queue),
            }
        }

        /// Jobs of any lengths on one core: all end, none starves, and between two turns of a job every other
        /// unfinished job has had one.
        #[test]
        fn round_robin_is_round(lengths in prop::collection::vec(1u64..40, 1..12), quantum in 1u64..10) {
            let mut policy = RoundRobin::new(Duration::from_nanos(quantum));
            let mut jobs: Vec<Job> = (0..lengths.len() as u64)
                .map(|i| Job { arrived: Time(i), enqueued: Time(i), expires: Time(u64::MAX), ran: Duration::ZERO })
                .collect();
            let mut left = lengths.clone();
            let mut now = Time(lengths.len() as u64);
            let mut order = Vec::new();
            while left.iter().any(|l| *l > 0) {
                let queue: BinaryHeap<_> = (0..jobs.len())
                    .filter(|i| left[*i] > 0)
                    .map(|i| std::cmp::Reverse((policy.rank(&jobs[i]), i)))
                    .collect();
                let next = queue.peek().unwrap().0.1;
                let ran = left[next].min(u64::try_from(policy.quantum(&jobs[next]).as_nanos()).unwrap());
                left[next] -= ran;
                now = Time(now.0 + ran);
                let stop = if left[next] == 0 { Stop::Ended } else { Stop::Preempted };
                policy.charge(now, &mut jobs[next], Duration::from_nanos(ran), stop);
                order.push(next);
            }
            for (i, length) in lengths.iter().enumerate() {
                prop_assert_eq!(jobs[i].ran, Duration::from_nanos(*length));
                let turns: Vec<_> = (0..order.len()).filter(|t| order[*t] == i).collect();
                prop_assert_eq!(turns.len() as u64, length.div_ceil(quantum));
                for pair in turns.windows(2) {
                    let between = &order[pair[0] + 1..pair[1]];
                    for (other, length) in lengths.iter().enumerate() {
                        let had = order[..pair[0]].iter().filter(|o| **o == other).count() as u64;
                        if other != i && had < length.div_ceil(quantum) {
                            prop_assert!(between.contains(&other));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn pings_stay_and_long_work_moves() {
        assert!(!worth_waking(8, Duration::from_micros(3), false));
        assert!(!worth_waking(1, Duration::from_millis(50), false));
        assert!(worth_waking(1, Duration::from_millis(50), true));
        assert!(worth_waking(2, Duration::ZERO, false));
    }

    #[test]
    fn clients_that_are_slow_leave_places_to_others() {
        let most = |concurrency| {
            (0..=concurrency)
                .find(|running| !may_wait_inside(&load(*running, 0, concurrency, 1)))
                .unwrap()
        };
        assert_eq!([1, 2, 3, 4, 5, 8, 256].map(most), [1, 2, 3, 3, 4, 6, 192]);
        assert!(
            !may_wait_inside(&load(1, 2, 4, 8)),
            "what waits has a place before it"
        );
    }

    #[test]
    fn a_draining_node_takes_nothing() {
        let load = Load {
            draining: true,
            ..load(0, 0, 1, 1)
        };
        assert_eq!(
            RoundRobin::default().admit(Time(0), &load),
            Admission::Refuse(Refusal::Draining)
        );
    }
}
