//! The usage history of each version: what its requests took, as far back as it matters.
//!
//! Cores count in a [`Recorder`]; now and then [`Usage::learn`] takes what is new there into the [`History`], in which everything
//! loses half of its weight in [`HALF_LIFE`]: it follows change, and its size is bounded however much it has seen. Scheduling
//! reads the recorder's estimate, which a restart takes up from here and a new version from its predecessor; zygotes and sizing
//! read the distributions.
//!
//! A history is one record of the store, written at most once a minute and once at a shutdown in order. What a crash
//! loses is what came since.

use contract::Demand;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use telemetry::usage::{Count, Counts, Estimate, Recorder, Series, TICK, bound};

/// In this time, what was counted loses half of its weight.
pub const HALF_LIFE: Duration = Duration::from_secs(60 * 60);

/// No history is written more often, unless the node ends.
const WRITE_EVERY: Millis = 60_000;

/// Since 1970.
pub(crate) type Millis = u64;

/// Values, each with a weight that decays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    sum: f64,
    /// By the buckets of [`telemetry::usage`].
    weights: BTreeMap<u8, f64>,
}

/// What weighs less has been forgotten.
const FORGOTTEN: f64 = 1e-3;

impl Distribution {
    fn decay(&mut self, factor: f64) {
        self.sum *= factor;
        self.weights.retain(|_, weight| {
            *weight *= factor;
            *weight >= FORGOTTEN
        });
        if self.weights.is_empty() {
            self.sum = 0.0;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "of some seconds' values")]
    fn add(&mut self, count: &Count) {
        for (bucket, n) in (0u8..).zip(&count.buckets) {
            if *n > 0 {
                *self.weights.entry(bucket).or_default() += f64::from(*n);
            }
        }
        self.sum += count.sum as f64;
    }

    /// The weight of all values: how many there were, the older ones counting less.
    pub fn weight(&self) -> f64 {
        // The sum of nothing is -0.
        self.weights.values().sum::<f64>() + 0.0
    }

    /// Their mean; none if there are none.
    pub fn mean(&self) -> Option<f64> {
        let weight = self.weight();
        (weight > 0.0).then(|| self.sum / weight)
    }

    /// The value that this part (0 to 1) of all does not exceed, at most a quarter too large; none if there are none.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let (last, _) = self.weights.last_key_value()?;
        let wanted = self.weight() * part.clamp(0.0, 1.0);
        let mut passed = 0.0;
        let found = self.weights.iter().find(|(_, weight)| {
            passed += **weight;
            passed >= wanted
        });
        Some(bound(usize::from(*found.map_or(last, |(bucket, _)| bucket))))
    }
}

/// What a version's requests used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// What the distributions weigh as of when.
    updated: Millis,
    /// The time that they cover, decayed as they are, in seconds.
    covered: f64,
    /// Requests that had a sandbox, undecayed.
    pub requests: u64,
    /// Time on a core, in ticks of [`TICK`].
    pub run: Distribution,
    /// Time that it waited for something, in ticks.
    pub waits: Distribution,
    /// The sandbox's largest memory, in bytes.
    pub memory: Distribution,
    /// Bodies of requests, in bytes.
    pub received: Distribution,
    /// Bodies of responses, in bytes.
    pub sent: Distribution,
    /// From one arrival to the next, in ticks.
    pub gap: Distribution,
    estimate: Expected,
}

/// An [`Estimate`], in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Expected {
    run: u64,
    waits: u64,
    service: u64,
    deviation: u64,
}

impl From<Estimate> for Expected {
    fn from(estimate: Estimate) -> Self {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self {
            run: nanos(estimate.run),
            waits: nanos(estimate.waits),
            service: nanos(estimate.service),
            deviation: nanos(estimate.deviation),
        }
    }
}

impl From<Expected> for Estimate {
    fn from(expected: Expected) -> Self {
        Self {
            run: Duration::from_nanos(expected.run),
            waits: Duration::from_nanos(expected.waits),
            service: Duration::from_nanos(expected.service),
            deviation: Duration::from_nanos(expected.deviation),
        }
    }
}

/// A number of ticks as a duration.
#[must_use]
pub fn ticks(n: f64) -> Duration {
    Duration::try_from_secs_f64(TICK.as_secs_f64() * n).unwrap_or(Duration::MAX)
}

