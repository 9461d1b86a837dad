//! A node without engine and sockets: sandboxes that follow a script, fronts that are mailboxes.
//!
//! [`World`] holds what all sandboxes share and counts; [`Solo`] is one core on the test's own thread, turned by hand;
//! [`Cluster`] is several on threads of their own, which wait for an hour at a time: a lost wake-up hangs a test, and
//! the watchdog ends it. Every answer is held to what must be true of all of them.

#![allow(dead_code, reason = "each test program uses a part of it")]

use bytes::Bytes;
use contract::{
    Admission, Artefact, Body, Claim, Code, CoreId, Engine, Fault, FunctionId, Grant, HeadBuilder, Image,
    Input, Job, Limits, Party, Policy, PrepareError, Protocol, Refusal, RequestId, ResponseHead, Sandbox,
    SpawnError, Step, Stop, Ticket, Time, Turn, Until, Usage, VersionNumber,
};
use millpond_worker::{
    Answer, Core, CoreOptions, Failure, Front, Intake, Invocation, Opening, Poller, Readiness, Seatless,
    Shared, TargetOptions, Targets, Ticker, Trigger,
};
use parking_lot::{Condvar, Mutex};

use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
};
use std::{
    cell::Cell,
    collections::{HashMap, HashSet, VecDeque},
    io::{self, Write as _},
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc,
    },
    task::Waker,
    thread,
    time::{Duration, Instant},
};
use telemetry::{
    logs::{LogOptions, Logs},
    metrics::{Metrics, Start},
    usage::Recorder,
};

/// Long enough that it only ends when something is lost.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);
const WATCHDOG: Duration = Duration::from_secs(90);
/// An end that has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the process if a test does not end: a core that waits for ever cannot be interrupted otherwise.
pub(crate) struct Watchdog(Arc<(Mutex<bool>, Condvar)>);

impl Watchdog {
    pub(crate) fn set(test: &'static str) -> Self {
        let state = Arc::new((Mutex::new(false), Condvar::new()));
        let its = state.clone();
        thread::spawn(move || {
            let (over, changed) = &*its;
            let deadline = Instant::now() + WATCHDOG;
            let mut over = over.lock();
            while !*over {
                if changed.wait_until(&mut over, deadline).timed_out() {
                    // Not by the macro, whose words would be captured and lost.
                    let _ = writeln!(io::stderr(), "watchdog: `{test}` hangs");
                    std::process::abort();
                }
            }
        });
        Self(state)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

// --- scripts ---------------------------------------------------------------------------------------------------------

/// What a sandbox does in one turn, or at its spawning.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Computes for this long at least and is preempted.
    Compute(Duration),
    /// Computes until the ticker asks it to stop.
    Spin,
    /// Computes, deaf to the ticker, until this is true.
    Stick(Arc<AtomicBool>),
    /// Looks for so long after code that runs elsewhere, and fails if the ticker asks it to stop.
    Elsewhere(Duration),
    /// Waits for a moment.
    Sleep(Duration),
    /// Waits; the wake-up comes before `run` has returned.
    WokenBefore,
    /// Waits; another thread wakes it as soon as it can.
    WokenAfter,
    /// Waits until [`World::wake`], coming back to this wait after any other wake-up.
    Wait,
    /// Fails.
    Fail,
}

/// How the request of a script must end if nothing stops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done,
    Fault,
    /// [`SpawnError::Failed`].
    Unspawned,
}

/// What one request's sandbox does: its acts, a turn each, and then its end in the turn after the last.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) acts: Vec<Act>,
    pub(crate) end: End,
}

impl Script {
    pub(crate) fn of(acts: impl Into<Vec<Act>>) -> Self {
        Self {
            acts: acts.into(),
            end: End::Done,
        }
    }

    pub(crate) fn done() -> Self {
        Self::of([])
    }

    pub(crate) fn ending(end: End) -> Self {
        Self {
            acts: Vec::new(),
            end,
        }
    }
}

// --- the world -------------------------------------------------------------------------------------------------------

