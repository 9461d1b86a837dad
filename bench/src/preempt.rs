//! What a preemption costs, and the resumption that follows it. Guests write to their logs for ever, in turn, on one
//! thread. After so many writes the log's end tells the engine to preempt, as the ticker does; the guest then gives way at
//! its next loop. Once every write is the last of its turn, once every thousandth is: the difference is the price of the
//! turns. No other thread takes part, so nothing waits for a cache line of another core's, and no two turns in a row are
//! the same guest's.

use crate::{
    machine,
    sandbox::{Isolation, Module, grant, head},
};
use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use contract::{ByteSize, CoreId, Engine, Input, ResponseHead, ResponseSink, Sandbox, Step, Until};
use serde::Serialize;
use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The core to run on.
    #[arg(long)]
    core: Option<usize>,
    /// Writes in each half of a round.
    #[arg(long, default_value_t = 100_000)]
    iterations: u64,
    /// Rounds: turns of one write, then turns of many.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Sandboxes that have turns.
    #[arg(long, default_value_t = 2)]
    sandboxes: usize,
    /// The memory of each.
    #[arg(long, default_value = "4MiB")]
    memory: ByteSize,
    /// What isolates it.
    #[arg(long, default_value = "wasmtime")]
    engine: Isolation,
    /// The module, which writes to its standard error for ever.
    module: PathBuf,
}

/// CPU time.
#[derive(Serialize)]
pub(crate) struct Report {
    turns: u64,
    /// A turn of one write.
    turn_us: f64,
    /// A write.
    write_us: f64,
    /// A preemption, and a resumption.
    preemption_us: f64,
}

/// Writes in a turn that is long.
const MANY: u64 = 1000;

/// Ends the turn after so many pieces of the log.
struct Sink {
    engine: Arc<dyn Engine>,
    turn: Arc<AtomicU64>,
    written: u64,
}

impl ResponseSink for Sink {
    fn head(&mut self, _: ResponseHead) {}
    fn body(&mut self, _: Bytes) {}
    fn log(&mut self, _: &[u8]) {
        self.written += 1;
        if self.written >= self.turn.load(Ordering::Relaxed) {
            self.written = 0;
            self.engine.preempt(CoreId(0));
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    ensure!(
        options.rounds > 0 && options.sandboxes > 0,
        "at least one round of one sandbox is needed"
    );
    let Module { engine, image, .. } = Module::load(&options.module, options.engine)?;
    if let Some(core) = options.core {
        machine::pin(core)?;
    }
    let grant = grant(options.memory)?;
    let turn = Arc::new(AtomicU64::new(1));
    let spawn = |id| {
        let input = Input {
            head: head("GET", id),
            body: Bytes::new().into(),
            response: Box::new(Sink {
                engine: engine.clone(),
                turn: turn.clone(),
                written: 0,
            }),
            services: None,
        };
        let spawned = image.spawn(&grant, input);
        spawned.map_err(|error| anyhow::anyhow!("cannot make a sandbox: {error:?}"))
    };
    let mut sandboxes = (0..options.sandboxes as u64)
        .map(spawn)
        .collect::<Result<Vec<_>>>()?;
    let (mut short, mut long) = (Duration::ZERO, Duration::ZERO);
    for round in 0..=options.rounds {
        turn.store(1, Ordering::Relaxed);
        let of_short = turns(&mut sandboxes, options.iterations)?;
        turn.store(MANY, Ordering::Relaxed);
        let of_long = turns(&mut sandboxes, options.iterations / MANY)?;
        // The first round is the warm-up.
        if round > 0 {
            short += of_short;
            long += of_long;
        }
    }
    let writes = (options.iterations / MANY * MANY * u64::from(options.rounds)) as f64;
    let count = options.iterations * u64::from(options.rounds);
    let (turn_us, long_us) = (
        short.as_secs_f64() * 1e6 / count as f64,
        long.as_secs_f64() * 1e6 / writes,
    );
    // Of the long ones, one write in a thousand ends a turn, too.
    let preemption_us = (turn_us - long_us) / (1.0 - 1.0 / MANY as f64);
    Ok(Report {
        turns: count,
        turn_us,
        write_us: turn_us - preemption_us,
        preemption_us,
    })
}

/// So many turns; returns their CPU time.
fn turns(sandboxes: &mut [Box<dyn Sandbox>], turns: u64) -> Result<Duration> {
    let asked = AtomicBool::new(false);
    let begin = machine::own_cpu_time();
    let count = sandboxes.len();
    for index in (0..count)
        .cycle()
        .take(usize::try_from(turns).context("too many turns")?)
    {
        // It is over as soon as the engine's word has come.
        let until = Until {
            at: Instant::now(),
            asked: &asked,
        };
        match sandboxes[index].run(Waker::noop(), until) {
            Step::Preempted => {}
            Step::Done(_) => bail!("the guest ended"),
            Step::Waiting { .. } => bail!("the guest waits"),
            Step::Fault(fault, _) => bail!("{fault}"),
        }
    }
    Ok(machine::own_cpu_time().saturating_sub(begin))
}
