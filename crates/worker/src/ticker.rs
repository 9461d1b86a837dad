//! The one ticker: a thread that makes engines preempt guests which run for long, and sleeps when no guest runs.
//!
//! A timer for each run would cost 0.6 µs of every request to stop the one in a million that needs it. Instead each core
//! counts its turns in its seat; every tick the ticker looks, and a turn that it has seen before is worth an
//! interruption. A short function's turns are never the same at two looks, so its callback never runs.

use crate::Shared;
use contract::{CoreId, Engine};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// The thread. Dropping it ends it.
pub struct Ticker {
    alarm: Arc<Alarm>,
    thread: Option<thread::JoinHandle<()>>,
}

/// By which cores wake a sleeping ticker.
pub(crate) struct Alarm {
    asleep: AtomicBool,
    ended: AtomicBool,
    thread: std::sync::OnceLock<thread::Thread>,
}

impl Alarm {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            thread: std::sync::OnceLock::new(),
        })
    }

    /// A guest is about to run: the caller's turn is published already.
    pub(crate) fn guest_runs(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// Looks in a row that saw no guest before the ticker sleeps.
const PATIENCE: u32 = 20;

impl Ticker {
    /// How often it looks while guests run.
    pub const TICK: Duration = Duration::from_millis(2);

    pub(crate) fn start(
        shared: Arc<Shared>,
        engines: Vec<Arc<dyn Engine>>,
        alarm: Arc<Alarm>,
    ) -> std::io::Result<Self> {
        let its = alarm.clone();
        let thread = thread::Builder::new().name("ticker".into()).spawn(move || {
            let _ = its.thread.set(thread::current());
            tick(&shared, &engines, &its);
        })?;
        Ok(Self {
            alarm,
            thread: Some(thread),
        })
    }
}

fn tick(shared: &Shared, engines: &[Arc<dyn Engine>], alarm: &Alarm) {
    let mut seen = vec![0u64; shared.cores()];
    let mut quiet = 0;
    while !alarm.ended.load(Ordering::SeqCst) {
        let mut any = false;
        for (core, (seat, seen)) in (0u16..).zip(shared.seats().iter().zip(&mut seen)) {
            let turn = seat.turn.load(Ordering::SeqCst);
            let runs = turn % 2 == 1;
            // A core that never stops running short guests is busy, not stuck.
            any |= turn != *seen || runs;
            if runs && turn == *seen {
                engines.iter().for_each(|engine| engine.preempt(CoreId(core)));
                if !seat.stealer.is_empty() {
                    seat.offering.store(true, Ordering::SeqCst);
                    shared.wake_idle(CoreId(core));
                }
            }
            *seen = turn;
        }
        quiet = if any { 0 } else { quiet + 1 };
        if quiet < PATIENCE {
            thread::park_timeout(Ticker::TICK);
            continue;
        }
        alarm.asleep.store(true, Ordering::SeqCst);
        // Whoever began before that store is seen here; whoever begins after it sees us asleep.
        let begun = shared
            .seats()
            .iter()
            .zip(&seen)
            .any(|(seat, seen)| seat.turn.load(Ordering::SeqCst) != *seen);
        if !begun {
            while alarm.asleep.load(Ordering::SeqCst) && !alarm.ended.load(Ordering::SeqCst) {
                thread::park();
            }
        }
        alarm.asleep.store(false, Ordering::SeqCst);
        quiet = 0;
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.alarm.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It panics only if an engine's `preempt` does; there is nothing left to do about it here.
            let _ = thread.join();
        }
    }
}