thread_local! {
    static CORE: Cell<Option<u16>> = const { Cell::new(None) };
}

/// What all sandboxes share.
pub(crate) struct World {
    scripts: Mutex<HashMap<RequestId, Script>>,
    next: AtomicU64,
    /// Sandboxes that may live at once, over all functions.
    places: AtomicU32,
    preempt: Vec<AtomicBool>,
    /// Requests that [`World::wake`] was called for, and the wakers of those that wait for it.
    woken: Mutex<(HashSet<RequestId>, HashMap<RequestId, Waker>)>,
    wakers: Mutex<mpsc::Sender<Waker>>,
    seen: Mutex<Seen>,
    changed: Condvar,
    /// What the policy says of every tenant;
    pub(crate) ahead: AtomicBool,
    /// and what it was told of the time that its requests took beside their turns: how often, and nanoseconds.
    pub(crate) spent: [AtomicU64; 2],
}

/// What has happened.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Requests whose code ran, and on which core.
    pub(crate) began: Vec<(RequestId, u16)>,
    /// Calls of `spawn`.
    pub(crate) attempts: u32,
    /// Those that gave a sandbox.
    pub(crate) spawned: u32,
    /// Requests that a used sandbox took.
    pub(crate) renewed: u32,
    /// Sandboxes dropped.
    pub(crate) dropped: u32,
    /// Turns.
    pub(crate) turns: u32,
}

impl Seen {
    pub(crate) fn alive(&self) -> u32 {
        self.spawned - self.dropped
    }
}

impl World {
    pub(crate) fn new(cores: usize, places: u32) -> Arc<Self> {
        let (wakers, to_wake) = mpsc::channel::<Waker>();
        thread::spawn(move || to_wake.into_iter().for_each(Waker::wake));
        Arc::new(Self {
            scripts: Mutex::default(),
            next: AtomicU64::new(1),
            places: AtomicU32::new(places),
            preempt: (0..cores).map(|_| AtomicBool::new(false)).collect(),
            woken: Mutex::default(),
            wakers: Mutex::new(wakers),
            seen: Mutex::default(),
            changed: Condvar::new(),
            ahead: AtomicBool::new(false),
            spent: Default::default(),
        })
    }

    /// Ends a request's [`Act::Wait`].
    pub(crate) fn wake(&self, id: RequestId) {
        let mut woken = self.woken.lock();
        woken.0.insert(id);
        if let Some(waker) = woken.1.remove(&id) {
            waker.wake();
        }
    }

    /// How many places are free.
    pub(crate) fn places(&self) -> u32 {
        self.places.load(Ordering::SeqCst)
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock())
    }

    /// Waits until it is so; the watchdog sees to it that this ends.
    pub(crate) fn wait_until(&self, so: impl Fn(&Seen) -> bool) {
        let mut seen = self.seen.lock();
        while !so(&seen) {
            self.changed.wait(&mut seen);
        }
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock());
        self.changed.notify_all();
    }

    fn script(&self, id: RequestId) -> Script {
        self.scripts
            .lock()
            .get(&id)
            .cloned()
            .expect("every request has a script")
    }
}

struct FakeEngine(Arc<World>);

impl Engine for FakeEngine {
    fn name(&self) -> &'static str {
        "scripted"
    }
    fn fingerprint(&self) -> &str {
        "scripted"
    }
    fn compile(&self, _: &Code<'_>) -> Result<Vec<u8>, PrepareError> {
        Err(PrepareError::Unsupported("scripts need no compiler".into()))
    }
    fn load(&self, _: Artefact) -> Result<Arc<dyn Image>, PrepareError> {
        Err(PrepareError::Unsupported("scripts need no file".into()))
    }
    fn preempt(&self, core: CoreId) {
        self.0.preempt[usize::from(core.0)].store(true, Ordering::SeqCst);
    }
}

/// Counts the requests of one function that have a sandbox.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicU32,
    pub(crate) most: AtomicU32,
}

