//! A sandbox's turns.

use super::{Core, Live, SlotWaker};
use crate::{Front, Opening, shared::Word};
use contract::{Fault, Step, Stop, Until};
use std::{
    cmp::Reverse,
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::{Duration, Instant},
};

impl<F: Front> Core<F> {
    pub(super) fn resume(&mut self, place: usize, quantum: Duration, now: Instant) -> Instant {
        let Some(mut live) = self.live.try_remove(place) else {
            return now;
        };
        live.queue += now.saturating_duration_since(live.since);
        self.step(live, place, quantum, now)
    }

    /// Runs a sandbox for a quantum. `place` is free in the slab and its waker leads back there.
    pub(super) fn step(&mut self, mut live: Live, place: usize, quantum: Duration, now: Instant) -> Instant {
        while self.wakers.len() <= place {
            let slot = self.wakers.len();
            let waker = SlotWaker {
                shared: self.queues.shared.clone(),
                core: self.queues.core,
                slot,
            };
            self.wakers.push(Waker::from(Arc::new(waker)));
        }
        let left = policy::left(&live.job);
        let guarded = &self.queues.seat().guarded;
        if let Some(serial) = self.asked.take() {
            guarded.given_back(serial == live.serial);
        }
        // Nobody has to see to it that one whose code runs elsewhere gives the core back.
        let is_elsewhere = live.sandbox.is_elsewhere();
        if is_elsewhere {
            guarded.turns.asked().store(false, Ordering::Relaxed);
        } else {
            let (watch, core) = (self.queues.shared.watch(), self.queues.core);
            if watch.begin(core, guarded, self.turn + 1, left, (now, quantum))
                && self.queues.seat().has_mail()
            {
                watch.ask(core, guarded);
            }
        }
        let until = Until {
            at: now + quantum,
            asked: guarded.turns.asked(),
        };
        let step = live.sandbox.run(&self.wakers[place], until);
        if !is_elsewhere {
            self.turn += 2;
            guarded.turns.end(self.turn);
        }
        let was_asked = guarded.turns.asked().load(Ordering::Relaxed);
        let end = Instant::now();
        let ran = end.saturating_duration_since(now);
        let stop = match &step {
            Step::Done(_) | Step::Fault(..) => Stop::Ended,
            Step::Preempted => Stop::Preempted,
            Step::Waiting { .. } => Stop::Waiting,
        };
        let elsewhere = match &step {
            Step::Done(usage) | Step::Fault(_, usage) => usage.elsewhere,
            Step::Preempted | Step::Waiting { .. } if live.expires <= end => live.sandbox.usage().elsewhere,
            Step::Preempted | Step::Waiting { .. } => Duration::ZERO,
        };
        self.queues.charge(end, &mut live.job, (ran, elsewhere), stop);
        live.since = end;
        live.cpu += ran;
        match step {
            Step::Done(usage) => self.end(live, usage, Ok(()), end),
            Step::Fault(fault, usage) => self.end(live, usage, Err(fault), end),
            Step::Preempted | Step::Waiting { .. } if live.expires <= end => {
                let limit = live.limit;
                let usage = live.sandbox.usage();
                self.end(live, usage, Err(Fault::Timeout { limit }), end);
            }
            Step::Preempted | Step::Waiting { .. } if live.job.ran >= live.target.grant.limits.cpu_time => {
                let limit = live.target.grant.limits.cpu_time;
                let usage = live.sandbox.usage();
                self.end(live, usage, Err(Fault::CpuTime { limit }), end);
            }
            Step::Preempted => {
                if was_asked {
                    self.asked = Some(live.serial);
                }
                self.metrics.preemptions.add(1);
                live.target.metrics().preempted(self.queues.core);
                self.open(&live, false);
                self.wait_again(live, end);
            }
            // What it waits for may be this.
            Step::Waiting { .. } if self.open(&live, true) => {
                self.wait_again(live, end);
            }
            Step::Waiting { until } => {
                live.parked = true;
                let wakes = until.map_or(live.expires, |until| until.min(live.expires));
                let serial = live.serial;
                let is_first = live.alarm.is_none_or(|alarm| wakes < alarm);
                if is_first {
                    live.alarm = Some(wakes);
                }
                let place = self.live.insert(live);
                self.parked += 1;
                if is_first {
                    self.timers.push(Reverse((wakes, serial, place)));
                }
            }
        }
        end
    }

    /// It can run again as soon as its turn has come.
    fn wait_again(&mut self, mut live: Live, now: Instant) {
        // What an operator gives its tenant may have changed.
        live.job.tenant = live.target.party();
        let job = live.job;
        let place = self.live.insert(live);
        self.queues.again(place, &job, now);
    }

    /// Lets a response begin that should not wait for its end. Says whether it does.
    fn open(&mut self, live: &Live, waits: bool) -> bool {
        let Some((head, body)) = live.slot.open(waits) else {
            return false;
        };
        let started = live.sandbox.usage().started;
        let boot = started.map_or(Duration::ZERO, |started| {
            started.saturating_duration_since(live.spawned)
        });
        let opening = Opening {
            token: live.token,
            id: live.id,
            head,
            body,
            queue: live.queue,
            boot,
        };
        if live.home == self.queues.core {
            self.front.open(opening);
        } else if let Some(seat) = self.queues.shared.seat(live.home) {
            seat.words.push(Word::Opening(Box::new(opening)));
            self.queues.shared.call(live.home, seat);
        }
        true
    }
}
