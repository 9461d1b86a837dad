//! Times in a log-linear histogram of three significant digits.

use anyhow::Result;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Collects times.
pub(crate) struct Times(Histogram<u64>);

/// What was collected, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Summary {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

const LONGEST: Duration = Duration::from_secs(600);

impl Times {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(Histogram::new_with_bounds(
            10,
            u64::try_from(LONGEST.as_nanos())?,
            3,
        )?))
    }

    pub(crate) fn record(&mut self, time: Duration) {
        self.0
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Takes over what another has collected.
    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    pub(crate) fn summary(&self) -> Summary {
        let microseconds = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let at = |quantile| microseconds(self.0.value_at_quantile(quantile));
        Summary {
            mean: self.0.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: microseconds(self.0.max()),
        }
    }
}