pub(crate) struct FakeImage {
    world: Arc<World>,
    pub(crate) gauge: Arc<Gauge>,
    /// Whether its sandboxes take another request.
    pub(crate) renews: bool,
}

struct FakeSandbox {
    world: Arc<World>,
    gauge: Arc<Gauge>,
    renews: bool,
    input: Option<Input>,
    acts: VecDeque<Act>,
    end: End,
    core: Option<u16>,
    started: Option<Instant>,
    active: bool,
}

impl Image for FakeImage {
    fn spawn(&self, _: &Arc<Grant>, input: Input) -> Result<Box<dyn Sandbox>, SpawnError> {
        self.world.note(|seen| seen.attempts += 1);
        let script = self.world.script(input.head.id);
        if script.end == End::Unspawned {
            return Err(SpawnError::Failed {
                reason: "as the script says".into(),
            });
        }
        let place = |places: u32| places.checked_sub(1);
        if self
            .world
            .places
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, place)
            .is_err()
        {
            return Err(SpawnError::Exhausted(input));
        }
        self.world.note(|seen| seen.spawned += 1);
        let mut sandbox = FakeSandbox {
            world: self.world.clone(),
            gauge: self.gauge.clone(),
            renews: self.renews,
            input: None,
            acts: VecDeque::new(),
            end: End::Done,
            core: None,
            started: None,
            active: false,
        };
        sandbox.take(input, script);
        Ok(Box::new(sandbox))
    }
}

impl FakeSandbox {
    fn take(&mut self, input: Input, script: Script) {
        self.input = Some(input);
        self.acts = script.acts.into();
        self.end = script.end;
        self.started = None;
        self.active = true;
        let now = self.gauge.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.gauge.most.fetch_max(now, Ordering::SeqCst);
    }

    fn finish(&mut self) {
        if std::mem::take(&mut self.active) {
            self.gauge.now.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn id(&self) -> RequestId {
        self.input.as_ref().expect("it runs with an input").head.id
    }

    /// One turn; `None` to go on with the next act within it.
    fn act(&mut self, act: Act, core: u16, waker: &Waker) -> Option<Step> {
        let waiting = || Some(Step::Waiting { until: None });
        match act {
            Act::Compute(least) => {
                let begun = Instant::now();
                while begun.elapsed() < least {
                    std::hint::spin_loop();
                }
                Some(Step::Preempted)
            }
            Act::Spin => {
                while !self.world.preempt[usize::from(core)].swap(false, Ordering::SeqCst) {
                    thread::yield_now();
                }
                Some(Step::Preempted)
            }
            Act::Stick(released) => {
                while !released.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                Some(Step::Preempted)
            }
            Act::Elsewhere(least) => {
                let begun = Instant::now();
                while begun.elapsed() < least {
                    if self.world.preempt[usize::from(core)].swap(false, Ordering::SeqCst) {
                        return self.act(Act::Fail, core, waker);
                    }
                    thread::yield_now();
                }
                None
            }
            Act::Sleep(duration) => Some(Step::Waiting {
                until: Some(Instant::now() + duration),
            }),
            Act::WokenBefore => {
                waker.wake_by_ref();
                waiting()
            }
            Act::WokenAfter => {
                let _ = self.world.wakers.lock().send(waker.clone());
                waiting()
            }
            Act::Wait => {
                let id = self.id();
                let mut woken = self.world.woken.lock();
                if woken.0.contains(&id) {
                    return None;
                }
                woken.1.insert(id, waker.clone());
                self.acts.push_front(Act::Wait);
                waiting()
            }
            Act::Fail => {
                self.acts.clear();
                self.end = End::Fault;
                None
            }
        }
    }
}

impl Sandbox for FakeSandbox {
    fn run(&mut self, waker: &Waker, _: Until<'_>) -> Step {
        let core = CORE.get().expect("sandboxes run on cores");
        assert_eq!(
            *self.core.get_or_insert(core),
            core,
            "a sandbox never leaves its core"
        );
        assert!(self.active, "it is not run after its end");
        let id = self.id();
        let began = self.started.is_none();
        let started = *self.started.get_or_insert_with(Instant::now);
        self.world.note(|seen| {
            seen.turns += 1;
            if began {
                seen.began.push((id, core));
            }
        });
        while let Some(act) = self.acts.pop_front() {
            if let Some(step) = self.act(act, core, waker) {
                return step;
            }
        }
        self.finish();
        let usage = Usage {
            started: Some(started),
            memory: 65536,
            ..Usage::default()
        };
        if self.end == End::Fault {
            return Step::Fault(Fault::Exit { code: 1 }, usage);
        }
        if let Some(mut input) = self.input.take() {
            input.response.head(ResponseHead {
                status: 200,
                headers: Vec::new(),
            });
            let Body::Whole(body) = input.body else {
                panic!("nothing streams here");
            };
            input.response.body(body);
        }
        Step::Done(usage)
    }

    fn is_elsewhere(&self) -> bool {
        matches!(self.acts.front(), Some(Act::Elsewhere(_)))
    }

    fn renew(&mut self, _: &Arc<Grant>, input: Input) -> Result<(), Input> {
        if !self.renews {
            return Err(input);
        }
        self.world.note(|seen| seen.renewed += 1);
        let script = self.world.script(input.head.id);
        self.take(input, script);
        Ok(())
    }
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        self.finish();
        self.world.places.fetch_add(1, Ordering::SeqCst);
        self.world.note(|seen| seen.dropped += 1);
    }
}

// --- functions -------------------------------------------------------------------------------------------------------

/// Makes targets, and gives them something to log to.
pub(crate) struct Functions {
    pub(crate) world: Arc<World>,
    pub(crate) metrics: Arc<Metrics>,
    logs: Logs,
    _folder: tempfile::TempDir,
    made: AtomicU32,
}

/// What a function is.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) concurrency: u32,
    pub(crate) queue: u32,
    pub(crate) reuse: u32,
    pub(crate) renews: bool,
    pub(crate) timeout: Duration,
    pub(crate) cpu_time: Duration,
    pub(crate) deadline: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            concurrency: 64,
            queue: 4096,
            reuse: 1,
            renews: true,
            timeout: HOUR,
            cpu_time: HOUR,
            deadline: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Function {
    pub(crate) targets: Targets,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) limits: Limits,
}

