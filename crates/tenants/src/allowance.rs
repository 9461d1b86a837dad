//! What a tenant uses now, against its quotas. One for all cores, and atomics only: it lies on a request's path, though only on
//! that of tenants.

use crate::Quotas;
use contract::{Party, Quota};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Requests of the rate's quota that may come at once: those of this time.
const BURST: u64 = 1_000_000_000;

/// A tenant's use of the node. It outlives changes of the quotas.
#[derive(Debug)]
pub struct Allowance {
    epoch: Instant,
    running: AtomicU32,
    /// In bytes.
    memory: AtomicU64,
    /// When the requests that were let in would have come one by one: nanoseconds since the epoch.
    arrival: AtomicU64,
    concurrency: AtomicU32,
    most_memory: AtomicU64,
    queue: AtomicU32,
    /// Between two requests at the rate, in nanoseconds; 0 without a quota.
    interval: AtomicU64,
    /// Its number among the tenants of this node, until the node ends.
    index: u32,
    weight: AtomicU32,
}

/// One sandbox's part of its tenant's quotas, given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Share {
    allowance: Arc<Allowance>,
    memory: u64,
}

impl Allowance {
    /// Of the tenant of this number; 0 is whoever is no tenant.
    pub(crate) fn new(index: u32, quotas: &Quotas) -> Self {
        let allowance = Self {
            epoch: Instant::now(),
            running: AtomicU32::new(0),
            memory: AtomicU64::new(0),
            arrival: AtomicU64::new(0),
            concurrency: AtomicU32::new(0),
            most_memory: AtomicU64::new(0),
            queue: AtomicU32::new(0),
            interval: AtomicU64::new(0),
            index,
            weight: AtomicU32::new(1),
        };
        allowance.set(quotas);
        allowance
    }

    /// From now on these hold. What is in use stays in use.
    pub(crate) fn set(&self, quotas: &Quotas) {
        let most = quotas.concurrency.unwrap_or(u32::MAX);
        self.concurrency.store(most, Ordering::Relaxed);
        let most = quotas.memory.map_or(u64::MAX, |memory| memory.0);
        self.most_memory.store(most, Ordering::Relaxed);
        self.queue
            .store(quotas.queue.unwrap_or(Quotas::QUEUE), Ordering::Relaxed);
        let interval = quotas.rate.map_or(0, |rate| BURST / u64::from(rate.max(1)));
        self.interval.store(interval, Ordering::Relaxed);
        self.weight.store(quotas.weight.unwrap_or(1), Ordering::Relaxed);
    }

    /// Who shares the cores with others here.
    pub fn party(&self) -> Party {
        Party {
            index: self.index,
            weight: self.weight.load(Ordering::Relaxed),
        }
    }

    /// Takes part for a sandbox of so many bytes, or says which quota forbids it. Sequentially consistent, as are the drops of shares:
    /// who waits for one and announces that before it tries again misses none.
    pub fn take(self: &Arc<Self>, memory: u64) -> Result<Share, Quota> {
        let most = self.concurrency.load(Ordering::Relaxed);
        let one_more = |running: u32| (running < most).then(|| running + 1);
        let order = Ordering::SeqCst;
        if self.running.fetch_update(order, order, one_more).is_err() {
            return Err(Quota::Concurrency);
        }
        let most = self.most_memory.load(Ordering::Relaxed);
        let more = |used: u64| used.checked_add(memory).filter(|used| *used <= most);
        if self.memory.fetch_update(order, order, more).is_err() {
            self.running.fetch_sub(1, order);
            return Err(Quota::Memory);
        }
        Ok(Share {
            allowance: self.clone(),
            memory,
        })
    }

    /// The quota that forbids a sandbox of so many bytes even if there is no other.
    pub fn forbids(&self, memory: u64) -> Option<Quota> {
        if self.concurrency.load(Ordering::Relaxed) == 0 {
            Some(Quota::Concurrency)
        } else if memory > self.most_memory.load(Ordering::Relaxed) {
            Some(Quota::Memory)
        } else {
            None
        }
    }

    /// Whether another sandbox may serve a request, if it is small enough.
    pub fn has_room(&self) -> bool {
        self.running.load(Ordering::Relaxed) < self.concurrency.load(Ordering::Relaxed)
    }

    /// Which quota is met, if one is.
    pub fn met(&self) -> Quota {
        if self.has_room() {
            Quota::Memory
        } else {
            Quota::Concurrency
        }
    }

