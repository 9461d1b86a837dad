//! One core's loop.

use crate::{
    Answer, Failure, Intake, Invocation, Opening, Poller, Readiness, Shared, Target, Tenancy, Ticker, Timing,
    queues::{Next, Queues},
    shared::{Cold, Word},
    sink::{Rest, Sink, Slot},
    ticker::{LONG, Watch},
};
use contract::{
    Body, CoreId, Engine, Fault, Input, Job, Policy, Refusal, RequestId, Sandbox, SpawnError, Step, Stop,
    Until, Usage,
};
use crossbeam_deque::Worker as Deque;
use slab::Slab;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
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
    metrics: Arc<CoreMetrics>,
    live: Slab<Live>,
    /// How many of these wait for something.
    parked: usize,
    /// The front has something to write.
    owes: bool,
    timers: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    wakers: Vec<Waker>,
    warm: Vec<Warm>,
    /// Functions that have requests which wait for one of their own to end.
    holders: Vec<Arc<Target>>,
    /// Tenants that have requests which wait for others of theirs to end.
    tenancies: Vec<Arc<Tenancy>>,
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
            self.shared.call(self.core, seat);
        }
    }
}

/// A core that has yet to be given its thread and its front.
pub struct Seatless {
    core: CoreId,
    deque: Deque<Box<Invocation>>,
    shared: Arc<Shared>,
}

