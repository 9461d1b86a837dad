//! Requests without a sandbox, and what decides who is next.
//!
//! All that can run is the policy's. Before a core runs something it puts a few requests that others could begin into a deque,
//! the most urgent first; what is still there when the policy has nothing else, or when the core comes back to its sockets, is
//! its own again. So the policy sees nearly everything that its core could run, others find work without asking, and a queue of
//! pings costs hardly any deque.

use crate::{Invocation, Shared, Target, shared::Seat};
use contract::{Admission, CoreId, Job, Load, Party, Policy, Refusal, Stop, Ticket, Time};
use crossbeam_deque::Worker as Deque;
use policy::Pace;
use slab::Slab;
use std::{
    cell::Cell,
    collections::VecDeque,
    sync::Arc,
    task::Waker,
    time::{Duration, Instant},
};

/// How long a request that found no sandbox waits before it tries again, if none of this core's sandboxes ends before;
const STARVED: Duration = Duration::from_millis(1);
/// and how long after it has tried in vain many times: where all sandboxes are parked, waiting costs next to nothing.
const STARVED_LONG: Duration = Duration::from_millis(16);

/// Requests that lie ready for each of the other cores, if it is worth waking one;
const SPARE: usize = 16;
/// and if not.
const AT_LEAST: usize = 1;

/// The requests of one core, as its front sees them.
pub struct Intake<'a> {
    pub(crate) queues: &'a mut Queues,
    /// When the last wait ended: what is read now is counted from here.
    pub now: Instant,
    /// For how long before that it may have lain unread.
    pub(crate) unseen: Duration,
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

    /// Wakes this core's front for one of its connections: [`crate::Front::stir`].
    pub fn stirrer(&self, token: u64) -> Waker {
        self.queues.shared.stirrer(self.queues.core, token)
    }

    /// Asks the policy whether a request that came at `arrived` may be queued; `until` is when its head says that nobody waits for
    /// it any more. A node far past its capacity spends its time on saying no: nothing need be made for a request before.
    pub fn admit(
        &mut self,
        target: &Target,
        arrived: Instant,
        until: Option<Instant>,
    ) -> Result<Admitted, Refusal> {
        let queues = &mut *self.queues;
        target.arrived(queues.core, self.now);
        let load = Load {
            share: queues.pace.share(),
            ..target.load(queues.shared.is_draining())
        };
        let job = queues.job(target, (arrived, self.unseen), until);
        match queues.policy.admit(queues.time(self.now), &job, &load) {
            Admission::Refuse(refusal) => Err(refusal),
            // Whether it runs or waits is decided where its place is taken.
            Admission::Run | Admission::Wait => Ok(Admitted(job)),
        }
    }

    /// Whether a tenant beside the node's own has used this core: else nobody needs to know what [`Intake::spent`] tells.
    pub fn is_shared(&self) -> bool {
        self.queues.is_shared()
    }

    /// What was done since the last call, or since the core began to read or to write, was done for a request of this tenant.
    pub fn spent(&mut self, tenant: Option<Party>) {
        self.queues.spent(tenant);
    }

    /// Queues the request that was admitted.
    pub fn put(&mut self, admitted: Admitted, mut invocation: Box<Invocation>) {
        invocation.unseen = self.unseen;
        invocation.target.queue();
        let now = self.queues.time(self.now);
        self.queues.put(invocation, admitted.0, now);
    }
}

/// A policy's leave to queue one request, which counts as queued only when it is put: nothing else is asked about before.
#[derive(Debug)]
#[must_use = "its request is not queued yet"]
pub struct Admitted(Job);

/// What a core does next, and for how long at most.
pub(crate) enum Next {
    Begin(Box<Invocation>, Job, Duration),
    Resume(usize, Duration),
}

/// See the module's introduction.
pub(crate) struct Queues {
    pub(crate) core: CoreId,
    pub(crate) shared: Arc<Shared>,
    policy: Box<dyn Policy>,
    epoch: Instant,
    /// What was last asked of [`Queues::time`], and the answer: most of what a core decides in a row, it decides at one moment.
    known: Cell<(Instant, Time)>,
    /// Those that the policy has.
    fresh: Slab<(Box<Invocation>, Job)>,
    /// Those that others may steal.
    deque: Deque<Box<Invocation>>,
    /// No sandbox could be had for these; in the order of their arrival.
    starved: VecDeque<Box<Invocation>>,
    /// When the first of them tries again, if no sandbox of this core ends before.
    pub(crate) retry: Instant,
    /// After how long, if it is in vain once more.
    pause: Duration,
    /// The longest mean run time among what was queued lately.
    mean: Duration,
    pace: Pace,
    /// Since when, and how long guests have run since.
    noted: Instant,
    ran: Duration,
    /// A tenant beside the node's own has used this core.
    is_shared: bool,
    /// Until when what the core did beside that has been told the policy, if that is known.
    told: Option<Instant>,
}

