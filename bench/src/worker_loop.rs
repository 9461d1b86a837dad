//! What a worker adds to its sandboxes: the same requests through a worker's loop ([`worker::Core`] with its policy, its
//! deque, its ticker and the function's counters, around a front that has no sockets), and through the engine's seam
//! alone. Both make the request's head, and both look at the answer. CPU time is the process's, so the ticker's counts.
//!
//! The difference is scheduling, accounting and, with more than one core, the offering of requests to others. The second
//! core never comes for one: what a theft costs is not in it.

use crate::{
    machine,
    sandbox::{self, Answer as Collected, Isolation, Module, Sink, grant, head},
};
use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use contract::{ByteSize, Claim, Grant, Image, Input, Party, Step, Until};
use rustix::event::{EventfdFlags, eventfd};
use serde::Serialize;
use std::{
    cell::{Cell, RefCell},
    fs,
    path::PathBuf,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    task::Waker,
    time::{Duration, Instant},
};
use telemetry::{
    logs::{LogOptions, Logs},
    metrics::{Metrics, Outcome, Sample},
    usage::Recorder,
};
use worker::{
    Answer, CoreOptions, Front, Intake, Invocation, Opening, Poller, Readiness, Shared, Target,
    TargetOptions, Targets, Trigger,
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// What is answered.
    #[arg(long)]
    expect: PathBuf,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// Requests in each half of a round.
    #[arg(long, default_value_t = 20_000)]
    iterations: u64,
    /// Rounds: the worker's half, then the engine's.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Cores of the node. One of them runs.
    #[arg(long, default_value_t = 1)]
    cores: u16,
    /// Requests that are ready at once.
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// `deadline`, `round-robin`, `shortest`, `first-come`.
    #[arg(long, default_value_t)]
    policy: policy::Kind,
    /// A sandbox's memory.
    #[arg(long, default_value = "1MiB")]
    memory: ByteSize,
    /// The module.
    module: PathBuf,
}

/// CPU time for each request.
#[derive(Serialize)]
pub(crate) struct Report {
    requests: u64,
    worker_us: f64,
    engine_us: f64,
    added_us: f64,
}

/// A front whose clients always have `batch` requests ready.
struct Endless {
    target: Arc<Target>,
    expected: Vec<u8>,
    batch: usize,
    asked: u64,
    seen: Rc<Seen>,
}

/// What came back.
#[derive(Default)]
struct Seen {
    right: Cell<u64>,
    wrong: RefCell<Option<String>>,
}

impl Endless {
    fn wrong(&self, what: impl Into<String>) {
        self.seen.wrong.replace(Some(what.into()));
    }
}

impl Front for Endless {
    fn prefetch(&self, _: u64) {}

    fn tenant(&self, _: u64) -> Option<Party> {
        Some(self.target.party())
    }

    fn ready(&mut self, _: &Poller, _: u64, _: Readiness, intake: &mut Intake<'_>) {
        for _ in 0..self.batch {
            self.asked += 1;
            let (head, home) = (head("GET", self.asked), intake.core());
            let invocation = Invocation::new(
                self.target.clone(),
                head,
                Bytes::new(),
                intake.now,
                home,
                self.asked,
            );
            match intake.admit(&self.target, intake.now, None) {
                Ok(admitted) => intake.put(admitted, Box::new(invocation)),
                Err(refusal) => self.wrong(format!("a request was refused: {refusal:?}")),
            }
        }
    }

    fn open(&mut self, _: Opening) {
        self.wrong("an answer came in pieces");
    }

    fn stir(&mut self, _: u64) {}

    fn answer(&mut self, answer: Answer) {
        let response = match answer.result {
            Ok(response) => response,
            Err(failure) => return self.wrong(format!("{failure:?}")),
        };
        let body = response.body.iter().flat_map(|piece| piece.iter());
        if !body.eq(&self.expected) {
            self.wrong("an answer is not the expected one");
        }
        self.seen.right.update(|right| right + 1);
        let timing = &answer.timing;
        let sample = Sample {
            queue: timing.queue,
            boot: timing.boot,
            run: timing.run,
            write: Duration::ZERO,
            cpu: timing.cpu,
            outcome: Outcome::Ok,
            start: answer.start,
            request_bytes: answer.request_bytes,
            response_bytes: self.expected.len() as u64,
            memory_bytes: answer.memory,
        };
        answer.target.record(contract::CoreId(0), &sample);
    }

