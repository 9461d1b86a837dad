//! Histograms with fixed bounds.
//!
//! The bounds are the ones that readers see, so a scrape is exact: nothing is interpolated from finer buckets. A value's
//! bucket is found by its bit length and at most two comparisons.

use super::cell::Counter;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The most bounds that a scale may have.
const BOUNDS: usize = 25;

/// The upper bounds (inclusive) of a histogram's buckets. Values beyond the last are counted without a bound.
#[derive(Debug)]
pub(super) struct Scale {
    bounds: &'static [u64],
    /// For each bit length of a value, the first bound that such a value may lie under.
    first: [u8; 65],
    unit: Unit,
}

/// What a histogram's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Kept in nanoseconds, shown in seconds.
    Seconds,
    /// Shown as it is kept.
    Count,
}

/// A histogram's value as readers see it.
#[derive(Clone, Copy)]
pub(super) struct Shown(pub(super) u64, pub(super) Unit);

impl Shown {
    #[expect(clippy::cast_precision_loss, reason = "a float is what the reader wants")]
    fn float(self) -> f64 {
        match self.1 {
            Unit::Count => self.0 as f64,
            Unit::Seconds => self.0 as f64 / 1e9,
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NANOS: u64 = 1_000_000_000;
        match self.1 {
            Unit::Count => write!(f, "{}", self.0),
            Unit::Seconds if self.0.is_multiple_of(NANOS) => write!(f, "{}", self.0 / NANOS),
            Unit::Seconds => {
                let fraction = format!("{:09}", self.0 % NANOS);
                write!(f, "{}.{}", self.0 / NANOS, fraction.trim_end_matches('0'))
            }
        }
    }
}

impl Scale {
    const fn new(bounds: &'static [u64], unit: Unit) -> Self {
        assert!(bounds.len() <= BOUNDS);
        let mut first = [0; 65];
        let mut bits = 1;
        while bits <= 64 {
            let least = 1 << (bits - 1);
            let mut i = 0;
            while i < bounds.len() && bounds[i] < least {
                i += 1;
            }
            first[bits] = i as u8;
            bits += 1;
        }
        Self { bounds, first, unit }
    }

    #[inline]
    fn bucket(&self, value: u64) -> usize {
        let mut i = usize::from(self.first[(u64::BITS - value.leading_zeros()) as usize]);
        while self.bounds.get(i).is_some_and(|bound| value > *bound) {
            i += 1;
        }
        i
    }
}

/// 1 µs to 100 s in steps of 1, 2, 5.
pub(super) static TIME: Scale = Scale::new(
    &[
        1_000,
        2_000,
        5_000,
        10_000,
        20_000,
        50_000,
        100_000,
        200_000,
        500_000,
        1_000_000,
        2_000_000,
        5_000_000,
        10_000_000,
        20_000_000,
        50_000_000,
        100_000_000,
        200_000_000,
        500_000_000,
        1_000_000_000,
        2_000_000_000,
        5_000_000_000,
        10_000_000_000,
        20_000_000_000,
        50_000_000_000,
        100_000_000_000,
    ],
    Unit::Seconds,
);

/// The bounds of [`TIME`].
pub(super) fn time_bounds() -> impl Iterator<Item = Duration> {
    TIME.bounds.iter().copied().map(Duration::from_nanos)
}

/// 64 KiB, a page of linear memory, to 4 GiB, all of it, by doubling.
pub(super) static MEMORY: Scale = Scale::new(
    &[
        1 << 16,
        1 << 17,
        1 << 18,
        1 << 19,
        1 << 20,
        1 << 21,
        1 << 22,
        1 << 23,
        1 << 24,
        1 << 25,
        1 << 26,
        1 << 27,
        1 << 28,
        1 << 29,
        1 << 30,
        1 << 31,
        1 << 32,
    ],
    Unit::Count,
);

/// 64 B to 64 MiB, by fours.
pub(super) static TRAFFIC: Scale = Scale::new(
    &[
        1 << 6,
        1 << 8,
        1 << 10,
        1 << 12,
        1 << 14,
        1 << 16,
        1 << 18,
        1 << 20,
        1 << 22,
        1 << 24,
        1 << 26,
    ],
    Unit::Count,
);

/// A duration as a histogram keeps it.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(duration.subsec_nanos()))
}

/// A histogram that one thread writes.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    sum: Counter,
    buckets: [Counter; BOUNDS + 1],
}

impl Histogram {
    #[inline]
    pub(super) fn observe(&self, scale: &Scale, value: u64) {
        self.sum.add(value);
        if let Some(bucket) = self.buckets.get(scale.bucket(value)) {
            bucket.add(1);
        }
    }
}

