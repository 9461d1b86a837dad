//! What a quantum costs guests that compute, and how late a guest is ended that spins.
//!
//! Sandboxes of one module take turns on one core until all have ended, once with turns of a quantum, which a ticker on
//! another core ends, and once with turns that nobody ends. The difference in the core's CPU time is what being interrupted
//! and changing over costs; and, where there are several, finding the caches used. In the same rounds native code that only computes gets as many of
//! the same signals, and goes on at once: what that costs is the kernel's, and the rest of a preemption is ours. A spinning guest has one turn that
//! ends at its limit, of which the ticker tells it as a node's does, and is then dropped.

use crate::{
    machine,
    sandbox::{Answer, Isolation, Module, Sink, grant, head},
    statistics::{Summary, Times},
};
use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use contract::{ByteSize, CoreId, Engine, Input, Sandbox, Step, Until};
use serde::Serialize;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    thread,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// The core of the ticker.
    #[arg(long)]
    ticker: Option<usize>,
    /// How long a turn is, in microseconds.
    #[arg(long, default_value_t = 1000)]
    quantum: u64,
    /// Sandboxes that take turns.
    #[arg(long, default_value_t = 1)]
    guests: u64,
    /// Pairs of runs: with turns, and without.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// In place of that: how often a guest that spins is ended at the end of its quantum.
    #[arg(long, default_value_t = 0)]
    kills: u32,
    /// The memory of each sandbox.
    #[arg(long, default_value = "64MiB")]
    memory: ByteSize,
    /// What isolates it.
    #[arg(long, default_value = "aot")]
    engine: Isolation,
    /// The module.
    module: PathBuf,
}

#[derive(Serialize)]
pub(crate) struct Report {
    /// CPU time of guests that nobody interrupts, for each round.
    alone_us: Vec<f64>,
    /// The same with turns.
    turns_us: Vec<f64>,
    /// How often they were preempted in each.
    preemptions: Vec<u64>,
    /// How long after its limit a guest that spins had ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    late_us: Option<Summary>,
    kills: u32,
    /// How many had not ended one quantum after their limit.
    too_late: u32,
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let Module { engine, image, .. } = Module::load(&options.module, options.engine)?;
    let quantum = Duration::from_micros(options.quantum);
    // A node's ticker looks every so often; what a quantum costs is asked of one that comes at its end.
    let every = match options.kills {
        0 => quantum,
        _ => quantum.min(worker::Ticker::TICK),
    };
    let (stop, on) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let ticking = engine.clone();
        let (stop, on, core) = (&stop, &on, options.ticker);
        scope.spawn(move || {
            if let Some(core) = core {
                // Where it cannot run there, it runs elsewhere.
                let _ = machine::pin(core);
            }
            // As the node's does.
            let _ = priority::wake_at_once();
            tick(&*ticking, every, stop, on);
        });
        let _end = End(stop);
        if let Some(core) = options.core {
            machine::pin(core)?;
        }
        let grant = grant(options.memory)?;
        let spawn = |id| {
            let input = Input {
                head: head("GET", id),
                body: Bytes::new().into(),
                response: Box::new(Sink(Arc::new(Mutex::new(Answer::default())))),
                services: None,
            };
            let spawned = image.spawn(&grant, input);
            spawned.map_err(|error| anyhow::anyhow!("cannot make a sandbox: {error:?}"))
        };
        if options.kills > 0 {
            on.store(true, Ordering::Relaxed);
            return kill(options.kills, quantum, spawn);
        }
        let mut report = Report {
            alone_us: Vec::new(),
            turns_us: Vec::new(),
            preemptions: Vec::new(),
            late_us: None,
            kills: 0,
            too_late: 0,
        };
        let endless = Duration::from_secs(3600);
        let guests = || (1..=options.guests).map(spawn).collect::<Result<Vec<_>>>();
        for round in 0..=options.rounds {
            let alone = || Ok::<_, anyhow::Error>(in_turn(guests()?, endless)?.0);
            let turns = || {
                let guests = guests()?;
                on.store(true, Ordering::Relaxed);
                let turns = in_turn(guests, Duration::ZERO);
                on.store(false, Ordering::Relaxed);
                turns
            };
            // Who comes second finds warmer caches.
            let (alone, (turns, preemptions)) = if round % 2 == 0 {
                let turns = turns()?;
                (alone()?, turns)
            } else {
                (alone()?, turns()?)
            };
            // The first round is the warm-up.
            if round > 0 {
                report.alone_us.push(alone.as_secs_f64() * 1e6);
                report.turns_us.push(turns.as_secs_f64() * 1e6);
                report.preemptions.push(preemptions);
            }
        }
        Ok(report)
    })
}

/// Ends the ticker, whatever ends the rest.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As a node's ticker does: it looks at the clock every so often and asks whoever runs.
fn tick(engine: &dyn Engine, every: Duration, stop: &AtomicBool, on: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(every);
        if on.load(Ordering::Relaxed) {
            engine.preempt(CoreId(0));
        }
    }
}

/// The CPU time until all have ended, and how often one was preempted, by the first tick after turns of this length.
fn in_turn(mut sandboxes: Vec<Box<dyn Sandbox>>, length: Duration) -> Result<(Duration, u64)> {
    let asked = AtomicBool::new(false);
    let begin = machine::own_cpu_time();
    let mut preemptions = 0;
    while !sandboxes.is_empty() {
        let mut failure = None;
        sandboxes.retain_mut(|sandbox| {
            let at = Instant::now() + length;
            match sandbox.run(Waker::noop(), Until { at, asked: &asked }) {
                Step::Preempted => {
                    preemptions += 1;
                    true
                }
                Step::Done(_) => false,
                Step::Waiting { .. } => {
                    failure = Some("the guest waits".to_owned());
                    false
                }
                Step::Fault(fault, _) => {
                    failure = Some(fault.to_string());
                    false
                }
            }
        });
        if let Some(failure) = failure {
            bail!(failure);
        }
    }
    Ok((machine::own_cpu_time().saturating_sub(begin), preemptions))
}

fn kill(kills: u32, quantum: Duration, spawn: impl Fn(u64) -> Result<Box<dyn Sandbox>>) -> Result<Report> {
    let asked = AtomicBool::new(false);
    let mut late = Times::new()?;
    let mut too_late = 0;
    for id in 0..kills {
        let mut sandbox = spawn(id.into())?;
        let at = Instant::now() + quantum;
        let step = sandbox.run(Waker::noop(), Until { at, asked: &asked });
        let after = at.elapsed();
        ensure!(matches!(step, Step::Preempted), "the guest ended: {step:?}");
        drop(sandbox);
        late.record(after);
        too_late += u32::from(after > quantum);
    }
    Ok(Report {
        alone_us: Vec::new(),
        turns_us: Vec::new(),
        preemptions: Vec::new(),
        late_us: Some(late.summary()),
        kills,
        too_late,
    })
}