impl History {
    fn distribution(&mut self, series: Series) -> &mut Distribution {
        match series {
            Series::Run => &mut self.run,
            Series::Waits => &mut self.waits,
            Series::Memory => &mut self.memory,
            Series::Received => &mut self.received,
            Series::Sent => &mut self.sent,
            Series::Gap => &mut self.gap,
        }
    }

    /// Lets time pass. A clock that was set back lets none pass. Time in which no node ran is not covered.
    fn age(&mut self, now: Millis, covered: bool) {
        let passed = Duration::from_millis(now.saturating_sub(self.updated)).as_secs_f64();
        self.updated = now;
        if passed == 0.0 {
            return;
        }
        let half_life = HALF_LIFE.as_secs_f64();
        let factor = (-passed / half_life).exp2();
        for series in Series::ALL {
            self.distribution(series).decay(factor);
        }
        // Each second weighs what is counted in it.
        let meanwhile = half_life / std::f64::consts::LN_2 * (1.0 - factor);
        self.covered = self.covered * factor + if covered { meanwhile } else { 0.0 };
    }

    fn add(&mut self, counts: &Counts) {
        for series in Series::ALL {
            self.distribution(series).add(counts.of(series));
        }
        let new: u64 = counts.of(Series::Run).buckets.iter().map(|n| u64::from(*n)).sum();
        self.requests += new;
    }

    /// Arrivals in a second, of late; none if it has not been seen for a second.
    pub fn rate(&self) -> Option<f64> {
        (self.covered >= 1.0).then(|| self.gap.weight() / self.covered)
    }
}

/// A version's recorder and its history.
#[derive(Debug)]
pub struct Usage {
    recorder: Arc<Recorder>,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    history: History,
    /// What the history has of the recorder's counts.
    counts: Counts,
    events: u64,
    /// Whether the store has less.
    changed: bool,
    written: Millis,
}

impl Usage {
    /// Of a version that was known before, or not.
    pub(crate) fn new(cores: usize, history: Option<History>, now: Millis) -> Self {
        let recorder = Recorder::new(cores);
        let mut history = history.unwrap_or_default();
        history.age(now, false);
        if history.requests > 0 {
            recorder.expect(history.estimate.into());
        }
        Self {
            recorder: Arc::new(recorder),
            kept: Mutex::new(Kept {
                history,
                counts: Counts::default(),
                events: 0,
                changed: false,
                written: 0,
            }),
        }
    }

    /// Where cores record, and what they expect.
    pub fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Until it has an estimate of its own, that of its predecessor is expected.
    pub(crate) fn follow(&self, predecessor: &Self) {
        if self.recorder.estimate().is_empty() {
            self.recorder.expect(predecessor.recorder.estimate());
        }
    }

    /// What its requests used, until now.
    pub fn history(&self, now: Millis) -> History {
        let mut kept = self.kept.lock();
        self.take_up(&mut kept, now);
        kept.history.age(now, true);
        kept.history.clone()
    }

    /// How long its requests have been on cores since this node began.
    pub(crate) fn ran(&self) -> Duration {
        #[expect(clippy::cast_precision_loss, reason = "of less than years")]
        ticks(self.kept.lock().counts.of(Series::Run).sum as f64)
    }

    /// What is to be expected of its requests.
    pub(crate) fn demand(&self, now: Millis) -> Demand {
        let mut kept = self.kept.lock();
        self.take_up(&mut kept, now);
        kept.history.age(now, true);
        #[expect(clippy::cast_precision_loss, reason = "of less than years")]
        let gap = kept.history.gap.quantile(0.25).map(|gap| ticks(gap as f64));
        Demand {
            rate: kept.history.rate().unwrap_or_default(),
            gap,
        }
    }

    /// Takes up what was recorded. Costs next to nothing if that is nothing.
    pub(crate) fn learn(&self, now: Millis) {
        self.take_up(&mut self.kept.lock(), now);
    }

    fn take_up(&self, kept: &mut Kept, now: Millis) {
        let events = self.recorder.events();
        if events == kept.events {
            return;
        }
        kept.events = events;
        let counts = self.recorder.counts();
        kept.history.age(now, true);
        kept.history.add(&counts.since(&kept.counts));
        kept.history.estimate = self.recorder.estimate().into();
        kept.counts = counts;
        kept.changed = true;
    }

    /// When it was last written, if there is something to write: at once if the node ends, else after a while.
    pub(crate) fn due(&self, now: Millis, at_once: bool) -> Option<Millis> {
        let kept = self.kept.lock();
        let is_time = at_once || now.saturating_sub(kept.written) >= WRITE_EVERY || now < kept.written;
        (kept.changed && is_time).then_some(kept.written)
    }

