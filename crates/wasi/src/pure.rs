//! The world of a pure function: files in memory, a clock of its own, and random numbers that its inputs decide. Equal inputs make equal runs.

use crate::{
    clock::{Clock, PURE_BEGIN},
    files::Files,
};
use ::pure::{Set, seed};
use contract::{Grant, Protocol};
use rand::{Rng as _, SeedableRng as _, rngs::ChaCha12Rng};
use std::sync::Arc;

/// By how much each look at a clock moves it, in nanoseconds: who waits for it to move does not wait for ever.
const TICK: u64 = 1_000;

/// See the module.
pub(crate) struct Pure {
    pub(crate) inputs: Vec<Set>,
    grant: Arc<Grant>,
    /// Made when they are first looked at: who has its sets in its memory has none.
    files: Option<Files>,
    /// Nanoseconds since it began.
    elapsed: u64,
    /// Made when it is first asked.
    random: Option<Box<ChaCha12Rng>>,
}

impl Pure {
    /// With these inputs.
    pub(crate) fn new(inputs: Vec<Set>, grant: Arc<Grant>) -> Self {
        Self {
            inputs,
            grant,
            files: None,
            elapsed: 0,
            random: None,
        }
    }

    pub(crate) fn files(&mut self) -> &mut Files {
        self.files.get_or_insert_with(|| {
            let outputs: &[String] = match &self.grant.protocol {
                Protocol::Pure { outputs, .. } => outputs,
                _ => &[],
            };
            Files::new(&self.inputs, outputs, self.grant.limits.memory.bytes())
        })
    }

    /// Nanoseconds, by one of its clocks.
    pub(crate) fn time(&mut self, clock: Clock) -> u64 {
        self.wait(TICK);
        match clock {
            Clock::Realtime => PURE_BEGIN.saturating_add(self.elapsed),
            Clock::Monotonic | Clock::Cpu => self.elapsed,
        }
    }

    /// Lets so many nanoseconds pass: nobody waits for them.
    pub(crate) fn wait(&mut self, nanoseconds: u64) {
        self.elapsed = self.elapsed.saturating_add(nanoseconds);
    }

    /// Nanoseconds from now to a time of one of its clocks.
    pub(crate) fn until(&self, clock: Clock, time: u64) -> u64 {
        let now = match clock {
            Clock::Realtime => PURE_BEGIN.saturating_add(self.elapsed),
            Clock::Monotonic | Clock::Cpu => self.elapsed,
        };
        time.saturating_sub(now)
    }

    pub(crate) fn fill_random(&mut self, buffer: &mut [u8]) {
        let inputs = &self.inputs;
        self.random
            .get_or_insert_with(|| Box::new(ChaCha12Rng::from_seed(seed(inputs))))
            .fill_bytes(buffer);
    }
}