    /// Requests that may wait for others to give back what they have taken.
    pub fn queue(&self) -> u32 {
        self.queue.load(Ordering::Relaxed)
    }

    /// Counts a request, or says after which time one would be let in. As a token bucket that holds a second's requests, kept as
    /// one number (the generic cell rate algorithm, ITU-T I.371).
    pub fn request(&self, now: Instant) -> Result<(), Duration> {
        let interval = self.interval.load(Ordering::Relaxed);
        if interval == 0 {
            return Ok(());
        }
        let now = now.saturating_duration_since(self.epoch).as_nanos();
        let now = u64::try_from(now).unwrap_or(u64::MAX / 2);
        let next = |arrival: u64| {
            let next = arrival.max(now).saturating_add(interval);
            (next - now <= BURST.max(interval)).then_some(next)
        };
        let relaxed = Ordering::Relaxed;
        self.arrival
            .fetch_update(relaxed, relaxed, next)
            .map(drop)
            .map_err(|arrival| {
                let over = arrival.saturating_add(interval).saturating_sub(now);
                Duration::from_nanos(over.saturating_sub(BURST.max(interval)))
            })
    }

    /// Sandboxes that serve a request, and the sum of their memory limits in bytes.
    pub fn used(&self) -> (u32, u64) {
        let relaxed = Ordering::Relaxed;
        (self.running.load(relaxed), self.memory.load(relaxed))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // In this order: who finds a place finds the memory, too.
        self.allowance.memory.fetch_sub(self.memory, Ordering::SeqCst);
        self.allowance.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::ByteSize;
    use proptest::prelude::*;
    use std::thread;

    fn allowance(quotas: Quotas) -> Arc<Allowance> {
        Arc::new(Allowance::new(1, &quotas))
    }

    #[test]
    fn without_quotas_everything_goes() {
        let free = allowance(Quotas::default());
        let shares: Vec<_> = (0..1000).map(|_| free.take(1 << 40).unwrap()).collect();
        assert_eq!(free.used(), (1000, 1000 << 40));
        drop(shares);
        assert_eq!(free.used(), (0, 0));
        assert!((0..10_000).all(|_| free.request(Instant::now()).is_ok()));
    }

    #[test]
    fn shares_are_exact_under_contention() {
        let few = allowance(Quotas {
            concurrency: Some(7),
            memory: Some(ByteSize(50)),
            ..Quotas::default()
        });
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let share = few.take(10);
                        let (running, memory) = few.used();
                        assert!(running <= 7 && memory <= 50);
                        drop(share);
                    }
                });
            }
        });
        assert_eq!(few.used(), (0, 0));
        let five: Vec<_> = (0..5).map(|_| few.take(10).unwrap()).collect();
        assert_eq!(few.take(10).unwrap_err(), Quota::Memory);
        let two = [few.take(0).unwrap(), few.take(0).unwrap()];
        assert_eq!(few.take(0).unwrap_err(), Quota::Concurrency);
        assert_eq!((few.has_room(), few.met()), (false, Quota::Concurrency));
        assert_eq!((few.forbids(50), few.forbids(51)), (None, Some(Quota::Memory)));
        few.set(&Quotas {
            concurrency: Some(0),
            queue: Some(3),
            ..Quotas::default()
        });
        assert_eq!((few.forbids(0), few.queue()), (Some(Quota::Concurrency), 3));
        few.set(&Quotas::default());
        assert_eq!(few.queue(), Quotas::QUEUE);
        assert!(few.take(1 << 30).is_ok());
        drop((five, two));
    }

    proptest! {
        #[test]
        fn no_second_has_more_than_two_seconds_requests(rate in 1u32..2000, gaps in prop::collection::vec(0u64..5_000_000, 1..2000)) {
            let limited = allowance(Quotas { rate: Some(rate), ..Quotas::default() });
            let (mut at, mut let_in) = (limited.epoch, Vec::new());
            for gap in gaps {
                at += Duration::from_nanos(gap);
                match limited.request(at) {
                    Ok(()) => let_in.push(at),
                    Err(after) => {
                        prop_assert!(limited.request(at + after).is_ok(), "it is let in when it was told");
                        let_in.push(at + after);
                        at += after;
                    }
                }
            }
            // The bucket's content and what flows in meanwhile.
            let most = 2 * rate as usize + 1;
            for (i, from) in let_in.iter().enumerate() {
                let within = let_in[i..].iter().take_while(|to| to.duration_since(*from) < Duration::from_secs(1)).count();
                prop_assert!(within <= most, "{within} of {rate}");
            }
        }
    }
}