    /// The history as it is to be written, which counts as written from now on.
    pub(crate) fn to_write(&self, now: Millis) -> History {
        let mut kept = self.kept.lock();
        kept.changed = false;
        kept.written = now;
        kept.history.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::CoreId;
    use std::time::Instant;
    use telemetry::metrics::{Outcome, Sample, Start};

    const HOUR: Millis = 3_600_000;

    fn record(usage: &Usage, run: Duration) {
        let sample = Sample {
            queue: Duration::ZERO,
            boot: Duration::ZERO,
            run,
            write: Duration::ZERO,
            cpu: run,
            outcome: Outcome::Ok,
            start: Start::Sandbox,
            request_bytes: 0,
            response_bytes: 100,
            memory_bytes: 1 << 20,
        };
        usage.recorder().record(CoreId(0), &sample);
    }

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn quantiles_are_of_what_was_recorded() {
        let usage = Usage::new(1, None, 0);
        assert_eq!(usage.history(1).run.quantile(0.5), None);
        for n in 1..=100 {
            record(&usage, millis(n));
        }
        let run = usage.history(2).run;
        for (part, exact) in [(0.01, 1), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let found = ticks(run.quantile(part).unwrap() as f64);
            assert!(
                found >= millis(exact) - TICK && found <= millis(exact) * 5 / 4,
                "{part}: {found:?}"
            );
        }
        let mean = ticks(run.mean().unwrap());
        assert!(mean.abs_diff(Duration::from_micros(50_500)) <= TICK, "{mean:?}");
    }

    #[test]
    fn what_is_old_weighs_less_and_is_forgotten_in_the_end() {
        let usage = Usage::new(1, None, 0);
        for _ in 0..100 {
            record(&usage, millis(1));
        }
        usage.learn(0);
        for _ in 0..100 {
            record(&usage, millis(16));
        }
        let history = usage.history(3 * HOUR);
        assert!(
            (history.run.weight() - 112.5).abs() < 0.01,
            "{}",
            history.run.weight()
        );
        assert!(ticks(history.run.quantile(0.2).unwrap() as f64) > millis(15));
        assert_eq!(history.requests, 200);
        let later = usage.history(100 * HOUR);
        assert_eq!(
            (later.run.weight(), later.run.quantile(0.5), later.requests),
            (0.0, None, 200)
        );
        // A clock that is set back brings nothing back.
        assert_eq!(usage.history(0).run.weight(), 0.0);
    }

    #[test]
    fn the_rate_is_that_of_late() {
        let usage = Usage::new(1, None, 0);
        let mut at = Instant::now();
        // 10 a second for an hour, then none.
        for second in 1..=3600 {
            for _ in 0..10 {
                at += millis(100);
                usage.recorder().arrived(CoreId(0), at);
            }
            usage.learn(second * 1000);
        }
        let rate = |now| usage.history(now).rate().unwrap();
        assert!((rate(HOUR) - 10.0).abs() < 0.1, "{}", rate(HOUR));
        assert!((rate(2 * HOUR) - 10.0 / 3.0).abs() < 0.1, "{}", rate(2 * HOUR));
    }

    #[test]
    fn it_is_written_seldom_and_read_back_whole() {
        let now = 50 * 365 * 24 * HOUR;
        let usage = Usage::new(1, None, now);
        assert_eq!(usage.due(now, true), None, "nothing has happened");
        record(&usage, millis(7));
        usage.learn(now);
        assert_eq!(usage.due(now, false), Some(0), "the first is written at once");
        let text = serde_json::to_vec(&usage.to_write(now)).unwrap();
        record(&usage, millis(7));
        usage.learn(now + 1000);
        assert_eq!(
            (usage.due(now + 1000, false), usage.due(now + 1000, true)),
            (None, Some(now))
        );
        assert_eq!(usage.due(now + WRITE_EVERY, false), Some(now));

        let again = Usage::new(1, Some(serde_json::from_slice(&text).unwrap()), now + HOUR);
        assert_eq!(again.recorder().estimate().run, millis(7));
        let history = again.history(now + HOUR);
        assert_eq!((history.requests, history.run.weight()), (1, 0.5));
        assert_eq!(
            history.rate(),
            None,
            "time in which no node ran is no time without requests"
        );
        let successor = Usage::new(1, None, now);
        successor.follow(&again);
        assert_eq!(successor.recorder().estimate().run, millis(7));
        assert_eq!(successor.history(now).requests, 0);
    }
}
