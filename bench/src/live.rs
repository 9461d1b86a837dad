//! Many sandboxes alive at once, in turn: each computes until it is preempted, then all others have a turn, then it goes on to its end and another
//! takes its place. What a turn costs then is its own and what has been lost meanwhile: caches, and translations of addresses. With
//! one alive the same turns follow on each other.

use crate::{
    counters::{Count, Counter, Event},
    machine,
    sandbox::{Answer, Isolation, Module, QUANTUM, Sink, head, pure_grant, waker},
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
        atomic::{AtomicBool, AtomicU64, Ordering},
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
    /// The first turn's length, in microseconds: half of what the function takes, or there is no second one.
    #[arg(long, default_value_t = 200.0)]
    turn: f64,
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
    /// How many ended, and how many of these in their first turn.
    iterations: u32,
    unbroken: u32,
    /// What one of all that live takes: resident, and of addresses, reserved beforehand or not.
    resident_bytes: u64,
    virtual_bytes: u64,
    /// Loads in its second turn whose address was not in the data TLB; or why nobody counts them.
    data_tlb_misses: Option<f64>,
    data_tlb_lacks: Option<String>,
}

/// When a turn ends: in nanoseconds since the bench began.
struct Alarm {
    began: Instant,
    at: AtomicU64,
}

/// No turn ends.
const NEVER: u64 = u64::MAX;
/// After which a preemption is tried again: one that comes before the function's code has begun may be lost.
const AGAIN: Duration = Duration::from_micros(20);

impl Alarm {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            at: AtomicU64::new(NEVER),
        }
    }

    fn since(&self, moment: Instant) -> u64 {
        u64::try_from(moment.saturating_duration_since(self.began).as_nanos()).unwrap_or(NEVER)
    }

    fn set(&self, end: Option<Instant>) {
        let at = end.map_or(NEVER, |end| self.since(end));
        self.at.store(at, Ordering::Release);
    }

    /// Preempts whatever runs when it is time. To be exact to the microsecond it has a core of its own, and does not sleep.
    fn ring(&self, stop: &AtomicBool, preempt: impl Fn()) {
        while !stop.load(Ordering::Relaxed) {
            if self.since(Instant::now()) >= self.at.load(Ordering::Acquire) {
                preempt();
                thread::sleep(AGAIN);
            } else {
                // For where it has no core of its own.
                thread::yield_now();
            }
        }
    }
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
    alarm: &'a Alarm,
    misses: Result<Counter, String>,
}

/// What a sandbox took when it was at its end.
struct Taken {
    second: Duration,
    whole: Duration,
    /// In its second turn.
    misses: Count,
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
        let until = Instant::now() + self.turn;
        self.alarm.set(Some(until));
        let ended = self.run(&mut *sandbox, until);
        self.alarm.set(None);
        let ended = ended?;
        Ok(One {
            sandbox,
            answer,
            spent: begin.elapsed(),
            ended,
        })
    }

    /// Whether it ended.
    fn run(&self, sandbox: &mut dyn Sandbox, until: Instant) -> Result<bool> {
        let until = Until {
            at: until,
            asked: &AtomicBool::new(false),
        };
        match sandbox.run(&self.waker, until) {
            Step::Done(_) => Ok(true),
            Step::Preempted => Ok(false),
            Step::Waiting { .. } => bail!("the function waits; only functions that compute are measured"),
            Step::Fault(fault, _) => bail!("{fault}"),
        }
    }

    fn counted(&self) -> Result<Count> {
        self.misses.as_ref().map_or(Ok(Count::default()), Counter::read)
    }

    fn end(&self, one: One) -> Result<Taken> {
        let One {
            mut sandbox,
            answer,
            spent,
            mut ended,
        } = one;
        let before = self.counted()?;
        let begin = Instant::now();
        while !ended {
            ended = self.run(&mut *sandbox, begin + QUANTUM)?;
        }
        let second = begin.elapsed();
        drop(sandbox);
        let whole = spent + begin.elapsed();
        let misses = self.counted()?.since(before);
        let answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(answer.body == self.expected, "the answer is not the expected one");
        Ok(Taken {
            second,
            whole,
            misses,
        })
    }
}

