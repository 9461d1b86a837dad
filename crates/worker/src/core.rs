//! One core's loop.

use crate::{
    Answer, Failure, Invocation, Opening, Poller, Readiness, Shared, Target, Ticker, Timing,
    shared::{Cold, Seat, Word},
    sink::{Rest, Sink, Slot},
    ticker::Alarm,
};
use contract::{
    Admission, Body, CoreId, Engine, Fault, Input, Job, Policy, Rank, Refusal, RequestId, Sandbox,
    SpawnError, Step, Stop, Time, Usage,
};
use crossbeam_deque::Worker as Deque;
use slab::Slab;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    io,
    sync::{Arc, atomic::Ordering},
    task::{Wake, Waker},
    time::{Duration, Instant},
};
use telemetry::metrics::{CoreMetrics, Start};
use tenants::Share;

/// The sockets of a core, and what they speak.
///
/// All calls come from the core's own thread, between two guests. None may block.
pub trait Front {
    /// A descriptor that this front gave the poller is ready. Requests that were read go to [`Intake::submit`].
    fn ready(&mut self, poller: &Poller, token: u64, readiness: Readiness, intake: &mut Intake<'_>);
    /// The response to a request with [`Invocation::streams`] has begun.
    fn open(&mut self, opening: Opening);
    /// A flow can go on whose waker came from [`Shared::stirrer`].
    fn stir(&mut self, token: u64);
    /// A submitted request has come to its end.
    fn answer(&mut self, answer: Answer);
    /// Everything has been read and run that was ready: write. Requests that were read meanwhile (pipelined ones, whose
    /// predecessors are answered now) go to `intake`.
    fn flush(&mut self, poller: &Poller, intake: &mut Intake<'_>);
    /// Closes what has waited too long; says when to ask again.
    fn expire(&mut self, poller: &Poller, now: Instant) -> Option<Instant>;
    /// Whether every request was answered and written. Once [`Shared::is_draining`], the front takes no new connections.
    fn is_quiet(&self) -> bool;
}

/// What a core is made of.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// Responses are written at the latest this long after they became ready, though more requests wait.
    pub flush_after: Duration,
    /// Sockets handled before responses are written. Batching saves the wake-ups of clients; too large a batch leaves
    /// them with nothing to do meanwhile.
    pub batch: usize,
}

impl Default for CoreOptions {
    fn default() -> Self {
        Self {
            flush_after: Duration::from_micros(500),
            batch: 64,
        }
    }
}

/// The requests of one core, as its front sees them.
pub struct Intake<'a> {
    queues: &'a mut Queues,
    /// When the last wait ended: what is read now is counted from here.
    pub now: Instant,
}

/// Requests without a sandbox, and what decides about them.
struct Queues {
    core: CoreId,
    shared: Arc<Shared>,
    policy: Box<dyn Policy>,
    epoch: Instant,
    /// What others may steal from.
    deque: Deque<Box<Invocation>>,
    /// Taken out of the deque to be compared with preempted sandboxes.
    staged: Option<Box<Invocation>>,
    /// No sandbox could be had for these; in the order of their arrival.
    starved: VecDeque<Box<Invocation>>,
    /// When the first of them tries again, if no sandbox of this core ends before.
    retry: Instant,
    /// The longest mean run time among what was queued lately.
    mean: Duration,
}

impl Intake<'_> {
    /// The core that this is.
    pub fn core(&self) -> CoreId {
        self.queues.core
    }

    /// Whether the node is shutting down.
    pub fn is_draining(&self) -> bool {
        self.queues.shared.is_draining()
    }

    /// Wakes this core's front for one of its connections: [`Front::stir`].
    pub fn stirrer(&self, token: u64) -> Waker {
        self.queues.shared.stirrer(self.queues.core, token)
    }

    /// Queues a request, or gives it back with the reason why not.
    pub fn submit(&mut self, invocation: Box<Invocation>) -> Result<(), (Box<Invocation>, Refusal)> {
        let queues = &mut *self.queues;
        let load = invocation.target.load(queues.shared.is_draining());
        match queues.policy.admit(queues.time(self.now), &load) {
            Admission::Refuse(refusal) => Err((invocation, refusal)),
            // Whether it runs or waits is decided where its place is taken.
            Admission::Run | Admission::Wait => {
                invocation.target.queue();
                queues.mean = queues.mean.max(invocation.target.mean());
                queues.deque.push(invocation);
                Ok(())
            }
        }
    }
}