    fn owes(&self) -> bool {
        false
    }

    fn flush(&mut self, _: &Poller, _: &mut Intake<'_>) {}

    fn expire(&mut self, _: &Poller, _: Instant) -> Option<Instant> {
        None
    }

    fn is_quiet(&self) -> bool {
        true
    }
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    // As a node does.
    node::keep_freed_pieces();
    ensure!(
        options.cores > 0 && options.rounds > 0,
        "at least one core and one round are needed"
    );
    let expected = fs::read(&options.expect).context("cannot read the expected body")?;
    let Module { engine, image, .. } = Module::load(&options.module, Isolation::Wasmtime)?;
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let folder = tempfile::tempdir()?;
    let logs = Logs::open(folder.path(), LogOptions::default())?;
    let metrics = Metrics::new(usize::from(options.cores));
    let grant = grant(options.memory)?;
    let its = image.clone();
    let made_of = TargetOptions {
        log: logs.function(&grant.function, grant.version),
        metrics: metrics.function(&grant.function),
        grant: grant.clone(),
        services: None,
        tenancy: None,
        usage: Arc::new(Recorder::new(usize::from(options.cores))),
        load: Box::new(move || Ok(its.clone())),
        claim: Claim::default(),
    };
    let targets = Targets::new(made_of, usize::from(options.cores));
    targets.preload().map_err(anyhow::Error::msg)?;
    let (_shared, mut seatless, _ticker) = Shared::assemble(options.cores, vec![engine])?;
    let seat = seatless.remove(0);
    let target = targets.on(seat.core()).clone();
    let metrics = metrics.core(seat.core()).context("a core has metrics")?;
    let policy = options.policy.policy(policy::QUANTUM);
    // Readable from the beginning, and never read.
    let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let seen = Rc::<Seen>::default();
    let mut core = seat.seat(policy, metrics, CoreOptions::default(), |poller| {
        poller.add(&ready, 0, Trigger::Level)?;
        Ok(Endless {
            target,
            expected: expected.clone(),
            batch: options.batch,
            asked: 0,
            seen: seen.clone(),
        })
    })?;
    let (mut through, mut alone) = (Duration::ZERO, Duration::ZERO);
    let mut requests = (0, 0);
    for round in 0..=options.rounds {
        let (before, begin) = (seen.right.get(), machine::whole_cpu_time());
        while seen.right.get() < before + options.iterations {
            core.turn(Duration::ZERO)?;
            if let Some(wrong) = seen.wrong.take() {
                bail!("{wrong}");
            }
        }
        let middle = machine::whole_cpu_time();
        engine_alone(image.as_ref(), &grant, &expected, options.iterations)?;
        let end = machine::whole_cpu_time();
        // The first round is the warm-up.
        if round > 0 {
            through += middle.saturating_sub(begin);
            alone += end.saturating_sub(middle);
            requests.0 += seen.right.get() - before;
            requests.1 += options.iterations;
        }
    }
    let each = |time: Duration, requests: u64| time.as_secs_f64() * 1e6 / requests.max(1) as f64;
    let (worker_us, engine_us) = (each(through, requests.0), each(alone, requests.1));
    Ok(Report {
        requests: requests.0,
        worker_us,
        engine_us,
        added_us: worker_us - engine_us,
    })
}

fn engine_alone(image: &dyn Image, grant: &Arc<Grant>, expected: &[u8], requests: u64) -> Result<()> {
    let answer = Arc::new(Mutex::new(Collected::default()));
    for id in 0..requests {
        let input = Input {
            head: head("GET", id),
            body: Bytes::new().into(),
            response: Box::new(Sink(answer.clone())),
            services: None,
        };
        let mut sandbox = image
            .spawn(grant, input)
            .map_err(|error| anyhow::anyhow!("cannot make a sandbox: {error:?}"))?;
        let until = Until {
            at: Instant::now() + sandbox::QUANTUM,
            asked: &AtomicBool::new(false),
        };
        match sandbox.run(Waker::noop(), until) {
            Step::Done(_) => {}
            Step::Fault(fault, _) => bail!("{fault}"),
            Step::Preempted | Step::Waiting { .. } => bail!("the function does not end at once"),
        }
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(answer.body == expected, "an answer is not the expected one");
        answer.body.clear();
    }
    Ok(())
}
