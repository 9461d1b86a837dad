//! One core's loop. Its parts are in the order in which a request goes through them: [`begin`], [`turn`], [`end`].

mod begin;
mod end;
mod turn;

use crate::{
    CoreOptions, Failure, Front, Intake, Invocation, Poller, Readiness, Shared, Target, Tenancy, Ticker,
    aside::{Aside, Waiting},
    manners::Manners,
    queues::{Next, Queues},
    shared::Word,
    sink::Slot,
    ticker::{LONG, Watch},
};
use contract::{CoreId, Engine, Job, Policy, RequestId, Sandbox};
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
use telemetry::metrics::CoreMetrics;
use tenants::Share;

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
    /// How long that was after it came.
    limit: Duration,
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
    /// Ready, and not read yet.
    aside: Aside,
    queues: Queues,
    options: CoreOptions,
    metrics: Arc<CoreMetrics>,
    live: Slab<Live>,
    /// How many of these wait for something.
    parked: usize,
    /// When the sockets were looked at last, and all of them.
    looked: Instant,
    timers: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    wakers: Vec<Waker>,
    warm: Vec<Warm>,
    /// A sandbox whose request has ended well. To drop it takes time, and its answer is to be written first.
    spent: Option<Box<dyn Sandbox>>,
    /// Functions that have requests which wait for one of their own to end.
    holders: Vec<Arc<Target>>,
    /// Tenants that have requests which wait for others of theirs to end.
    tenancies: Vec<Arc<Tenancy>>,
    /// When they are looked at for requests whose time is over.
    sweep: Instant,
    serial: u64,
    /// The request whose sandbox has just given the core back, because it was asked to.
    asked: Option<u64>,
    generation: u64,
    turn: u64,
    front_expires: Option<Instant>,
    manners: Manners,
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
        queues.shared.watch().seat(core)?;
        queues
            .shared
            .watch()
            .add(core, &queues.seat().guarded, poller.descriptor())?;
        Ok(Core {
            front: front(&poller)?,
            poller,
            aside: Aside::default(),
            queues,
            options,
            metrics,
            live: Slab::new(),
            parked: 0,
            looked: Instant::now(),
            timers: BinaryHeap::new(),
            wakers: Vec::new(),
            warm: Vec::new(),
            spent: None,
            holders: Vec::new(),
            tenancies: Vec::new(),
            sweep: Instant::now(),
            serial: 0,
            asked: None,
            generation: 0,
            turn: 0,
            front_expires: None,
            manners: Manners::new(Instant::now()),
        })
    }
}

/// How often held requests are looked at for those whose time is over.
const SWEEP: Duration = Duration::from_millis(10);

impl<F: Front> Core<F> {
    /// Whether nothing is owed to anybody.
    pub fn drained(&self) -> bool {
        self.live.is_empty()
            && self.aside.is_empty()
            && self.queues.is_empty()
            && !self.queues.is_starving()
            && !self.holders.iter().any(|target| target.is_holding())
            && !self.tenancies.iter().any(|tenancy| tenancy.is_holding())
            && !self.queues.shared.outside().is_waiting()
            && self.front.is_quiet()
    }

    /// One turn of the loop: waits at most `budget` for something to do, and does what there is.
    pub fn turn(&mut self, budget: Duration) -> io::Result<()> {
        let waited = self.wait(budget)?;
        let begun = Instant::now();
        let unseen = self.look(waited, begun);
        let found = self.poller.found();
        self.manners.looked(waited, found);
        self.queues.seat().count_found(found);
        self.receive(begun, unseen);
        let now = self.run();
        self.upkeep(now);
        self.flush(now);
        if self.front_expires.is_none_or(|at| at <= now) {
            self.front_expires = self.front.expire(&self.poller, now);
            self.flush(now);
        }
        let live = self.live.len();
        self.metrics.sandboxes.set(count(live + self.warm.len()));
        self.metrics.runnable.set(count(self.queues.waiting()));
        self.metrics.parked.set(count(self.parked));
        let busy = begun.elapsed();
        self.metrics.busy(busy);
        self.queues.turned(begun + busy, busy);
        if let Some(patient) = self.manners.review(begun + busy, || self.queues.shared.found()) {
            self.metrics.patient.set(patient.into());
        }
        Ok(())
    }

