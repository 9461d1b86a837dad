//! The cells that metrics are made of. Each has one writer, a core's thread, and any number of readers.

use std::sync::{
    OnceLock,
    atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

/// Counts up. One thread writes, any thread reads.
///
/// With a single writer an addition needs no locked instruction: a load and a store do. Two writers would lose counts.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// The count.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Goes up and down. One thread writes, any thread reads.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Adds; negative numbers subtract.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Replaces.
    #[inline]
    pub fn set(&self, n: i64) {
        self.0.store(n, Relaxed);
    }

    /// The value.
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// Distinct keys of one [`Tally`]: more than there are codes in the platform.
const KEYS: usize = 24;

/// Counts by key, for keys that are few and known only to those who count them. One thread writes.
#[derive(Debug)]
pub(super) struct Tally<K> {
    slots: [(OnceLock<K>, Counter); KEYS],
}

impl<K> Default for Tally<K> {
    fn default() -> Self {
        Self {
            slots: std::array::from_fn(|_| (OnceLock::new(), Counter::default())),
        }
    }
}

impl<K: Copy + Eq> Tally<K> {
    /// Counts one. When all slots but the last are taken, the last takes every new key as `overflow`.
    pub(super) fn count(&self, key: K, overflow: K) {
        let (first, last) = self.slots.split_at(KEYS - 1);
        for (slot, counter) in first {
            if *slot.get_or_init(|| key) == key {
                return counter.add(1);
            }
        }
        for (slot, counter) in last {
            slot.get_or_init(|| overflow);
            counter.add(1);
        }
    }

    /// Every key that was counted, and its count.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.slots
            .iter()
            .map_while(|(slot, counter)| Some((*slot.get()?, counter.get())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_keeps_keys_apart_and_never_loses_a_count() {
        let tally = Tally::default();
        for n in 0..120u32 {
            tally.count(n % 40, u32::MAX);
        }
        let counts: Vec<_> = tally.iter().collect();
        assert_eq!(counts.len(), KEYS);
        assert!(
            counts[..KEYS - 1]
                .iter()
                .enumerate()
                .all(|(i, c)| *c == (i as u32, 3))
        );
        assert_eq!(counts[KEYS - 1], (u32::MAX, 3 * (40 - (KEYS as u64 - 1))));
    }
}
