//! A request's way to a sandbox: it may be too late for it, there may be no place for it, and there may be no sandbox.

use super::{Core, Live, end::length};
use crate::{
    Answer, Failure, Front, Invocation, Target, Timing,
    shared::Cold,
    sink::{Sink, Slot},
};
use contract::{Input, Job, Sandbox, SpawnError};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

impl<F: Front> Core<F> {
    /// Begins a request, if it may have a place of its function's and there is a sandbox for it.
    pub(super) fn begin(
        &mut self,
        invocation: Box<Invocation>,
        job: Job,
        quantum: Duration,
        now: Instant,
    ) -> Instant {
        // One that came from another core may have been read there since this core looked at the clock.
        let now = now.max(invocation.arrived);
        if let Some(refusal) = self.queues.overdue(now, &job, invocation.leeway()) {
            self.queues.forgo(now, job);
            invocation.target.unqueue();
            self.refuse(*invocation, Failure::Refused(refusal), now);
            return now;
        }
        match self.live(invocation, job, now) {
            Some(live) => {
                let place = self.live.vacant_key();
                self.step(live, place, quantum, now)
            }
            None => {
                self.queues.forgo(now, job);
                now
            }
        }
    }

    /// The request with a sandbox; none if it waits for one, or has been answered.
    fn live(&mut self, mut invocation: Box<Invocation>, job: Job, now: Instant) -> Option<Live> {
        let target = invocation.target.clone();
        if let Cold::Failed(reason) = &mut invocation.cold {
            let reason = std::mem::take(reason);
            target.unqueue();
            self.refuse(*invocation, Failure::Platform(reason), now);
            return None;
        }
        if target.image().is_none() {
            self.queues.shared.load(invocation);
            return None;
        }
        let Some(invocation) = target.start(invocation) else {
            if !self.holders.iter().any(|holder| holder.is(&target)) {
                self.holders.push(target);
            }
            return None;
        };
        let expires = invocation.expires();
        if expires <= now {
            self.release(&target, now);
            self.expire(*invocation, now);
            return None;
        }
        let (invocation, share) = match target.share(invocation) {
            Ok(taken) => taken,
            Err(refused) => {
                self.release(&target, now);
                if let Some((invocation, refusal)) = refused {
                    self.refuse(*invocation, Failure::Refused(refusal), now);
                } else if let Some(tenancy) = target.tenancy()
                    && !self.tenancies.iter().any(|known| Arc::ptr_eq(known, tenancy))
                {
                    self.tenancies.push(tenancy.clone());
                }
                return None;
            }
        };
        let Invocation {
            target,
            mut head,
            body,
            streams,
            arrived,
            unseen,
            home,
            token,
            log_tail,
            cold,
            cut,
        } = *invocation;
        // Requests that it makes of other functions are not to outlive it.
        head.until = Some(expires);
        let (id, request_bytes) = (head.id, length(&body));
        let slot = Slot::new(streams, cut.clone());
        let response = Box::new(Sink::new(slot.clone(), target.clone(), id, log_tail));
        let (sandbox, served) = match self.sandbox(
            &target,
            Input {
                head,
                body,
                response,
                services: target.services.clone(),
            },
        ) {
            Ok(sandbox) => sandbox,
            Err(SpawnError::Exhausted(Input { head, body, .. })) => {
                target.queue();
                // Whoever gets its place would find no sandbox either. None of them is begun again before what has a
                // sandbox had its turn, or that would never end.
                let next = target.end();
                let invocation = Invocation {
                    target,
                    head,
                    body,
                    streams,
                    arrived,
                    unseen,
                    home,
                    token,
                    log_tail,
                    cold,
                    cut,
                };
                self.queues.starve(Box::new(invocation), now);
                if let Some(next) = next {
                    self.queues.starve(next, now);
                }
                return None;
            }
            Err(SpawnError::Failed { reason }) => {
                self.release(&target, now);
                let (failure, timing) = (Failure::Platform(reason), Timing::unstarted(arrived, now));
                let answer = Answer {
                    request_bytes,
                    ..Answer::failed(target, (token, id), failure, timing)
                };
                self.deliver(home, answer);
                return None;
            }
        };
        self.serial += 1;
        let live = Live {
            sandbox,
            target,
            slot,
            home,
            token,
            id,
            job,
            expires,
            limit: expires.saturating_duration_since(arrived),
            since: now,
            queue: now.saturating_duration_since(arrived),
            cpu: Duration::ZERO,
            waited: Duration::ZERO,
            spawned: now,
            served,
            cold: matches!(cold, Cold::Loaded),
            request_bytes,
            serial: self.serial,
            share,
            parked: false,
            alarm: None,
        };
        // Where there was a sandbox for this one, there may be another.
        self.queues.feed(now);
        Some(live)
    }

    /// A warm sandbox if the version wants that and there is one, else a fresh one.
    fn sandbox(
        &mut self,
        target: &Arc<Target>,
        mut input: Input,
    ) -> Result<(Box<dyn Sandbox>, u32), SpawnError> {
        // What it leaves serves this one.
        self.spent = None;
        if target.grant.reuse > 1
            && let Some(index) = self.warm.iter().position(|warm| warm.target.is(target))
        {
            let mut warm = self.warm.swap_remove(index);
            match warm.sandbox.renew(&target.grant, input) {
                Ok(()) => return Ok((warm.sandbox, warm.served)),
                Err(back) => input = back,
            }
        }
        let Some(image) = target.image() else {
            return Err(SpawnError::Failed {
                reason: "its image is not loaded".into(),
            });
        };
        loop {
            match image.spawn(&target.grant, input) {
                Ok(sandbox) => return Ok((sandbox, 0)),
                // What is kept for requests that may come gives way to one that is here: the oldest first.
                Err(SpawnError::Exhausted(back)) if !self.warm.is_empty() => {
                    self.warm.remove(0);
                    input = back;
                }
                Err(error) => {
                    if matches!(error, SpawnError::Exhausted(_)) {
                        self.queues.shared.ask_for_places(self.queues.core);
                    }
                    return Err(error);
                }
            }
        }
    }
}
