//! Many sandboxes alive at once, in turn: each computes until it is preempted, then all others have a turn, then it goes on to its end and another
//! takes its place. What a turn costs then is its own and what has been lost meanwhile: caches, and translations of addresses. With
//! one alive the same turns follow on each other.

use crate::{
    machine,
    sandbox::{Answer, Isolation, Module, Sink, head, pure_grant, waker},
    statistics::{Summary, Times},
};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use contract::{ByteSize, CoreId, Grant, Image, Input, Sandbox, Step, Until};
use serde::Serialize;
use std::{
    collections::VecDeque,
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    thread,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The request's body.
    #[arg(long)]
    input: PathBuf,
    /// The answer's body.
    #[arg(long)]
    expect: PathBuf,
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// The core of the ticker.
    #[arg(long)]
    ticker: Option<usize>,
    /// How many are alive.
    #[arg(long)]
    live: u32,
    /// How many end.
    #[arg(long, default_value_t = 2_000)]
    iterations: u32,
    /// The first turn's length, in microseconds.
    #[arg(long, default_value_t = 200)]
    turn: u64,
    /// The sandbox's memory.
    #[arg(long, default_value = "64MiB")]
    memory: ByteSize,
    /// What isolates it.
    #[arg(long)]
    engine: Isolation,
    /// A module of a pure function.
    module: PathBuf,
}

/// What was measured.
#[derive(Serialize)]
pub(crate) struct Report {
    /// Of one sandbox, without the turns of others: making it, both of its turns, and ending it.
    latency_us: Summary,
    /// Its second turn.
    second_us: Summary,
    /// How many had ended in their first turn.
    unbroken: u32,
    /// What all that live take: resident, and of addresses.
    resident_bytes: u64,
    virtual_bytes: u64,
}

struct One {
    sandbox: Box<dyn Sandbox>,
    answer: Arc<Mutex<Answer>>,
    spent: Duration,
    ended: bool,
}

struct Bench<'a> {
    image: &'a dyn Image,
    grant: Arc<Grant>,
    body: Bytes,
    expected: Vec<u8>,
    turn: Duration,
    waker: Waker,
}

impl Bench<'_> {
    fn begin(&self, id: u64) -> Result<One> {
        let answer = Arc::new(Mutex::new(Answer::default()));
        let input = Input {
            head: head("POST", id),
            body: self.body.clone().into(),
            response: Box::new(Sink(answer.clone())),
            services: None,
        };
        let begin = Instant::now();
        let spawned = self.image.spawn(&self.grant, input);
        let mut sandbox = spawned.map_err(|error| anyhow::anyhow!("cannot make a sandbox: {error:?}"))?;
        let ended = self.run(&mut *sandbox, self.turn)?;
        Ok(One {
            sandbox,
            answer,
            spent: begin.elapsed(),
            ended,
        })
    }

    /// Whether it ended.
    fn run(&self, sandbox: &mut dyn Sandbox, turn: Duration) -> Result<bool> {
        let until = Until {
            at: Instant::now() + turn,
            asked: &AtomicBool::new(false),
        };
        match sandbox.run(&self.waker, until) {
            Step::Done(_) => Ok(true),
            Step::Preempted => Ok(false),
            Step::Waiting { .. } => bail!("the function waits; only functions that compute are measured"),
            Step::Fault(fault, _) => bail!("{fault}"),
        }
    }

    /// What its second turn took, and all of it.
    fn end(&self, one: One) -> Result<(Duration, Duration)> {
        let One {
            mut sandbox,
            answer,
            spent,
            mut ended,
        } = one;
        let begin = Instant::now();
        while !ended {
            ended = self.run(&mut *sandbox, Duration::from_secs(10))?;
        }
        let second = begin.elapsed();
        drop(sandbox);
        let whole = spent + begin.elapsed();
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(answer.body == self.expected, "the answer is not the expected one");
        Ok((second, whole))
    }
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let module = Module::load_as(&options.module, options.engine, true, options.live + 1)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(core) = options.ticker {
                // Where it cannot run there, it runs elsewhere.
                let _ = machine::pin(core);
            }
            let _ = priority::wake_at_once();
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_micros(options.turn));
                module.engine.preempt(CoreId(0));
            }
        });
        let measured = (|| {
            if let Some(core) = options.core {
                machine::pin(core)?;
            }
            let bench = Bench {
                image: &*module.image,
                grant: pure_grant(options.memory)?,
                body: read(&options.input)?.into(),
                expected: read(&options.expect)?,
                turn: Duration::from_micros(options.turn),
                waker: waker(),
            };
            in_turn(&bench, options)
        })();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn in_turn(bench: &Bench<'_>, options: &Options) -> Result<Report> {
    let before = machine::memory()?;
    let mut line = VecDeque::new();
    for id in 0..u64::from(options.live) {
        line.push_back(bench.begin(id)?);
    }
    let after = machine::memory()?;
    let (mut whole, mut seconds) = (Times::new()?, Times::new()?);
    let mut unbroken = 0;
    // All places have been used once before anything counts.
    for turn in 0..options.live + options.iterations {
        let Some(one) = line.pop_front() else { break };
        let ended = one.ended;
        let (second, all) = bench.end(one)?;
        if turn >= options.live {
            whole.record(all);
            seconds.record(second);
            unbroken += u32::from(ended);
        }
        line.push_back(bench.begin(u64::from(options.live + turn))?);
    }
    Ok(Report {
        latency_us: whole.summary(),
        second_us: seconds.summary(),
        unbroken,
        resident_bytes: after.resident.saturating_sub(before.resident),
        virtual_bytes: after.addresses.saturating_sub(before.addresses),
    })
}