/// What the loader does when it is asked for an image.
pub(crate) type Load = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

impl Functions {
    fn new(world: Arc<World>, metrics: Arc<Metrics>) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the log");
        let logs = Logs::open(folder.path(), LogOptions::default()).expect("a log");
        Self {
            world,
            metrics,
            logs,
            _folder: folder,
            made: AtomicU32::new(0),
        }
    }

    /// A function whose image is loaded.
    pub(crate) fn make(&self, options: Options) -> Function {
        let function = self.cold(options, Box::new(|| Ok(())));
        function.targets.preload().expect("it loads");
        function
    }

    /// A function whose image is loaded when it is first asked for.
    pub(crate) fn cold(&self, options: Options, load: Load) -> Function {
        let number = self.made.fetch_add(1, Ordering::SeqCst);
        let function = FunctionId {
            application: "test".parse().expect("a name"),
            function: format!("f{number}").parse().expect("a name"),
        };
        let version = VersionNumber(NonZeroU32::MIN);
        let Options {
            concurrency,
            queue,
            reuse,
            renews,
            timeout,
            cpu_time,
            deadline,
        } = options;
        let limits = Limits {
            concurrency,
            queue,
            timeout,
            cpu_time,
            ..Limits::default()
        };
        let gauge = Arc::<Gauge>::default();
        let (world, its) = (self.world.clone(), gauge.clone());
        let options = TargetOptions {
            log: self.logs.function(&function, version),
            metrics: self.metrics.function(&function),
            grant: Arc::new(Grant {
                version,
                limits,
                reuse,
                protocol: Protocol::Raw {
                    content_type: "text/plain".into(),
                },
                ..Grant::nothing(function)
            }),
            services: None,
            tenancy: None,
            load: Box::new(move || {
                load()?;
                Ok(Arc::new(FakeImage {
                    world: world.clone(),
                    gauge: its.clone(),
                    renews,
                }))
            }),
            claim: Claim {
                deadline,
                ..Claim::default()
            },
            usage: Arc::new(Recorder::new(0)),
        };
        let targets = Targets::new(options, self.world.preempt.len());
        Function {
            targets,
            gauge,
            limits,
        }
    }
}