impl Queues {
    fn time(&self, now: Instant) -> Time {
        Time::default().after(now.saturating_duration_since(self.epoch))
    }

    fn seat(&self) -> &Seat {
        // The core was made with this very table of seats.
        &self.shared.seats()[usize::from(self.core.0)]
    }

    /// Keeps a request until there may be a sandbox for it.
    fn starve(&mut self, invocation: Box<Invocation>, now: Instant) {
        if self.starved.is_empty() {
            self.retry = now + STARVED;
        }
        let place = self
            .starved
            .partition_point(|before| before.arrived <= invocation.arrived);
        self.starved.insert(place, invocation);
    }

    fn stage(&mut self) -> Option<&Invocation> {
        if self.staged.is_none() {
            self.staged = self.deque.pop();
        }
        self.staged.as_deref()
    }

    fn is_empty(&self) -> bool {
        self.staged.is_none() && self.deque.is_empty()
    }
}

/// A request with a sandbox.
struct Live {
    sandbox: Box<dyn Sandbox>,
    target: Arc<Target>,
    slot: Slot,
    home: CoreId,
    token: u64,
    id: RequestId,
    job: Job,
    expires: Instant,
    /// When it last stopped running or was made.
    since: Instant,
    queue: Duration,
    /// Its time on a core.
    cpu: Duration,
    /// Its time parked.
    waited: Duration,
    spawned: Instant,
    /// Requests that its sandbox has served before this one.
    served: u32,
    /// Its image was loaded for it.
    cold: bool,
    request_bytes: u64,
    /// Distinguishes it from earlier tenants of its place in the slab.
    serial: u64,
    /// Its part of its tenant's quotas.
    share: Option<Share>,
    parked: bool,
    /// The earliest of its timers, if one is set.
    alarm: Option<Instant>,
}

/// A sandbox kept for its version's next request (`reuse`).
struct Warm {
    target: Arc<Target>,
    sandbox: Box<dyn Sandbox>,
    served: u32,
}

/// See the crate's introduction.
pub struct Core<F> {
    front: F,
    poller: Poller,
    queues: Queues,
    options: CoreOptions,
    alarm: Arc<Alarm>,
    metrics: Arc<CoreMetrics>,
    live: Slab<Live>,
    preempted: BinaryHeap<Reverse<(Rank, u64, usize)>>,
    timers: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    wakers: Vec<Waker>,
    warm: Vec<Warm>,
    /// Functions that have requests which wait for one of their own to end.
    holders: Vec<Arc<Target>>,
    /// When they are looked at for requests whose time is over.
    sweep: Instant,
    serial: u64,
    generation: u64,
    turn: u64,
    front_expires: Option<Instant>,
}

struct SlotWaker {
    shared: Arc<Shared>,
    core: CoreId,
    slot: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(seat) = self.shared.seat(self.core) {
            seat.woken.push(self.slot);
            seat.bell.ring();
        }
    }
}

/// A core that has yet to be given its thread and its front.
pub struct Seatless {
    core: CoreId,
    deque: Deque<Box<Invocation>>,
    shared: Arc<Shared>,
    alarm: Arc<Alarm>,
}

