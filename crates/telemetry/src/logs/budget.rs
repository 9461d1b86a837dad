//! How much one function may log.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// A token bucket in the form of the generic cell rate algorithm: one word, the time at which the bucket will be full
/// again. All cores share it, and touch it only when a function logs.
#[derive(Debug)]
pub(super) struct Budget {
    full_at: AtomicU64,
    nanos_per_byte: f64,
    depth: u64,
}

impl Budget {
    /// Allows `rate` bytes a second, and `burst` bytes at once.
    pub(super) fn new(rate: u64, burst: u64) -> Self {
        let nanos_per_byte = 1e9 / rate.max(1) as f64;
        Self {
            full_at: AtomicU64::new(0),
            nanos_per_byte,
            depth: (burst as f64 * nanos_per_byte) as u64,
        }
    }

    /// Takes `bytes` at a time on a clock that starts anywhere; false if that is more than is left.
    pub(super) fn take(&self, now: Duration, bytes: usize) -> bool {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let cost = (bytes as f64 * self.nanos_per_byte) as u64;
        let next = |full_at: u64| {
            let full_at = full_at.max(now).saturating_add(cost);
            (full_at - now <= self.depth).then_some(full_at)
        };
        self.full_at.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn never_more_than_burst_and_rate(steps in prop::collection::vec((0u64..50_000_000, 1usize..2_000), 1..200)) {
            let (rate, burst) = (100_000u64, 5_000u64);
            let budget = Budget::new(rate, burst);
            let (mut now, mut taken) = (0u64, 0u64);
            for (wait, bytes) in steps {
                now += wait;
                let left = (burst as f64 + now as f64 / 1e9 * rate as f64) - taken as f64;
                if budget.take(Duration::from_nanos(now), bytes) {
                    taken += bytes as u64;
                    prop_assert!(bytes as f64 <= left + 1.0);
                }
            }
        }
    }

    #[test]
    fn a_rested_bucket_is_full() {
        let budget = Budget::new(1_000, 100);
        let at = Duration::from_millis;
        assert!(budget.take(at(0), 100));
        assert!(!budget.take(at(0), 1));
        assert!(!budget.take(at(49), 50));
        assert!(budget.take(at(51), 50));
        assert!(budget.take(at(10_000), 100));
        assert!(!budget.take(at(10_000), 10));
    }
}