// --- fronts ----------------------------------------------------------------------------------------------------------

/// How a request ended, as its front saw it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) id: RequestId,
    pub(crate) core: CoreId,
    pub(crate) outcome: Outcome,
    pub(crate) start: Start,
    /// Phases: queue, boot, run, time on a core.
    pub(crate) phases: [Duration; 4],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Fault(Fault),
    Refused(Refusal),
    Platform(String),
}

struct Request {
    function: Function,
    id: RequestId,
    /// How long ago it came in.
    age: Duration,
    /// How long after its core looked at the clock: only another core can have read it then.
    ahead: Duration,
}

/// The way into a core.
pub(crate) struct Inbox {
    event: OwnedFd,
    requests: Mutex<VecDeque<Request>>,
}

pub(crate) struct Mailbox {
    core: CoreId,
    inbox: Arc<Inbox>,
    outbox: mpsc::Sender<Ended>,
    owed: HashMap<u64, (RequestId, Instant)>,
    /// What is told when the core says that it is time to write.
    unwritten: Vec<Ended>,
    prefetched: Cell<bool>,
    tokens: u64,
}

impl Mailbox {
    const TOKEN: u64 = 7;
}

impl Front for Mailbox {
    fn prefetch(&self, token: u64) {
        self.prefetched.set(self.prefetched.get() || token == Self::TOKEN);
    }

    fn tenant(&self, token: u64) -> Option<Party> {
        (token == Self::TOKEN).then(Party::default)
    }

    fn ready(&mut self, _: &Poller, token: u64, readiness: Readiness, intake: &mut Intake<'_>) {
        assert!(token == Self::TOKEN && readiness.readable && !readiness.closed);
        assert!(
            self.prefetched.take(),
            "it was asked to read what it needs for this"
        );
        assert_eq!(intake.core(), self.core);
        let _ = rustix::io::read(&self.inbox.event, &mut [0u8; 8]);
        let requests = std::mem::take(&mut *self.inbox.requests.lock());
        for Request {
            function,
            id,
            age,
            ahead,
        } in requests
        {
            let now = intake.now + ahead;
            let arrived = now.checked_sub(age).expect("the machine runs for longer");
            let head = HeadBuilder::new("POST", "/", 64).build(id);
            let body = Bytes::from(id.0.to_string());
            self.tokens += 1;
            let target = function.targets.on(self.core).clone();
            match intake.admit(&target, arrived, head.until) {
                Ok(admitted) => {
                    let invocation = Invocation::new(target, head, body, arrived, self.core, self.tokens);
                    intake.put(admitted, Box::new(invocation));
                    self.owed.insert(self.tokens, (id, arrived));
                }
                Err(refusal) => {
                    self.unwritten.push(Ended {
                        id,
                        core: self.core,
                        outcome: Outcome::Refused(refusal),
                        start: Start::None,
                        phases: [Duration::ZERO; 4],
                    });
                }
            }
        }
    }

    fn open(&mut self, opening: Opening) {
        panic!("nothing was to go out in pieces: {opening:?}");
    }

    fn stir(&mut self, token: u64) {
        panic!("nobody was asked to stir {token}");
    }

