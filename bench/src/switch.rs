//! What a preemption costs beyond the signal that brings it, and the resumption that follows it.
//!
//! The same computation ([`work`]) is done by a guest, preempted and resumed by every signal, and by native code, which goes on after
//! the same signal at once. Each is also done without signals. The signals come from another core, in one rhythm for both. What native code
//! pays for one is the kernel's; the rest of what a guest pays is ours.

use crate::{
    machine,
    sandbox::{Answer, Isolation, Module, Sink, grant},
    work,
};
use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use contract::{ByteSize, CoreId, Engine, HeadBuilder, Input, RequestId, Step, Until};
use serde::Serialize;
use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    /// The core that the signals come from.
    #[arg(long)]
    ticker: Option<usize>,
    /// Between two signals, in microseconds.
    #[arg(long, default_value_t = 50)]
    period: u64,
    /// How much is computed: rounds of a generator.
    #[arg(long, default_value_t = 10_000_000)]
    work: u64,
    /// Of all four.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// The guest `work`.
    module: PathBuf,
}

/// For each round, CPU time in microseconds.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    /// A signal to native code.
    signal_us: Vec<f64>,
    /// A signal to a guest, which is preempted and resumed.
    preemption_us: Vec<f64>,
    /// How often it was, in all rounds.
    preemptions: u64,
}

/// Whom the signals are for.
#[derive(Clone, Copy, PartialEq)]
enum To {
    Nobody,
    Thread(i32),
    Guest,
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let Module { engine, image, .. } = Module::load(&options.module, Isolation::Aot)?;
    let beat = Beat {
        to: Mutex::new(To::Nobody),
        sent: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let this = rustix::thread::gettid().as_raw_nonzero().get();
    let expected = format!("{:08x}\n", work::state(options.work));
    let grant = grant(ByteSize(4 << 20))?;
    let guest = |to| {
        let answer = Arc::new(Mutex::new(Answer::default()));
        let target = format!("/function/bench?n={}", options.work);
        let input = Input {
            head: HeadBuilder::new("GET", &target, 0).build(RequestId(1)),
            body: Bytes::new().into(),
            response: Box::new(Sink(answer.clone())),
            services: None,
        };
        let Ok(mut sandbox) = image.spawn(&grant, input) else {
            bail!("cannot make a sandbox");
        };
        beat.during(to, || {
            let asked = AtomicBool::new(false);
            let mut preemptions = 0;
            loop {
                // The next signal ends this turn.
                let until = Until {
                    at: Instant::now(),
                    asked: &asked,
                };
                match sandbox.run(Waker::noop(), until) {
                    Step::Preempted => preemptions += 1,
                    Step::Done(_) => break,
                    other => bail!("the guest did not end: {other:?}"),
                }
            }
            let answer = answer
                .lock()
                .map(|answer| answer.body.clone())
                .unwrap_or_default();
            ensure!(answer == expected.as_bytes(), "the guest's answer is wrong");
            Ok(preemptions)
        })
    };
    let native = |to| {
        beat.during(to, || {
            let rounds = std::hint::black_box(options.work);
            Ok(std::hint::black_box(work::state(rounds)))
        })
    };
    thread::scope(|scope| {
        let (beat, engine) = (&beat, &*engine);
        scope.spawn(move || {
            // Where it cannot run there, it runs elsewhere; where it is refused, it comes later.
            let _ = options.ticker.map(machine::pin);
            let _ = priority::wake_at_once();
            beat.go_on(engine, Duration::from_micros(options.period));
        });
        let _end = End(&beat.stop);
        if let Some(core) = options.core {
            machine::pin(core)?;
        }
        let mut report = Report::default();
        for round in 0..=options.rounds {
            let (alone, _, _) = native(To::Nobody)?;
            let (disturbed, signals, _) = native(To::Thread(this))?;
            let signal = (disturbed - alone) / signals.max(1) as f64;
            let (alone, _, _) = guest(To::Nobody)?;
            let (disturbed, _, preemptions) = guest(To::Guest)?;
            let preemption = (disturbed - alone) / preemptions.max(1) as f64;
            // The first round is the warm-up.
            if round > 0 {
                report.signal_us.push(signal);
                report.preemption_us.push(preemption);
                report.preemptions += preemptions;
            }
        }
        Ok(report)
    })
}

/// Who sends the signals.
struct Beat {
    to: Mutex<To>,
    sent: AtomicU64,
    stop: AtomicBool,
}

impl Beat {
    fn set(&self, to: To) {
        *self.to.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = to;
    }

    /// Does something while signals come: the CPU time in microseconds, how many came, and what it returned.
    fn during<T>(&self, to: To, does: impl FnOnce() -> Result<T>) -> Result<(f64, u64, T)> {
        let before = self.sent.load(Ordering::Relaxed);
        self.set(to);
        let begin = machine::own_cpu_time();
        let returned = does();
        let spent = machine::own_cpu_time().saturating_sub(begin);
        self.set(To::Nobody);
        let sent = self.sent.load(Ordering::Relaxed) - before;
        Ok((spent.as_secs_f64() * 1e6, sent, returned?))
    }

    fn go_on(&self, engine: &dyn Engine, period: Duration) {
        while !self.stop.load(Ordering::Relaxed) {
            thread::sleep(period);
            let to = self.to.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            match *to {
                To::Nobody => continue,
                To::Thread(thread) => fiber::preempt(thread),
                To::Guest => engine.preempt(CoreId(0)),
            }
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ends the beat, whatever ends the rest.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