impl Shared {
    /// A table for this many cores, what each core's thread needs to make its [`Core`], and the ticker of all.
    pub fn assemble(
        cores: u16,
        engines: Vec<Arc<dyn Engine>>,
    ) -> io::Result<(Arc<Self>, Vec<Seatless>, Ticker)> {
        let deques: Vec<_> = (0..cores).map(|_| Deque::new_fifo()).collect();
        let shared = Self::new(deques.iter().map(Deque::stealer))?;
        let alarm = Alarm::new();
        let ticker = Ticker::start(shared.clone(), engines, alarm.clone())?;
        let seatless = (0..cores)
            .zip(deques)
            .map(|(core, deque)| Seatless {
                core: CoreId(core),
                deque,
                shared: shared.clone(),
                alarm: alarm.clone(),
            })
            .collect();
        Ok((shared, seatless, ticker))
    }
}

impl Seatless {
    /// Which core this will be.
    pub fn core(&self) -> CoreId {
        self.core
    }

    /// Called on the thread that will run it. The front gets the poller to watch its listening socket with.
    pub fn seat<F: Front>(
        self,
        policy: Box<dyn Policy>,
        metrics: Arc<CoreMetrics>,
        options: CoreOptions,
        front: impl FnOnce(&Poller) -> io::Result<F>,
    ) -> io::Result<Core<F>> {
        let Self {
            core,
            deque,
            shared,
            alarm,
        } = self;
        let queues = Queues {
            core,
            shared,
            policy,
            epoch: Instant::now(),
            deque,
            staged: None,
            starved: VecDeque::new(),
            retry: Instant::now(),
            mean: Duration::ZERO,
        };
        let poller = Poller::new(queues.seat().bell.event(), options.batch)?;
        Ok(Core {
            front: front(&poller)?,
            poller,
            queues,
            options,
            alarm,
            metrics,
            live: Slab::new(),
            preempted: BinaryHeap::new(),
            timers: BinaryHeap::new(),
            wakers: Vec::new(),
            warm: Vec::new(),
            holders: Vec::new(),
            sweep: Instant::now(),
            serial: 0,
            generation: 0,
            turn: 0,
            front_expires: None,
        })
    }
}

/// Whether a function ends so when there is nothing left for it to do. Its limits hold whoever listens.
fn gives_up(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Exit { .. } | Fault::Trap { .. } | Fault::BadOutput { .. }
    )
}

/// How often held requests are looked at for those whose time is over.
const SWEEP: Duration = Duration::from_millis(10);
/// How long a request that found no sandbox waits before it tries again, if none of this core's sandboxes ends before.
const STARVED: Duration = Duration::from_millis(1);
/// How long an abandoned core waits for answers from elsewhere.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

impl<F: Front> Core<F> {
    /// Whether nothing is owed to anybody.
    pub fn drained(&self) -> bool {
        self.live.is_empty()
            && self.queues.is_empty()
            && self.queues.starved.is_empty()
            && !self.holders.iter().any(|target| target.is_holding())
            && !self.queues.shared.outside().is_waiting()
            && self.front.is_quiet()
    }

    /// One turn of the loop: waits at most `budget` for something to do, and does what there is.
    pub fn turn(&mut self, budget: Duration) -> io::Result<()> {
        self.wait(budget)?;
        let begun = Instant::now();
        self.receive(begun);
        let now = self.run();
        self.front.flush(
            &self.poller,
            &mut Intake {
                queues: &mut self.queues,
                now,
            },
        );
        if self.front_expires.is_none_or(|at| at <= now) {
            self.front_expires = self.front.expire(&self.poller, now);
        }
        self.upkeep(now);
        let (runnable, live) = (self.preempted.len(), self.live.len());
        self.metrics.sandboxes.set(count(live + self.warm.len()));
        self.metrics
            .runnable
            .set(count(runnable + self.queues.deque.len()));
        self.metrics.parked.set(count(live.saturating_sub(runnable)));
        self.metrics.busy(begun.elapsed());
        Ok(())
    }

