//! What a request comes to.

use super::{Core, Live, Warm};
use crate::{Answer, Failure, Front, Invocation, Target, Timing, shared::Word, sink::Rest};
use contract::{Body, CoreId, Fault, Refusal, Usage};
use std::{
    io,
    time::{Duration, Instant},
};
use telemetry::metrics::Start;

/// Whether a function ends so when there is nothing left for it to do. Its limits hold whoever listens.
fn gives_up(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Exit { .. } | Fault::Trap { .. } | Fault::BadOutput { .. }
    )
}

/// How long an abandoned core waits for answers from elsewhere.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

/// What is known of a body's length.
pub(super) fn length(body: &Body) -> u64 {
    body.known_length().unwrap_or(0) as u64
}

impl<F: Front> Core<F> {
    pub(super) fn end(&mut self, live: Live, usage: Usage, result: Result<(), Fault>, ended: Instant) {
        let Live {
            sandbox,
            target,
            slot,
            home,
            token,
            id,
            queue,
            cpu,
            waited,
            spawned,
            served,
            cold,
            request_bytes,
            share,
            ..
        } = live;
        // The engine read the clock when it had made the instance: in the first turn, or, if others make it, while that was waited for.
        let boot = usage
            .started
            .map_or(Duration::ZERO, |started| {
                started.saturating_duration_since(spawned)
            })
            .min(cpu + waited);
        let run = (cpu + waited).saturating_sub(boot);
        let Rest {
            mut response,
            log_tail,
            flow,
            left,
        } = slot.take();
        let result = match result {
            Ok(()) => {
                if let Some(flow) = flow {
                    flow.end(std::mem::take(&mut response.trailers));
                }
                if served + 1 < target.grant.reuse && !target.retired() {
                    self.warm.push(Warm {
                        target: target.clone(),
                        sandbox,
                        served: served + 1,
                    });
                } else {
                    self.spent = Some(sandbox);
                }
                Ok(response)
            }
            Err(fault) => {
                drop(sandbox);
                if left && gives_up(&fault) {
                    let line = format!("the client went away, and the function gave up: {fault}");
                    target.log.platform(Some(id), &line);
                    Err(Failure::Left(fault))
                } else {
                    target.log.platform(Some(id), &fault.to_string());
                    Err(Failure::Fault(fault))
                }
            }
        };
        // Before anybody is told that it has ended, and can ask for more.
        if share.is_some() {
            drop(share);
            if let Some(next) = target.tenancy().and_then(|tenancy| tenancy.next()) {
                self.queues.enter(next, ended);
            }
        }
        self.release(&target, ended);
        let start = match (served, cold) {
            (_, true) => Start::Image,
            (0, false) => Start::Sandbox,
            (_, false) => Start::Reused,
        };
        let timing = Timing {
            queue,
            boot,
            run,
            cpu: cpu + usage.elsewhere,
            ended,
        };
        let memory = usage.memory;
        self.deliver(
            home,
            Answer {
                target,
                token,
                id,
                result,
                timing,
                start,
                memory,
                request_bytes,
                log_tail,
            },
        );
    }

    /// A place of this function is free.
    pub(super) fn release(&mut self, target: &Target, now: Instant) {
        if let Some(next) = target.end() {
            self.queues.enter(next, now);
        }
        self.queues.feed(now);
    }

    pub(super) fn expire(&mut self, invocation: Invocation, now: Instant) {
        if let Some(deadline) = invocation.deadline().filter(|_| invocation.expires() > now) {
            let retry_after = now.saturating_duration_since(deadline);
            return self.refuse(
                invocation,
                Failure::Refused(Refusal::TooLate { retry_after }),
                now,
            );
        }
        let limit = invocation.expires().saturating_duration_since(invocation.arrived);
        self.refuse(invocation, Failure::Fault(Fault::Timeout { limit }), now);
    }

    /// Answers a request that never had a sandbox.
    pub(super) fn refuse(&mut self, invocation: Invocation, failure: Failure, now: Instant) {
        let Invocation {
            target,
            head,
            body,
            arrived,
            home,
            token,
            ..
        } = invocation;
        let timing = Timing::unstarted(arrived, now);
        let answer = Answer {
            request_bytes: length(&body),
            ..Answer::failed(target, (token, head.id), failure, timing)
        };
        self.deliver(home, answer);
    }

    /// The time for draining is over: what is not answered yet is refused, and its sandboxes are dropped. Waits a moment
    /// for the answers that others owe: the loader, and cores that stole.
    pub fn abandon(&mut self) -> io::Result<()> {
        let end = Instant::now() + LAST_ANSWERS;
        loop {
            let now = Instant::now();
            self.refuse_all(now);
            self.flush(now);
            if self.front.is_quiet() || now >= end {
                return Ok(());
            }
            self.poller.wait(Some(Duration::from_millis(1)))?;
            self.receive(now, Duration::ZERO);
        }
    }

    fn refuse_all(&mut self, now: Instant) {
        let mut left = self.queues.clear();
        for target in std::mem::take(&mut self.holders) {
            left.extend(target.take_held());
        }
        for tenancy in std::mem::take(&mut self.tenancies) {
            left.extend(tenancy.take_all());
        }
        for invocation in left {
            self.refuse(*invocation, Failure::Refused(Refusal::Draining), now);
        }
        for live in std::mem::take(&mut self.live).into_iter().map(|(_, live)| live) {
            let Live {
                target,
                home,
                token,
                id,
                since,
                parked,
                queue,
                cpu,
                waited,
                request_bytes,
                ..
            } = live;
            let left = now.saturating_duration_since(since);
            let (queued, slept) = if parked {
                (Duration::ZERO, left)
            } else {
                (left, Duration::ZERO)
            };
            let timing = Timing {
                queue: queue + queued,
                boot: Duration::ZERO,
                run: cpu + waited + slept,
                cpu,
                ended: now,
            };
            let answer = Answer {
                start: Start::Sandbox,
                request_bytes,
                ..Answer::failed(target, (token, id), Failure::Refused(Refusal::Draining), timing)
            };
            self.deliver(home, answer);
        }
    }

    pub(super) fn deliver(&mut self, home: CoreId, answer: Answer) {
        if home == self.queues.core {
            self.front.answer(answer);
        } else if let Some(seat) = self.queues.shared.seat(home) {
            seat.words.push(Word::Answer(answer));
            self.queues.shared.call(home, seat);
        } else {
            self.queues.shared.outside().answer(self.queues.core, answer);
        }
    }
}