pub(crate) fn run(options: &Options) -> Result<Report> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let turn = Duration::try_from_secs_f64(options.turn / 1e6).context("no such turn")?;
    let before = machine::memory()?;
    let engine = options.engine.engine(options.live + 1)?;
    // An engine may have set aside the addresses of all sandboxes that it has room for.
    let reserved = machine::memory()?.addresses.saturating_sub(before.addresses);
    let module = Module::load_on(engine, &options.module, true)?;
    let (stop, alarm) = (AtomicBool::new(false), Alarm::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            if let Some(core) = options.ticker {
                // Where it cannot run there, it runs elsewhere.
                let _ = machine::pin(core);
            }
            alarm.ring(&stop, || module.engine.preempt(CoreId(0)));
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
                turn,
                waker: waker(),
                alarm: &alarm,
                misses: Counter::open(Event::DataTlbLoadMisses),
            };
            in_turn(&bench, options, reserved)
        })();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

fn in_turn(bench: &Bench<'_>, options: &Options, reserved: u64) -> Result<Report> {
    let before = machine::memory()?;
    let mut line = VecDeque::new();
    for id in 0..u64::from(options.live) {
        line.push_back(bench.begin(id)?);
    }
    let after = machine::memory()?;
    let (mut whole, mut seconds) = (Times::new()?, Times::new()?);
    let mut misses = Count::default();
    let (mut iterations, mut unbroken) = (0, 0);
    // All places have been used once before anything counts.
    for turn in 0..options.live + options.iterations {
        let Some(one) = line.pop_front() else { break };
        let ended = one.ended;
        let taken = bench.end(one)?;
        if turn >= options.live {
            iterations += 1;
            whole.record(taken.whole);
            if ended {
                unbroken += 1;
            } else {
                seconds.record(taken.second);
                misses = misses.and(taken.misses);
            }
        }
        line.push_back(bench.begin(u64::from(options.live + turn))?);
    }
    let each = |bytes: u64| bytes / u64::from(options.live.max(1));
    let broken = f64::from(iterations - unbroken);
    let (data_tlb_misses, data_tlb_lacks) = match &bench.misses {
        Ok(_) => match misses.events() {
            Some(events) => (Some(events / broken), None),
            None => (None, Some("others had all of the hardware's counters".to_owned())),
        },
        Err(reason) => (None, Some(reason.clone())),
    };
    Ok(Report {
        latency_us: whole.summary(),
        second_us: seconds.summary(),
        iterations,
        unbroken,
        resident_bytes: each(after.resident.saturating_sub(before.resident)),
        virtual_bytes: each(reserved + after.addresses.saturating_sub(before.addresses)),
        data_tlb_misses,
        data_tlb_lacks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_rings_when_it_is_time_and_again_until_it_is_off() {
        let (stop, alarm, rung) = (AtomicBool::new(false), Alarm::new(), AtomicU64::new(0));
        let begin = Instant::now();
        let rings = || rung.load(Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                alarm.ring(&stop, || {
                    rung.fetch_add(1, Ordering::Relaxed);
                });
            });
            let end = begin + Duration::from_millis(5);
            alarm.set(Some(end));
            let mut early = false;
            while rings() < 3 && begin.elapsed() < Duration::from_secs(60) {
                early |= rings() > 0 && Instant::now() < end;
                thread::yield_now();
            }
            let rung = rings();
            alarm.set(None);
            // It may have begun to ring.
            thread::sleep(Duration::from_millis(5));
            let before = rings();
            thread::sleep(Duration::from_millis(5));
            let after = rings();
            stop.store(true, Ordering::Relaxed);
            assert!(!early, "it rang before its time");
            assert!(rung >= 3, "it does not ring");
            assert!(after <= before + 1, "it rings on");
        });
    }
}
