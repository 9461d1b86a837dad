//! The threads of the cores.

use gateway::{Gateway, Listener};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    io,
    panic::{self, AssertUnwindSafe},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use telemetry::metrics::Metrics;
use worker::{Core, CoreOptions, Front, Seatless, Shared};

/// The processors to run on: those that were asked for, or all that this process may use.
pub(crate) fn processors(asked: &[usize]) -> Result<Vec<usize>, String> {
    let allowed = sched_getaffinity(None)
        .map_err(|error| format!("failed to read this process's processors: {error}"))?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if asked.is_empty() {
        return Ok(allowed);
    }
    let mut seen = Vec::new();
    for cpu in asked {
        if !allowed.contains(cpu) {
            return Err(format!(
                "processor {cpu} of `cores` cannot be used here; these can: {allowed:?}"
            ));
        }
        if seen.contains(cpu) {
            return Err(format!("processor {cpu} stands twice in `cores`"));
        }
        seen.push(*cpu);
    }
    Ok(seen)
}

/// What every core's thread is given.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) shared: Arc<Shared>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) quantum: Duration,
    pub(crate) policy: policy::Kind,
    pub(crate) drain: Duration,
    pub(crate) boot: u64,
    pub(crate) gateway: gateway::Options,
    /// A core could not go on: the node must end.
    pub(crate) failed: mpsc::Sender<io::Error>,
}

/// Starts one core on its processor.
pub(crate) fn start(
    common: Common,
    seat: Seatless,
    processor: usize,
    listener: Listener,
    reader: dispatcher::Reader,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new()
        .name(format!("core-{}", seat.core().0))
        .spawn(move || {
            let failed = common.failed.clone();
            let run = AssertUnwindSafe(|| run(common, seat, processor, listener, reader));
            let ended =
                panic::catch_unwind(run).unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
            if let Err(error) = ended {
                // Nobody listens only when the node has ended already.
                let _ = failed.send(error);
            }
        })
}

fn run(
    common: Common,
    seat: Seatless,
    processor: usize,
    listener: Listener,
    reader: dispatcher::Reader,
) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set)?;
    let Common {
        shared,
        metrics,
        quantum,
        policy,
        drain,
        boot,
        gateway: options,
        ..
    } = common;
    let id = seat.core();
    let metrics = metrics
        .core(id)
        .ok_or_else(|| io::Error::other("there are fewer metrics than cores"))?;
    let policy = policy.policy(quantum);
    let its = metrics.clone();
    let core = seat.seat(policy, metrics, CoreOptions::default(), |poller| {
        Gateway::new(poller, listener, id, boot, reader, its, options)
    })?;
    serve(core, &shared, drain)
}

/// How long a core waits when nothing happens, and how often a draining one looks at the clock.
const IDLE: Duration = Duration::from_secs(5);
const DRAINING: Duration = Duration::from_millis(10);

fn serve<F: Front>(mut core: Core<F>, shared: &Shared, drain: Duration) -> io::Result<()> {
    while !shared.is_draining() {
        core.turn(IDLE)?;
    }
    let deadline = Instant::now() + drain;
    // The first turn closes the listener.
    core.turn(Duration::ZERO)?;
    while !core.drained() {
        if Instant::now() >= deadline {
            return core.abandon();
        }
        core.turn(DRAINING)?;
    }
    Ok(())
}