    fn answer(&mut self, answer: Answer) {
        let Answer {
            token,
            id,
            result,
            timing,
            start,
            ..
        } = answer;
        let (its, arrived) = self
            .owed
            .remove(&token)
            .expect("a request is answered once, and at home");
        assert_eq!(id, its, "an answer is its request's");
        let phases = [timing.queue, timing.boot, timing.run];
        let whole = timing.ended.saturating_duration_since(arrived);
        assert_eq!(
            phases.iter().sum::<Duration>(),
            whole,
            "the phases {phases:?} add up to the whole"
        );
        assert!(
            timing.cpu <= whole,
            "it was on a core for {:?} of {whole:?}",
            timing.cpu
        );
        let outcome = match result {
            Ok(response) => {
                assert_eq!(response.head.map(|head| head.status), Some(200));
                assert_eq!(
                    response.body.concat(),
                    id.0.to_string().into_bytes(),
                    "its own response"
                );
                Outcome::Done
            }
            Err(Failure::Fault(fault) | Failure::Left(fault)) => Outcome::Fault(fault),
            Err(Failure::Refused(refusal)) => Outcome::Refused(refusal),
            Err(Failure::Platform(reason)) => Outcome::Platform(reason),
        };
        let [queue, boot, run] = phases;
        let phases = [queue, boot, run, timing.cpu];
        self.unwritten.push(Ended {
            id,
            core: self.core,
            outcome,
            start,
            phases,
        });
    }

    fn owes(&self) -> bool {
        !self.unwritten.is_empty()
    }

    fn flush(&mut self, _: &Poller, _: &mut Intake<'_>) {
        for ended in self.unwritten.drain(..) {
            let _ = self.outbox.send(ended);
        }
    }

    fn expire(&mut self, _: &Poller, _: Instant) -> Option<Instant> {
        None
    }

    fn is_quiet(&self) -> bool {
        self.owed.is_empty() && self.inbox.requests.lock().is_empty()
    }
}

/// Sends requests to cores and collects their ends.
pub(crate) struct Client {
    world: Arc<World>,
    inboxes: Vec<Arc<Inbox>>,
    ended: mpsc::Receiver<Ended>,
}

impl Client {
    pub(crate) fn submit(&self, core: usize, function: &Function, script: Script) -> RequestId {
        self.submit_aged(core, function, script, Duration::ZERO)
    }

    /// A request that came in some time ago.
    pub(crate) fn submit_aged(
        &self,
        core: usize,
        function: &Function,
        script: Script,
        age: Duration,
    ) -> RequestId {
        let ids = self.submit_all(core, vec![(function.clone(), script, age)]);
        ids[0]
    }

    /// A request that another core has read so long after this one looked at the clock.
    pub(crate) fn submit_ahead(&self, core: usize, function: &Function, script: Script, ahead: Duration) {
        let mut waiting = self.inboxes[core].requests.lock();
        self.push(&mut waiting, function.clone(), script, (Duration::ZERO, ahead));
        drop(waiting);
        self.ring(core);
    }

    fn push(
        &self,
        waiting: &mut VecDeque<Request>,
        function: Function,
        script: Script,
        (age, ahead): (Duration, Duration),
    ) -> RequestId {
        let id = RequestId(u128::from(self.world.next.fetch_add(1, Ordering::SeqCst)));
        self.world.scripts.lock().insert(id, script);
        waiting.push_back(Request {
            function,
            id,
            age,
            ahead,
        });
        id
    }

    fn ring(&self, core: usize) {
        rustix::io::write(&self.inboxes[core].event, &1u64.to_ne_bytes()).expect("an eventfd takes it");
    }

    /// Several that are read at once.
    pub(crate) fn submit_all(
        &self,
        core: usize,
        requests: Vec<(Function, Script, Duration)>,
    ) -> Vec<RequestId> {
        let mut waiting = self.inboxes[core].requests.lock();
        let ids = requests
            .into_iter()
            .map(|(function, script, age)| self.push(&mut waiting, function, script, (age, Duration::ZERO)))
            .collect();
        drop(waiting);
        self.ring(core);
        ids
    }

    /// A request that no front reads; its answer comes to the receiver.
    pub(crate) fn submit_outside(
        &self,
        shared: &Shared,
        function: &Function,
        script: Script,
    ) -> (RequestId, mpsc::Receiver<Answer>) {
        let id = RequestId(u128::from(self.world.next.fetch_add(1, Ordering::SeqCst)));
        self.world.scripts.lock().insert(id, script);
        let (sender, receiver) = mpsc::channel();
        let head = HeadBuilder::new("POST", "/", 64).build(id);
        let body = Bytes::from(id.0.to_string());
        shared.submit(
            function.targets.on(CoreId(0)).clone(),
            head,
            body,
            0,
            move |_, answer| {
                let _ = sender.send(answer);
            },
        );
        (id, receiver)
    }