    /// Reads what the last wait found ready, and the mail.
    fn receive(&mut self, now: Instant) {
        for (token, readiness) in self.poller.events() {
            if token == Poller::MAIL {
                self.queues.seat().bell.quiet();
            } else {
                self.front.ready(
                    &self.poller,
                    token,
                    readiness,
                    &mut Intake {
                        queues: &mut self.queues,
                        now,
                    },
                );
            }
        }
        self.take_mail();
    }

    fn wait(&mut self, budget: Duration) -> io::Result<()> {
        if !self.queues.is_empty() || !self.preempted.is_empty() {
            return self.poller.wait(Some(Duration::ZERO));
        }
        let now = Instant::now();
        let mut timeout = budget;
        let mut until = |moment: Instant| timeout = timeout.min(moment.saturating_duration_since(now));
        if let Some(Reverse((moment, ..))) = self.timers.peek() {
            until(*moment);
        }
        if let Some(moment) = self.front_expires {
            until(moment);
        }
        if !self.holders.is_empty() {
            until(self.sweep);
        }
        if !self.queues.starved.is_empty() {
            until(self.queues.retry);
        }
        let seat = self.queues.seat();
        seat.bell.expect();
        if !seat.words.is_empty()
            || !seat.loaded.is_empty()
            || !seat.submitted.is_empty()
            || !seat.woken.is_empty()
            || self.queues.shared.anything_to_steal(self.queues.core)
        {
            timeout = Duration::ZERO;
        }
        // epoll counts in nanoseconds here, but a timer fires late rather than early.
        let waited = self.poller.wait(Some(timeout));
        self.queues.seat().bell.unexpect();
        waited
    }

    fn take_mail(&mut self) {
        while let Some(word) = self.queues.seat().words.pop() {
            match word {
                Word::Answer(answer) => self.front.answer(answer),
                Word::Opening(opening) => self.front.open(*opening),
                Word::Stirred(token) => self.front.stir(token),
            }
        }
        while let Some(invocation) = self.queues.seat().loaded.pop() {
            self.queues.deque.push(invocation);
        }
        while let Some(slot) = self.queues.seat().woken.pop() {
            self.unpark(slot, None, Instant::now());
        }
        while let Some(invocation) = self.queues.seat().submitted.pop() {
            let now = Instant::now();
            let mut intake = Intake {
                queues: &mut self.queues,
                now,
            };
            if let Err((invocation, refusal)) = intake.submit(invocation) {
                self.refuse(*invocation, Failure::Refused(refusal), now);
            }
        }
    }

    /// A parked sandbox can go on; `serial` guards against a timer of an earlier tenant.
    fn unpark(&mut self, slot: usize, serial: Option<u64>, now: Instant) {
        if let Some(live) = self.live.get_mut(slot)
            && live.parked
            && serial.is_none_or(|serial| serial == live.serial)
        {
            live.parked = false;
            if serial.is_some() {
                live.alarm = None;
            }
            live.waited += now.saturating_duration_since(live.since);
            live.since = now;
            live.job.enqueued = self.queues.time(now);
            self.preempted
                .push(Reverse((self.queues.policy.rank(&live.job), live.serial, slot)));
        }
    }

    /// Runs what can run, until nothing can or responses have waited long enough. Returns the time.
    fn run(&mut self) -> Instant {
        let begun = Instant::now();
        let mut now = begun;
        while let Some(Reverse((moment, serial, slot))) = self.timers.peek().copied() {
            if moment > now {
                break;
            }
            self.timers.pop();
            self.unpark(slot, Some(serial), now);
        }
        if self.queues.is_empty()
            && self.preempted.is_empty()
            && let Some(stolen) = self.queues.shared.steal(self.queues.core)
        {
            self.metrics.steals.add(1);
            self.queues.staged = Some(stolen);
        }
        loop {
            self.offer();
            let epoch = self.queues.epoch;
            let fresh = match (
                self.queues.stage().map(|invocation| job(epoch, invocation)),
                self.preempted.peek(),
            ) {
                (None, None) => break,
                (None, Some(_)) => false,
                (Some(_), None) => true,
                (Some(job), Some(Reverse((rank, ..)))) => self.queues.policy.rank(&job) <= *rank,
            };
            now = if fresh {
                match self.queues.staged.take() {
                    Some(invocation) => self.begin(invocation, now),
                    None => now,
                }
            } else {
                match self.preempted.pop() {
                    Some(Reverse((_, _, slot))) => self.resume(slot, now),
                    None => now,
                }
            };
            if now.saturating_duration_since(begun) >= self.options.flush_after {
                break;
            }
        }
        now
    }