impl Queues {
    pub(crate) fn new(
        core: CoreId,
        shared: Arc<Shared>,
        policy: Box<dyn Policy>,
        deque: Deque<Box<Invocation>>,
    ) -> Self {
        let epoch = Instant::now();
        Self {
            core,
            shared,
            policy,
            epoch,
            known: Cell::new((epoch, Time::default())),
            fresh: Slab::new(),
            deque,
            starved: VecDeque::new(),
            retry: Instant::now(),
            pause: STARVED,
            mean: Duration::ZERO,
            pace: Pace::default(),
            noted: Instant::now(),
            ran: Duration::ZERO,
            is_shared: false,
            told: None,
        }
    }

    pub(crate) fn time(&self, now: Instant) -> Time {
        let (known, time) = self.known.get();
        if known == now {
            return time;
        }
        let time = Time::default().after(now.saturating_duration_since(self.epoch));
        self.known.set((now, time));
        time
    }

    pub(crate) fn seat(&self) -> &Seat {
        // The core was made with this very table of seats.
        &self.shared.seats()[usize::from(self.core.0)]
    }

    /// What this core's policy may know of a request that came at `at`, and may have lain `unseen` before.
    fn job(&self, target: &Target, (at, unseen): (Instant, Duration), until: Option<Instant>) -> Job {
        let arrived = self.time(at);
        let estimate = target.estimate();
        let deadline = target.deadline(at, unseen);
        Job {
            arrived,
            enqueued: arrived,
            expires: match until {
                None => arrived.after(target.grant.limits.timeout),
                Some(_) => self.time(target.expires(at, until)),
            },
            ran: Duration::ZERO,
            estimate: estimate.run,
            waits: estimate.waits,
            spread: estimate.spread(),
            deadline: deadline.map(|deadline| self.time(deadline)),
            priority: target.claim.priority,
            tenant: target.party(),
        }
    }

    fn put(&mut self, invocation: Box<Invocation>, job: Job, now: Time) {
        self.mean = self.mean.max(job.estimate);
        let entry = self.fresh.vacant_entry();
        // A core has fewer requests at once than 2³²: each has a connection or a durable entry.
        let ticket = Ticket::Fresh(u32::try_from(entry.key()).unwrap_or(u32::MAX));
        entry.insert((invocation, job));
        self.policy.put(now, &job, ticket);
    }

    /// A request that was admitted before can run.
    pub(crate) fn enter(&mut self, invocation: Box<Invocation>, now: Instant) {
        let since = (invocation.arrived, invocation.unseen);
        let job = self.job(&invocation.target, since, invocation.head.until);
        self.put(invocation, job, self.time(now));
    }

    /// A sandbox can go on, whose place this is.
    pub(crate) fn again(&mut self, place: usize, job: &Job, now: Instant) {
        let ticket = Ticket::Begun(u32::try_from(place).unwrap_or(u32::MAX));
        self.policy.put(self.time(now), job, ticket);
    }

