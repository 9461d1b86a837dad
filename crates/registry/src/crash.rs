//! Places where a test ends the process, as `kill -9` would. In a build that is not a test they are nothing.

/// Ends the process if the test asked for this place.
#[cfg(not(test))]
#[inline(always)]
pub(crate) fn point() {}

#[cfg(test)]
pub(crate) use enabled::{arm, point};

#[cfg(test)]
mod enabled {
    use std::sync::atomic::{AtomicU64, Ordering};

    static REMAINING: AtomicU64 = AtomicU64::new(u64::MAX);

    /// From now on, passing the `n`-th place ends the process; the first is 1.
    pub(crate) fn arm(n: u64) {
        REMAINING.store(n, Ordering::SeqCst);
    }

    pub(crate) fn point() {
        let armed = |n| (n != u64::MAX).then(|| n - 1);
        if REMAINING.fetch_update(Ordering::SeqCst, Ordering::SeqCst, armed) == Ok(1) {
            std::process::abort();
        }
    }
}