    fn flush(&mut self, now: Instant) {
        let mut intake = Intake {
            queues: &mut self.queues,
            now,
            unseen: Duration::ZERO,
        };
        intake.queues.watch_time(now);
        self.front.flush(&self.poller, &mut intake);
        self.spent = None;
    }

    /// What the last wait found may have come so long before now: since the last look at all there was. Where nothing else was to
    /// be done, that does not matter, and it is taken to have come now.
    fn look(&mut self, waited: bool, now: Instant) -> Duration {
        let unseen = if waited {
            Duration::ZERO
        } else {
            now.saturating_duration_since(self.looked)
        };
        if waited || !self.poller.is_full() {
            self.looked = now;
        }
        unseen
    }

    /// Reads what the last wait found ready, and the mail.
    fn receive(&mut self, now: Instant, unseen: Duration) {
        let events = self.poller.events();
        self.queues.watch_time(now);
        if !self.aside.is_empty() {
            self.read_aside(now);
        }
        events.iter().for_each(|(token, _)| self.front.prefetch(*token));
        for (token, readiness) in events {
            if token == Poller::MAIL {
                self.queues.seat().bell.quiet();
            } else if !self.set_aside(token, readiness, (now, unseen)) {
                self.read(token, readiness, (now, unseen));
            }
        }
        self.metrics.aside.set(count(self.aside.len()));
        self.take_mail(now);
    }

    /// Reads what was set aside, of each tenant as much as it may have now. While the node drains, that is all.
    fn read_aside(&mut self, now: Instant) {
        let draining = self.queues.shared.is_draining();
        for tenant in self.aside.tenants() {
            while draining || !self.queues.is_ahead(tenant) {
                let Some((token, Waiting { readiness, since })) = self.aside.take(tenant) else {
                    break;
                };
                self.front.prefetch(token);
                self.read(token, readiness, (now, now.saturating_duration_since(since)));
            }
        }
    }

    /// Whether a socket is read later, because its tenant has had more than its share and others wait for theirs: else who asks and
    /// is refused would need no sandbox to have all of the core. What is to be written, and who goes, does not wait.
    fn set_aside(&mut self, token: u64, readiness: Readiness, (now, unseen): (Instant, Duration)) -> bool {
        if !self.queues.is_shared() {
            return false;
        }
        let tenant = self.front.tenant(token);
        let Some(tenant) = tenant.filter(|tenant| self.queues.is_ahead(*tenant)) else {
            return false;
        };
        if readiness.writable || readiness.closed || self.queues.shared.is_draining() {
            return false;
        }
        let since = now.checked_sub(unseen).unwrap_or(now);
        if self.aside.put(tenant, token, Waiting { readiness, since }) {
            self.metrics.set_aside.add(1);
        }
        true
    }

    fn read(&mut self, token: u64, readiness: Readiness, (now, unseen): (Instant, Duration)) {
        let mut intake = Intake {
            queues: &mut self.queues,
            now,
            unseen,
        };
        self.front.ready(&self.poller, token, readiness, &mut intake);
        if self.queues.is_shared() {
            self.queues.spent(self.front.tenant(token));
        }
    }

    /// Looks for events; waits for them if there is nothing else to do, and says whether it did.
    fn wait(&mut self, budget: Duration) -> io::Result<bool> {
        if !(self.queues.is_empty() && self.aside.is_empty()) {
            self.poller.wait(Some(Duration::ZERO))?;
            return Ok(false);
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
        } else if let Some(rest) = self.manners.rest() {
            // Whatever its sockets have, only mail ends the rest.
            seat.bell.event().wait(rest.min(timeout))?;
            timeout = Duration::ZERO;
        }
        // epoll counts in nanoseconds here, but a timer fires late rather than early.
        let waited = self.poller.wait(Some(timeout));
        self.queues.seat().bell.unexpect();
        waited.map(|()| !timeout.is_zero())
    }

    fn take_mail(&mut self, now: Instant) {
        while let Some(word) = self.queues.seat().words.pop() {
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
                unseen: Duration::ZERO,
            };
            match intake.admit(&invocation.target, invocation.arrived, invocation.head.until) {
                Ok(admitted) => intake.put(admitted, invocation),
                Err(refusal) => self.refuse(*invocation, Failure::Refused(refusal), now),
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
            live.job.tenant = live.target.party();
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
        loop {
            let Some(next) = self.queues.next(now) else {
                if self.queues.recall(now) {
                    continue;
                }
                break;
            };
            self.queues.offer();
            if self.front.owes() && self.is_long(&next) {
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

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