    /// The next end.
    pub(crate) fn next(&self) -> Ended {
        self.ended
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| self.world.seen(|seen| panic!("a request does not end: {seen:?}")))
    }

    /// The ends so far.
    pub(crate) fn ends(&self) -> Vec<Ended> {
        self.ended.try_iter().collect()
    }

    pub(crate) fn take(&self, n: usize) -> Vec<Ended> {
        (0..n).map(|_| self.next()).collect()
    }
}

fn assemble(cores: u16, places: u32) -> (Functions, Arc<Shared>, Vec<Seatless>, Ticker, Vec<Arc<Inbox>>) {
    let world = World::new(usize::from(cores), places);
    let engine: Arc<dyn Engine> = Arc::new(FakeEngine(world.clone()));
    let (shared, seatless, ticker) = Shared::assemble(cores, vec![engine]).expect("it can be made");
    let inboxes = (0..cores)
        .map(|_| {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
            Arc::new(Inbox {
                event,
                requests: Mutex::default(),
            })
        })
        .collect();
    let metrics = Arc::new(Metrics::new(usize::from(cores)));
    (Functions::new(world, metrics), shared, seatless, ticker, inboxes)
}

/// Round robin, and of tenants what the test says.
struct Scripted {
    policy: Box<dyn Policy>,
    world: Arc<World>,
}

impl Policy for Scripted {
    fn admit(&mut self, now: Time, job: &Job, load: &contract::Load) -> Admission {
        self.policy.admit(now, job, load)
    }

    fn put(&mut self, now: Time, job: &Job, ticket: Ticket) {
        self.policy.put(now, job, ticket);
    }

    fn take(&mut self, now: Time) -> Option<Turn> {
        self.policy.take(now)
    }

    fn overdue(&self, now: Time, job: &Job, share: f32) -> Option<Refusal> {
        self.policy.overdue(now, job, share)
    }

    fn give(&mut self) -> Option<Ticket> {
        self.policy.give()
    }

    fn charge(&mut self, now: Time, job: &mut Job, ran: Duration, stop: Stop) {
        self.policy.charge(now, job, ran, stop);
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn is_contended(&self, _: Option<Party>) -> bool {
        true
    }

    fn spend(&mut self, tenant: Party, spent: Duration) {
        assert_eq!(tenant, Party::default());
        let nanos = u64::try_from(spent.as_nanos()).expect("it was short");
        self.world.spent[0].fetch_add(1, Ordering::Relaxed);
        self.world.spent[1].fetch_add(nanos, Ordering::Relaxed);
    }

    fn is_ahead(&mut self, _: Party) -> bool {
        self.world.ahead.load(Ordering::Relaxed)
    }

    fn len(&self) -> usize {
        self.policy.len()
    }
}

fn seat(
    seatless: Seatless,
    (world, metrics): (&Arc<World>, &Metrics),
    inbox: Arc<Inbox>,
    outbox: mpsc::Sender<Ended>,
) -> Core<Mailbox> {
    let core = seatless.core();
    CORE.set(Some(core.0));
    let policy = Box::new(Scripted {
        policy: policy::Kind::RoundRobin.policy(Duration::from_millis(1)),
        world: world.clone(),
    });
    let metrics = metrics.core(core).expect("a core has metrics");
    seatless
        .seat(policy, metrics, CoreOptions::default(), |poller| {
            poller.add(&inbox.event, Mailbox::TOKEN, Trigger::Level)?;
            Ok(Mailbox {
                core,
                inbox,
                outbox,
                owed: HashMap::new(),
                unwritten: Vec::new(),
                prefetched: Cell::new(false),
                tokens: 0,
            })
        })
        .expect("a core can be seated")
}

/// One core, on the test's thread.
pub(crate) struct Solo {
    pub(crate) core: Core<Mailbox>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) functions: Functions,
    pub(crate) client: Client,
    _ticker: Ticker,
    _watchdog: Watchdog,
}