    /// What is to run now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Next> {
        let now = self.time(now);
        let turn = self.policy.take(now)?;
        Some(match turn.ticket {
            Ticket::Fresh(key) => {
                let (invocation, job) = self.fresh.remove(key as usize);
                Next::Begin(invocation, job, turn.quantum)
            }
            Ticket::Begun(place) => Next::Resume(place as usize, turn.quantum),
        })
    }

    /// A turn has ended: it took this core for so long, and processors besides, whoever's.
    pub(crate) fn charge(
        &mut self,
        now: Instant,
        job: &mut Job,
        (ran, elsewhere): (Duration, Duration),
        stop: Stop,
    ) {
        self.ran += ran;
        self.policy.charge(self.time(now), job, ran + elsewhere, stop);
    }

    /// The core begins to read or to write.
    pub(crate) fn watch_time(&mut self, now: Instant) {
        self.is_shared = self.policy.is_shared();
        self.told = Some(now);
    }

    /// What was done since then, or since the last call, was done for this tenant. Where nobody else has work, nobody needs to know.
    pub(crate) fn spent(&mut self, tenant: Option<Party>) {
        if !self.is_shared {
            return;
        }
        if !self.policy.is_contended(tenant) {
            self.told = None;
            return;
        }
        let now = Instant::now();
        if let (Some(since), Some(tenant)) = (self.told.replace(now), tenant) {
            self.policy.spend(tenant, now.saturating_duration_since(since));
        }
    }

    /// Whether a tenant beside the node's own has used this core.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether a tenant's requests are better read once others have had their turns.
    pub(crate) fn is_ahead(&mut self, tenant: Party) -> bool {
        self.policy.is_ahead(tenant)
    }

    /// A turn of the core's loop has ended in which it was busy for so long.
    pub(crate) fn turned(&mut self, now: Instant, busy: Duration) {
        let other = busy.saturating_sub(std::mem::take(&mut self.ran));
        let passed = now.saturating_duration_since(self.noted);
        self.pace.note(passed, other, !self.is_empty());
        self.noted = now;
    }

    /// Why a request that was taken is not begun, if it would be answered too late even with this leeway.
    pub(crate) fn overdue(&self, now: Instant, job: &Job, leeway: Duration) -> Option<Refusal> {
        let deadline = Some(job.deadline?.after(leeway));
        self.policy
            .overdue(self.time(now), &Job { deadline, ..*job }, self.pace.share())
    }

    /// What was taken did not run.
    pub(crate) fn forgo(&mut self, now: Instant, mut job: Job) {
        self.charge(now, &mut job, (Duration::ZERO, Duration::ZERO), Stop::Ended);
    }

    /// Lets other cores help while this one is busy with what it has taken: at once, if that is worth waking one; and should what
    /// runs take long, once the ticker sees that.
    pub(crate) fn offer(&mut self) {
        let others = self.shared.cores() - 1;
        if others == 0 || self.fresh.is_empty() {
            return;
        }
        let worth = policy::worth_waking(self.fresh.len(), self.mean);
        let most = if worth { SPARE } else { AT_LEAST };
        while self.deque.len() < most * others {
            let Some(Ticket::Fresh(key)) = self.policy.give() else {
                break;
            };
            self.deque.push(self.fresh.remove(key as usize).0);
        }
        if worth {
            self.seat().offer.make();
            self.shared.wake_idle(self.core);
        }
    }

    /// What nobody has stolen is this core's own again.
    pub(crate) fn reclaim(&mut self, now: Instant) {
        if self.deque.is_empty() {
            return;
        }
        self.seat().offer.withdraw();
        while let Some(invocation) = self.deque.pop() {
            self.enter(invocation, now);
        }
    }

    /// The most urgent of what nobody has stolen is this core's own again, if there is any. Others can still have the rest.
    pub(crate) fn recall(&mut self, now: Instant) -> bool {
        let recalled = self.deque.pop();
        let any = recalled.is_some();
        if let Some(invocation) = recalled {
            if self.deque.is_empty() {
                self.seat().offer.withdraw();
            }
            self.enter(invocation, now);
        }
        any
    }

    /// Takes a request from another core, if there is one to be had.
    pub(crate) fn steal(&mut self, now: Instant) -> bool {
        let stolen = self.shared.steal(self.core);
        let any = stolen.is_some();
        if let Some(stolen) = stolen {
            stolen.target.metrics().stolen(self.core);
            self.enter(stolen, now);
        }
        any
    }

    /// Keeps a request until there may be a sandbox for it.
    pub(crate) fn starve(&mut self, invocation: Box<Invocation>, now: Instant) {
        if self.starved.is_empty() {
            self.retry = now + self.pause;
        }
        let place = self
            .starved
            .partition_point(|before| before.arrived <= invocation.arrived);
        self.starved.insert(place, invocation);
    }

    /// The first of those for which there was no sandbox can try again.
    pub(crate) fn feed(&mut self, now: Instant) {
        self.pause = STARVED;
        if let Some(next) = self.starved.pop_front() {
            self.enter(next, now);
        }
    }

    /// One of those tries again whose time for it has come. If there is still no sandbox for it, there is none for the others.
    pub(crate) fn feed_in_time(&mut self, now: Instant) {
        if now >= self.retry && self.is_starving() {
            let pause = (self.pause * 2).min(STARVED_LONG);
            self.retry = now + self.pause;
            self.feed(now);
            self.pause = pause;
        }
    }

    pub(crate) fn is_starving(&self) -> bool {
        !self.starved.is_empty()
    }

    /// Whether nothing can run.
    pub(crate) fn is_empty(&self) -> bool {
        self.policy.is_empty() && self.deque.is_empty()
    }

    /// How many can run, or could if there were sandboxes for them.
    pub(crate) fn waiting(&self) -> usize {
        self.policy.len() + self.deque.len() + self.starved.len()
    }

    /// What was queued so far says nothing of what is queued from now on.
    pub(crate) fn forget(&mut self) {
        self.mean = Duration::ZERO;
    }

    /// All requests without a sandbox.
    #[expect(clippy::vec_box, reason = "they go on as boxes")]
    pub(crate) fn clear(&mut self) -> Vec<Box<Invocation>> {
        while self.policy.give().is_some() {}
        let mut left: Vec<_> = self.fresh.drain().map(|(invocation, _)| invocation).collect();
        left.extend(std::iter::from_fn(|| self.deque.pop()));
        left.extend(self.starved.drain(..));
        left
    }
}