impl Shared {
    /// A table for this many cores, what each core's thread needs to make its [`Core`], and the ticker of all.
    pub fn assemble(
        cores: u16,
        engines: Vec<Arc<dyn Engine>>,
    ) -> io::Result<(Arc<Self>, Vec<Seatless>, Ticker)> {
        let deques: Vec<_> = (0..cores).map(|_| Deque::new_fifo()).collect();
        let shared = Self::new(deques.iter().map(Deque::stealer), Watch::new(engines)?)?;
        let ticker = Ticker::start(shared.clone())?;
        let seatless = (0..cores)
            .zip(deques)
            .map(|(core, deque)| Seatless {
                core: CoreId(core),
                deque,
                shared: shared.clone(),
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
        let Self { core, deque, shared } = self;
        let queues = Queues::new(core, shared, policy, deque);
        let poller = Poller::new(queues.seat().bell.event(), options.batch)?;
        queues
            .shared
            .watch()
            .add(core, &queues.seat().guarded, poller.descriptor())?;
        Ok(Core {
            front: front(&poller)?,
            poller,
            queues,
            options,
            metrics,
            live: Slab::new(),
            parked: 0,
            owes: false,
            timers: BinaryHeap::new(),
            wakers: Vec::new(),
            warm: Vec::new(),
            holders: Vec::new(),
            tenancies: Vec::new(),
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
/// How long an abandoned core waits for answers from elsewhere.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

impl<F: Front> Core<F> {
    /// Whether nothing is owed to anybody.
    pub fn drained(&self) -> bool {
        self.live.is_empty()
            && self.queues.is_empty()
            && !self.queues.is_starving()
            && !self.holders.iter().any(|target| target.is_holding())
            && !self.tenancies.iter().any(|tenancy| tenancy.is_holding())
            && !self.queues.shared.outside().is_waiting()
            && self.front.is_quiet()
    }

    /// One turn of the loop: waits at most `budget` for something to do, and does what there is.
    pub fn turn(&mut self, budget: Duration) -> io::Result<()> {
        self.wait(budget)?;
        let begun = Instant::now();
        self.receive(begun);
        let now = self.run();
        self.flush(now);
        if self.front_expires.is_none_or(|at| at <= now) {
            self.front_expires = self.front.expire(&self.poller, now);
        }
        self.upkeep(now);
        let live = self.live.len();
        self.metrics.sandboxes.set(count(live + self.warm.len()));
        self.metrics.runnable.set(count(self.queues.waiting()));
        self.metrics.parked.set(count(self.parked));
        let busy = begun.elapsed();
        self.metrics.busy(busy);
        self.queues.turned(begun + busy, busy);
        Ok(())
    }

    fn flush(&mut self, now: Instant) {
        self.owes = false;
        let mut intake = Intake {
            queues: &mut self.queues,
            now,
        };
        self.front.flush(&self.poller, &mut intake);
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
        self.take_mail(now);
    }

    fn wait(&mut self, budget: Duration) -> io::Result<()> {
        if !self.queues.is_empty() {
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
        if self.anybody_waits() {
            until(self.sweep);
        }
        if self.queues.is_starving() {
            until(self.queues.retry);
        }
        let seat = self.queues.seat();
        seat.bell.expect();
        if seat.has_mail() || self.queues.shared.anything_to_steal(self.queues.core) {
            timeout = Duration::ZERO;
        }
        // epoll counts in nanoseconds here, but a timer fires late rather than early.
        let waited = self.poller.wait(Some(timeout));
        self.queues.seat().bell.unexpect();
        waited
    }

    fn take_mail(&mut self, now: Instant) {
        while let Some(word) = self.queues.seat().words.pop() {
            self.owes = true;
            match word {
                Word::Answer(answer) => self.front.answer(answer),
                Word::Opening(opening) => self.front.open(*opening),
                Word::Stirred(token) => self.front.stir(token),
            }
        }
        while let Some(invocation) = self.queues.seat().loaded.pop() {
            self.queues.enter(invocation, now);
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
            self.queues.again(slot, &live.job, now);
            self.parked -= 1;
        }
    }

    /// Runs what can run, until nothing can or responses have waited long enough. Returns the time.
    fn run(&mut self) -> Instant {
        let mut now = Instant::now();
        let over = now + self.options.flush_after;
        while let Some(Reverse((moment, serial, slot))) = self.timers.peek().copied() {
            if moment > now {
                break;
            }
            self.timers.pop();
            self.unpark(slot, Some(serial), now);
        }
        self.queues.reclaim(now);
        if self.queues.is_empty() && self.queues.steal(now) {
            self.metrics.steals.add(1);
        }
        while let Some(next) = self.queues.next(now) {
            self.queues.offer();
            if self.owes && self.is_long(&next) {
                self.flush(now);
                now = Instant::now();
            }
            now = match next {
                Next::Begin(invocation, job, quantum) => self.begin(invocation, job, quantum, now),
                Next::Resume(place, quantum) => self.resume(place, quantum, now),
            };
            let asked = self.queues.seat().guarded.turns.asked();
            if now >= over || asked.load(Ordering::Relaxed) {
                break;
            }
        }
        now
    }

    /// Whether what comes next is expected to keep the core for long.
    fn is_long(&self, next: &Next) -> bool {
        let job = match next {
            Next::Begin(_, job, _) => Some(job),
            Next::Resume(place, _) => self.live.get(*place).map(|live| &live.job),
        };
        job.is_some_and(|job| policy::left(job) > LONG)
    }

    /// Begins a request, if it may have a place of its function's and there is a sandbox for it.
    fn begin(&mut self, invocation: Box<Invocation>, job: Job, quantum: Duration, now: Instant) -> Instant {
        if let Some(refusal) = self.queues.overdue(now, &job) {
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
        // One that came from another core may have been read there since this core looked at the clock.
        let now = now.max(invocation.arrived);
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
            if !self.holders.iter().any(|holder| Arc::ptr_eq(holder, &target)) {
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
                return None;
            }
            Err(SpawnError::Failed { reason }) => {
                self.release(&target, now);
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

    fn resume(&mut self, place: usize, quantum: Duration, now: Instant) -> Instant {
        let Some(mut live) = self.live.try_remove(place) else {
            return now;
        };
        live.queue += now.saturating_duration_since(live.since);
        self.step(live, place, quantum, now)
    }

    /// Runs a sandbox for a quantum. `place` is free in the slab and its waker leads back there.
    fn step(&mut self, mut live: Live, place: usize, quantum: Duration, now: Instant) -> Instant {
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
        let watch = self.queues.shared.watch();
        if watch.begin(self.queues.core, guarded, self.turn + 1, left) && self.queues.seat().has_mail() {
            watch.ask(self.queues.core, guarded);
        }
        let until = Until {
            at: now + quantum,
            asked: guarded.turns.asked(),
        };
        let step = live.sandbox.run(&self.wakers[place], until);
        self.turn += 2;
        guarded.turns.end(self.turn);
        let end = Instant::now();
        let ran = end.saturating_duration_since(now);
        let stop = match &step {
            Step::Done(_) | Step::Fault(..) => Stop::Ended,
            Step::Preempted => Stop::Preempted,
            Step::Waiting { .. } => Stop::Waiting,
        };
        self.queues.charge(end, &mut live.job, ran, stop);
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
    fn wait_again(&mut self, live: Live, now: Instant) {
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
            self.owes = true;
            self.front.open(opening);
        } else if let Some(seat) = self.queues.shared.seat(live.home) {
            seat.words.push(Word::Opening(Box::new(opening)));
            self.queues.shared.call(live.home, seat);
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
    fn release(&mut self, target: &Target, now: Instant) {
        if let Some(next) = target.end() {
            self.queues.enter(next, now);
        }
        self.queues.feed(now);
    }

    fn expire(&mut self, invocation: Invocation, now: Instant) {
        if let Some(deadline) = invocation.deadline().filter(|_| invocation.expires() > now) {
            let retry_after = now.saturating_duration_since(deadline);
            return self.refuse(
                invocation,
                Failure::Refused(Refusal::TooLate { retry_after }),
                now,
            );
        }
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
            self.flush(now);
            if self.front.is_quiet() || now >= end {
                return Ok(());
            }
            self.poller.wait(Some(Duration::from_millis(1)))?;
            self.receive(now);
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
    }

    fn deliver(&mut self, home: CoreId, answer: Answer) {
        if home == self.queues.core {
            self.owes = true;
            self.front.answer(answer);
        } else if let Some(seat) = self.queues.shared.seat(home) {
            seat.words.push(Word::Answer(answer));
            self.queues.shared.call(home, seat);
        } else {
            self.queues.shared.outside().answer(self.queues.core, answer);
        }
    }

    fn anybody_waits(&self) -> bool {
        !(self.holders.is_empty() && self.tenancies.is_empty())
    }

    /// What need not be done at each turn, and costs a comparison when there is nothing to do.
    fn upkeep(&mut self, now: Instant) {
        self.queues.forget();
        self.queues.feed_in_time(now);
        if now >= self.sweep && self.anybody_waits() {
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
            for tenancy in std::mem::take(&mut self.tenancies) {
                for invocation in tenancy.sweep(now) {
                    invocation.target.unqueue();
                    self.expire(*invocation, now);
                }
                for invocation in tenancy.retry() {
                    self.queues.enter(invocation, now);
                }
                if tenancy.is_holding() {
                    self.tenancies.push(tenancy);
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