    /// Lets idle cores help if that is worth waking one.
    fn offer(&self) {
        let shared = &self.queues.shared;
        if shared.cores() == 1 || self.queues.deque.is_empty() {
            return;
        }
        let busy = self.queues.staged.is_some() || !self.preempted.is_empty();
        if policy::worth_waking(self.queues.deque.len(), self.queues.mean, busy) {
            self.queues.seat().offering.store(true, Ordering::SeqCst);
            shared.wake_idle(self.queues.core);
        }
    }

    fn begin(&mut self, mut invocation: Box<Invocation>, now: Instant) -> Instant {
        // One that came from another core may have been read there since this core looked at the clock.
        let now = now.max(invocation.arrived);
        let target = invocation.target.clone();
        if let Cold::Failed(reason) = &mut invocation.cold {
            let reason = std::mem::take(reason);
            target.unqueue();
            self.refuse(*invocation, Failure::Platform(reason), now);
            return now;
        }
        if target.image().is_none() {
            self.queues.shared.load(invocation);
            return now;
        }
        let Some(invocation) = target.start(invocation) else {
            if !self.holders.iter().any(|holder| Arc::ptr_eq(holder, &target)) {
                self.holders.push(target);
            }
            return now;
        };
        let expires = invocation.expires();
        if expires <= now {
            self.release(&target);
            self.expire(*invocation, now);
            return now;
        }
        let share = match target.share() {
            Ok(share) => share,
            Err(refusal) => {
                self.release(&target);
                self.refuse(*invocation, Failure::Refused(refusal), now);
                return now;
            }
        };
        let job = job(self.queues.epoch, &invocation);
        let Invocation {
            target,
            head,
            body,
            streams,
            arrived,
            home,
            token,
            log_tail,
            cold,
            cut,
        } = *invocation;
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
                return now;
            }
            Err(SpawnError::Failed { reason }) => {
                self.release(&target);
                let timing = Timing::unstarted(arrived, now);
                let result = Err(Failure::Platform(reason));
                let start = Start::None;
                self.deliver(
                    home,
                    Answer {
                        target,
                        token,
                        id,
                        result,
                        timing,
                        start,
                        memory: 0,
                        request_bytes,
                        log_tail: Vec::new(),
                    },
                );
                return now;
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
        if let Some(next) = self.queues.starved.pop_front() {
            self.queues.deque.push(next);
        }
        let place = self.live.vacant_key();
        self.step(live, place, now)
    }

