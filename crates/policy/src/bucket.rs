//! Token buckets: how many bytes may pass in a time.
//!
//! The crate `governor` has the same algorithm behind a clock of its own and for many waiters at once, none of which is sure of its turn. Here
//! the time comes in as an argument, and two buckets are asked together (a sandbox's and its tenant's) before anything is taken of either.

use contract::Time;
use std::{num::NonZeroU64, time::Duration};

/// A rate, and how much may pass at once: over any time no more passes than that time's at the rate, and the burst.
///
/// It is the virtual scheduling algorithm (ITU-T I.371, "Generic cell rate algorithm"): what has passed lies on the axis of time, as long as it takes
/// at the rate, and may reach into the future as far as the burst is long.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Bytes per second.
    rate: NonZeroU64,
    /// Nanoseconds at the rate.
    burst: u64,
    most: u64,
    /// Until when all that has passed takes at the rate.
    end: Time,
}

const SECOND: u128 = 1_000_000_000;

impl Bucket {
    /// Full: so many bytes per second, and so many at once, which are at least one.
    pub fn new(rate: NonZeroU64, burst: u64) -> Self {
        let most = burst.max(1);
        Self {
            rate,
            burst: length(rate, most),
            most,
            end: Time(0),
        }
    }

    /// Bytes that can pass at once.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.most
    }

    /// How long these bytes have to wait, no more than [`Self::most`]: nothing if they may pass now.
    #[must_use]
    pub fn wait(&self, now: Time, bytes: u64) -> Duration {
        let end = self.end.max(now).0;
        let after = end.saturating_add(length(self.rate, bytes.min(self.most)));
        Duration::from_nanos(after.saturating_sub(now.0.saturating_add(self.burst)))
    }

    /// They pass, whether they should have waited or not.
    pub fn take(&mut self, now: Time, bytes: u64) {
        self.end = Time(self.end.max(now).0.saturating_add(length(self.rate, bytes)));
    }
}

/// How long so many bytes take at this rate, in nanoseconds: rounded up, so that what is rounded never passes too early.
fn length(rate: NonZeroU64, bytes: u64) -> u64 {
    let length = (u128::from(bytes) * SECOND).div_ceil(u128::from(rate.get()));
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bucket(rate: u64, burst: u64) -> Bucket {
        Bucket::new(NonZeroU64::new(rate).unwrap(), burst)
    }

    #[test]
    fn a_burst_passes_at_once_and_the_rest_at_the_rate() {
        let mut bucket = bucket(1000, 100);
        let now = Time(5_000_000_000);
        assert_eq!(bucket.wait(now, 100), Duration::ZERO);
        bucket.take(now, 100);
        assert_eq!(bucket.wait(now, 1), Duration::from_millis(1));
        assert_eq!(bucket.wait(now, 100), Duration::from_millis(100));
        assert_eq!(
            bucket.wait(now, u64::MAX),
            Duration::from_millis(100),
            "as if it were the most"
        );
        let later = now.after(Duration::from_millis(30));
        assert_eq!(bucket.wait(later, 30), Duration::ZERO);
        assert_eq!(bucket.wait(later, 31), Duration::from_millis(1));
        // However long nothing passes, no more is saved than the burst.
        let much_later = now.after(Duration::from_secs(3600));
        bucket.take(much_later, 100);
        assert_eq!(bucket.wait(much_later, 1), Duration::from_millis(1));
    }

    proptest! {
        /// Of what is asked for at any times, what passes keeps to rate and burst over every window, and what waits for its turn passes then and
        /// not before.
        #[test]
        fn no_window_has_more_than_its_time_at_the_rate_and_the_burst(
            rate in 1_u64..10_000_000_000,
            burst in 1_u64..10_000_000,
            asked in prop::collection::vec((0_u64..2_000_000_000, 1_u64..10_000_000), 1..40),
        ) {
            let mut bucket = bucket(rate, burst);
            let mut now = Time(0);
            let mut passed: Vec<(u64, u64)> = Vec::new();
            for (pause, bytes) in asked {
                now = now.after(Duration::from_nanos(pause));
                let bytes = bytes.min(bucket.most());
                let wait = bucket.wait(now, bytes);
                if !wait.is_zero() {
                    let before = Time(now.after(wait).0 - 1);
                    prop_assert!(!bucket.wait(before, bytes).is_zero(), "it waits longer than it must");
                }
                now = now.after(wait);
                prop_assert_eq!(bucket.wait(now, bytes), Duration::ZERO);
                bucket.take(now, bytes);
                passed.push((now.0, bytes));
            }
            for first in 0..passed.len() {
                let mut bytes = 0_u128;
                for (at, count) in &passed[first..] {
                    bytes += u128::from(*count);
                    let time = u128::from(at - passed[first].0);
                    let allowed = u128::from(rate) * time / SECOND + u128::from(burst);
                    // A burst is no shorter than a nanosecond.
                    prop_assert!(bytes <= allowed + u128::from(rate).div_ceil(SECOND), "{} of {}", bytes, allowed);
                }
            }
        }

        /// Who always has more to send gets all of the rate.
        #[test]
        fn nothing_is_lost_of_the_rate(rate in 1000_u64..1_000_000_000, grain in 1_u64..100_000, burst in 1_u64..1_000_000) {
            let mut bucket = bucket(rate, burst);
            let grain = grain.min(bucket.most());
            let (mut now, mut bytes) = (Time(0), 0_u128);
            for _ in 0..200 {
                now = now.after(bucket.wait(now, grain));
                bucket.take(now, grain);
                bytes += u128::from(grain);
            }
            // Each take is rounded up by less than a nanosecond.
            let time = u128::from(now.0.saturating_sub(200));
            prop_assert!(bytes >= u128::from(rate) * time / SECOND);
        }
    }
}