impl Solo {
    pub(crate) fn new(test: &'static str, places: u32) -> Self {
        Self::among(test, 1, places)
    }

    /// The first of several cores; nobody turns the others.
    pub(crate) fn among(test: &'static str, cores: u16, places: u32) -> Self {
        let _watchdog = Watchdog::set(test);
        let (functions, shared, mut seatless, _ticker, inboxes) = assemble(cores, places);
        let (outbox, ended) = mpsc::channel();
        let core = seat(
            seatless.remove(0),
            (&functions.world, &functions.metrics),
            inboxes[0].clone(),
            outbox,
        );
        let client = Client {
            world: functions.world.clone(),
            inboxes,
            ended,
        };
        Self {
            core,
            shared,
            functions,
            client,
            _ticker,
            _watchdog,
        }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.functions.world
    }

    pub(crate) fn submit(&self, function: &Function, script: Script) -> RequestId {
        self.client.submit(0, function, script)
    }

    /// A turn that does not wait.
    pub(crate) fn turn(&mut self) {
        self.core.turn(Duration::ZERO).expect("a turn");
    }

    /// Some turns that do not wait.
    pub(crate) fn turns(&mut self, n: usize) {
        (0..n).for_each(|_| self.turn());
    }

    /// Turns until so many have ended, each of which may wait for an hour.
    pub(crate) fn take(&mut self, n: usize) -> Vec<Ended> {
        let mut ends = self.client.ends();
        while ends.len() < n {
            self.core.turn(HOUR).expect("a turn");
            ends.extend(self.client.ends());
        }
        assert_eq!(ends.len(), n, "{ends:?}");
        ends
    }

    /// The one request's end.
    pub(crate) fn one(&mut self) -> Ended {
        self.take(1).remove(0)
    }
}

/// Several cores, on threads of their own.
pub(crate) struct Cluster {
    pub(crate) shared: Arc<Shared>,
    pub(crate) functions: Functions,
    pub(crate) client: Client,
    threads: Vec<thread::JoinHandle<io::Result<()>>>,
    _ticker: Ticker,
    _watchdog: Watchdog,
}

impl Cluster {
    pub(crate) fn new(test: &'static str, cores: u16, places: u32) -> Self {
        let _watchdog = Watchdog::set(test);
        let (functions, shared, seatless, _ticker, inboxes) = assemble(cores, places);
        let (outbox, ended) = mpsc::channel();
        let threads = seatless
            .into_iter()
            .zip(&inboxes)
            .map(|(seatless, inbox)| {
                let (inbox, outbox) = (inbox.clone(), outbox.clone());
                let (world, metrics) = (functions.world.clone(), functions.metrics.clone());
                let shared = shared.clone();
                thread::spawn(move || {
                    let mut core = seat(seatless, (&world, &metrics), inbox, outbox);
                    while !shared.is_draining() {
                        core.turn(HOUR)?;
                    }
                    while !core.drained() {
                        core.turn(HOUR)?;
                    }
                    Ok(())
                })
            })
            .collect();
        let client = Client {
            world: functions.world.clone(),
            inboxes,
            ended,
        };
        Self {
            shared,
            functions,
            client,
            threads,
            _ticker,
            _watchdog,
        }
    }

    pub(crate) fn world(&self) -> &Arc<World> {
        &self.functions.world
    }

    /// Answers what was admitted and ends. Every sandbox must be gone.
    pub(crate) fn drain(self) -> Vec<Ended> {
        self.shared.drain();
        for thread in self.threads {
            thread
                .join()
                .expect("a core does not panic")
                .expect("a core does not fail");
        }
        let world = self.functions.world.clone();
        assert_eq!(world.seen(Seen::alive), 0, "a drained node has no sandboxes");
        self.client.ends()
    }
}