    /// A warm sandbox if the version wants that and there is one, else a fresh one.
    fn sandbox(
        &mut self,
        target: &Arc<Target>,
        mut input: Input,
    ) -> Result<(Box<dyn Sandbox>, u32), SpawnError> {
        if target.reuse > 1
            && let Some(index) = self
                .warm
                .iter()
                .position(|warm| Arc::ptr_eq(&warm.target, target))
        {
            let mut warm = self.warm.swap_remove(index);
            match warm.sandbox.renew(input) {
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

    fn resume(&mut self, place: usize, now: Instant) -> Instant {
        let Some(mut live) = self.live.try_remove(place) else {
            return now;
        };
        live.queue += now.saturating_duration_since(live.since);
        self.step(live, place, now)
    }

    /// Runs a sandbox for a quantum. `place` is free in the slab and its waker leads back there.
    fn step(&mut self, mut live: Live, place: usize, now: Instant) -> Instant {
        while self.wakers.len() <= place {
            let slot = self.wakers.len();
            let waker = SlotWaker {
                shared: self.queues.shared.clone(),
                core: self.queues.core,
                slot,
            };
            self.wakers.push(Waker::from(Arc::new(waker)));
        }
        let quantum = self.queues.policy.quantum(&live.job);
        self.turn += 1;
        self.queues.seat().turn.store(self.turn, Ordering::SeqCst);
        self.alarm.guest_runs();
        let step = live.sandbox.run(&self.wakers[place], now + quantum);
        self.turn += 1;
        self.queues.seat().turn.store(self.turn, Ordering::Release);
        let end = Instant::now();
        let ran = end.saturating_duration_since(now);
        let stop = match &step {
            Step::Done(_) | Step::Fault(..) => Stop::Ended,
            Step::Preempted => Stop::Preempted,
            Step::Waiting { .. } => Stop::Waiting,
        };
        let time = self.queues.time(end);
        self.queues.policy.charge(time, &mut live.job, ran, stop);
        live.since = end;
        live.cpu += ran;
        match step {
            Step::Done(usage) => self.end(live, usage, Ok(()), end),
            Step::Fault(fault, usage) => self.end(live, usage, Err(fault), end),
            Step::Preempted | Step::Waiting { .. } if live.expires <= end => {
                let limit = live.target.grant.limits.timeout;
                let usage = live.sandbox.usage();
                self.end(live, usage, Err(Fault::Timeout { limit }), end);
            }
            Step::Preempted | Step::Waiting { .. } if live.job.ran >= live.target.grant.limits.cpu_time => {
                let limit = live.target.grant.limits.cpu_time;
                let usage = live.sandbox.usage();
                self.end(live, usage, Err(Fault::CpuTime { limit }), end);
            }
            Step::Preempted => {
                self.metrics.preemptions.add(1);
                self.open(&live, false);
                let (rank, serial) = (self.queues.policy.rank(&live.job), live.serial);
                let place = self.live.insert(live);
                self.preempted.push(Reverse((rank, serial, place)));
            }
            // What it waits for may be this.
            Step::Waiting { .. } if self.open(&live, true) => {
                let (rank, serial) = (self.queues.policy.rank(&live.job), live.serial);
                let place = self.live.insert(live);
                self.preempted.push(Reverse((rank, serial, place)));
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
                if is_first {
                    self.timers.push(Reverse((wakes, serial, place)));
                }
            }
        }
        end
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
            seat.bell.ring();
        }
        true
    }

    fn end(&mut self, live: Live, usage: Usage, result: Result<(), Fault>, ended: Instant) {
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
        // The first turn made the instance and then ran it; the engine read the clock between the two.
        let boot = usage
            .started
            .map_or(Duration::ZERO, |started| {
                started.saturating_duration_since(spawned)
            })
            .min(cpu);
        let run = cpu.saturating_sub(boot) + waited;
        target.learn(cpu);
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
                if served + 1 < target.reuse && !target.retired() {
                    self.warm.push(Warm {
                        target: target.clone(),
                        sandbox,
                        served: served + 1,
                    });
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
        drop(share);
        self.release(&target);
        let start = match (served, cold) {
            (_, true) => Start::Image,
            (0, false) => Start::Sandbox,
            (_, false) => Start::Reused,
        };
        let timing = Timing {
            queue,
            boot,
            run,
            cpu,
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
    fn release(&mut self, target: &Target) {
        if let Some(next) = target.end() {
            self.queues.deque.push(next);
        }
        if let Some(next) = self.queues.starved.pop_front() {
            self.queues.deque.push(next);
        }
    }

    fn expire(&mut self, invocation: Invocation, now: Instant) {
        let limit = invocation.target.grant.limits.timeout;
        self.refuse(invocation, Failure::Fault(Fault::Timeout { limit }), now);
    }

    /// Answers a request that never had a sandbox.
    fn refuse(&mut self, invocation: Invocation, failure: Failure, now: Instant) {
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
        let (id, result, request_bytes) = (head.id, Err(failure), length(&body));
        let start = Start::None;
        self.deliver(
            home,
            Answer {
                target,
                token,
                id,
                result,
                timing,
                start,
                memory: 0,
                request_bytes,
                log_tail: Vec::new(),
            },
        );
    }

    /// The time for draining is over: what is not answered yet is refused, and its sandboxes are dropped. Waits a moment
    /// for the answers that others owe: the loader, and cores that stole.
    pub fn abandon(&mut self) -> io::Result<()> {
        let end = Instant::now() + LAST_ANSWERS;
        loop {
            let now = Instant::now();
            self.refuse_all(now);
            let mut intake = Intake {
                queues: &mut self.queues,
                now,
            };
            self.front.flush(&self.poller, &mut intake);
            if self.front.is_quiet() || now >= end {
                return Ok(());
            }
            self.poller.wait(Some(Duration::from_millis(1)))?;
            self.receive(now);
        }
    }

    fn refuse_all(&mut self, now: Instant) {
        let mut left: Vec<_> = self.queues.staged.take().into_iter().collect();
        left.extend(std::iter::from_fn(|| self.queues.deque.pop()));
        left.extend(self.queues.starved.drain(..));
        for target in std::mem::take(&mut self.holders) {
            left.extend(target.take_held());
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
            let (start, result) = (Start::Sandbox, Err(Failure::Refused(Refusal::Draining)));
            self.deliver(
                home,
                Answer {
                    target,
                    token,
                    id,
                    result,
                    timing,
                    start,
                    memory: 0,
                    request_bytes,
                    log_tail: Vec::new(),
                },
            );
        }
        self.preempted.clear();
    }

    fn deliver(&mut self, home: CoreId, answer: Answer) {
        if home == self.queues.core {
            self.front.answer(answer);
        } else if let Some(seat) = self.queues.shared.seat(home) {
            seat.words.push(Word::Answer(answer));
            seat.bell.ring();
        } else {
            self.queues.shared.outside().answer(self.queues.core, answer);
        }
    }

    /// What need not be done at each turn, and costs a comparison when there is nothing to do.
    fn upkeep(&mut self, now: Instant) {
        self.queues.mean = Duration::ZERO;
        if now >= self.queues.retry
            && let Some(next) = self.queues.starved.pop_front()
        {
            // One: if there is still no sandbox for it, there is none for those behind it.
            self.queues.retry = now + STARVED;
            self.queues.deque.push(next);
        }
        if now >= self.sweep && !self.holders.is_empty() {
            self.sweep = now + SWEEP;
            for target in std::mem::take(&mut self.holders) {
                for invocation in target.sweep(now) {
                    target.unqueue();
                    self.expire(*invocation, now);
                }
                if target.is_holding() {
                    self.holders.push(target);
                }
            }
        }
        let generation = self.queues.shared.generation();
        if self.generation != generation {
            self.generation = generation;
            self.warm.retain(|warm| !warm.target.retired());
        }
        let give_way = &self.queues.seat().give_way;
        if give_way.load(Ordering::Relaxed) && give_way.swap(false, Ordering::SeqCst) {
            self.warm.clear();
        }
    }
}

/// What is known of a body's length.
fn length(body: &Body) -> u64 {
    body.known_length().unwrap_or(0) as u64
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn job(epoch: Instant, invocation: &Invocation) -> Job {
    let time = |moment: Instant| Time::default().after(moment.saturating_duration_since(epoch));
    let arrived = time(invocation.arrived);
    Job {
        arrived,
        enqueued: arrived,
        expires: time(invocation.expires()),
        ran: Duration::ZERO,
    }
}