/// A histogram that any thread writes; for what is rare.
#[derive(Debug, Default)]
pub(super) struct SharedHistogram {
    sum: AtomicU64,
    buckets: [AtomicU64; BOUNDS + 1],
}

impl SharedHistogram {
    pub(super) fn observe(&self, scale: &Scale, value: u64) {
        self.sum.fetch_add(value, Relaxed);
        if let Some(bucket) = self.buckets.get(scale.bucket(value)) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn snapshot(&self, scale: &'static Scale) -> Snapshot {
        let mut snapshot = Snapshot::new(scale);
        snapshot.sum = self.sum.load(Relaxed);
        for (into, from) in snapshot.buckets.iter_mut().zip(&self.buckets) {
            *into = from.load(Relaxed);
        }
        snapshot
    }
}

/// What a histogram held at some time, or the sum of several.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    scale: &'static Scale,
    sum: u64,
    buckets: [u64; BOUNDS + 1],
}

impl Snapshot {
    pub(super) fn new(scale: &'static Scale) -> Self {
        Self {
            scale,
            sum: 0,
            buckets: [0; BOUNDS + 1],
        }
    }

    pub(super) fn add(&mut self, histogram: &Histogram) {
        self.sum = self.sum.wrapping_add(histogram.sum.get());
        for (into, from) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *into = into.wrapping_add(from.get());
        }
    }

    pub(super) fn merge(mut self, other: &Self) -> Self {
        self.sum = self.sum.wrapping_add(other.sum);
        for (into, from) in self.buckets.iter_mut().zip(&other.buckets) {
            *into = into.wrapping_add(*from);
        }
        self
    }

    /// How many values each bucket holds; the last has no bound.
    pub(super) fn counts(&self) -> &[u64] {
        self.buckets
            .get(..=self.scale.bounds.len())
            .unwrap_or(&self.buckets)
    }

    /// The sum as it is kept.
    pub(super) fn total(&self) -> u64 {
        self.sum
    }

    /// How many values there are: always the sum of the buckets, whatever was written meanwhile.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |count, n| count.wrapping_add(*n))
    }

    pub(super) fn sum(&self) -> Shown {
        Shown(self.sum, self.scale.unit)
    }

    /// The sum in the unit that readers see, as floats go.
    pub(crate) fn sum_shown(&self) -> f64 {
        self.sum().float()
    }

    /// The bounds in the unit that readers see, and how many values each bucket holds; the last bucket has no bound.
    pub(crate) fn buckets(&self) -> (Vec<f64>, Vec<u64>) {
        let shown = |bound: &u64| Shown(*bound, self.scale.unit).float();
        let bounds: Vec<f64> = self.scale.bounds.iter().map(shown).collect();
        (bounds, self.counts().to_vec())
    }

    /// Each bound and how many values lie at or under it.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (Shown, u64)> {
        let mut count = 0u64;
        self.scale
            .bounds
            .iter()
            .zip(&self.buckets)
            .map(move |(bound, n)| {
                count = count.wrapping_add(*n);
                (Shown(*bound, self.scale.unit), count)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bucket_is_the_first_whose_bound_is_not_exceeded(shift in 0u32..64, value: u64) {
            let value = value >> shift;
            for scale in [&TIME, &MEMORY, &TRAFFIC] {
                let expected = scale.bounds.iter().position(|b| value <= *b).unwrap_or(scale.bounds.len());
                prop_assert_eq!(scale.bucket(value), expected);
            }
        }

        #[test]
        fn values_are_shown_exactly(nanos in 0u64..1 << 53) {
            let shown = Shown(nanos, Unit::Seconds).to_string();
            let (whole, fraction) = shown.split_once('.').unwrap_or((&shown, ""));
            prop_assert!(!fraction.ends_with('0'));
            let back = whole.parse::<u64>().unwrap() * 1_000_000_000 + format!("{fraction:0<9}").parse::<u64>().unwrap();
            prop_assert_eq!(back, nanos);
        }
    }

    #[test]
    fn bounds_belong_to_their_bucket() {
        for scale in [&TIME, &MEMORY, &TRAFFIC] {
            assert!(scale.bounds.is_sorted());
            for (i, bound) in scale.bounds.iter().enumerate() {
                assert_eq!(scale.bucket(*bound), i);
                assert_eq!(scale.bucket(*bound + 1), i + 1);
            }
            assert_eq!(scale.bucket(0), 0);
            assert_eq!(scale.bucket(u64::MAX), scale.bounds.len());
        }
    }
}
