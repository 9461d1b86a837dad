//! When a failed call is tried again, and when not: pure decisions.

use crate::{CallId, Cause, Timestamp};
use std::time::Duration;

/// What the decision rests on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The delay after the first failure, before its jitter.
    pub(crate) first: Duration,
    /// No delay is longer.
    pub(crate) longest: Duration,
    /// Failures that are allowed; 0 means 1.
    pub(crate) attempts: u32,
    /// The age that is allowed.
    pub(crate) maximum_age: Duration,
}

/// The delay after this many failures: doubled each time up to the longest, then a point in its upper half that
/// `jitter` chooses, so that calls which failed together are not tried together.
pub(crate) fn backoff(first: Duration, longest: Duration, failures: u32, jitter: u64) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    let whole = first.saturating_mul(1 << doublings).min(longest);
    let half = u64::try_from(whole.as_millis() / 2).unwrap_or(u64::MAX);
    whole - Duration::from_millis(jitter % half.saturating_add(1).max(1))
}

/// What follows the latest of `failures` failures of a call that counts its age from `since`.
pub(crate) fn after_failure(
    terms: Terms,
    failures: u32,
    retry: bool,
    since: Timestamp,
    now: Timestamp,
    jitter: u64,
) -> Result<Timestamp, Cause> {
    if !retry {
        return Err(Cause::Final);
    }
    if failures >= terms.attempts.max(1) {
        return Err(Cause::Attempts);
    }
    let due = now.after(backoff(terms.first, terms.longest, failures, jitter));
    if is_too_old(due, since, terms.maximum_age) {
        return Err(Cause::Age);
    }
    Ok(due)
}

pub(crate) fn is_too_old(at: Timestamp, since: Timestamp, maximum_age: Duration) -> bool {
    at.since(since) > maximum_age
}

/// A number that differs for each call and attempt, and is the same whenever it is asked for (SplitMix64).
pub(crate) fn jitter(id: CallId, number: u32) -> u64 {
    let folded = (id.0.0 >> 64) as u64 ^ id.0.0 as u64;
    let mut x = folded.wrapping_add(u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::RequestId;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    proptest! {
        #[test]
        fn delays_double_within_their_jitter(
            failures in 1..100_u32, jitter: u64, first in 0..10_000_u64, longest in 0..1_000_000_u64,
        ) {
            let (first, longest) = (Duration::from_millis(first), Duration::from_millis(longest));
            let delay = backoff(first, longest, failures, jitter);
            let whole = first.saturating_mul(2_u32.saturating_pow(failures - 1).min(1 << 31)).min(longest);
            prop_assert!(delay <= whole && delay >= whole / 2, "{delay:?} of {whole:?}");
        }
    }

    #[test]
    fn failures_lead_to_a_retry_or_an_end() {
        let terms = Terms {
            first: SECOND,
            longest: SECOND * 60,
            attempts: 3,
            maximum_age: SECOND * 100,
        };
        let (since, now) = (Timestamp(5_000), Timestamp(6_000));
        assert_eq!(after_failure(terms, 1, false, since, now, 0), Err(Cause::Final));
        assert_eq!(after_failure(terms, 1, true, since, now, 0), Ok(Timestamp(7_000)));
        assert_eq!(after_failure(terms, 2, true, since, now, 0), Ok(Timestamp(8_000)));
        assert_eq!(after_failure(terms, 3, true, since, now, 0), Err(Cause::Attempts));
        let late = Timestamp(104_500);
        assert_eq!(
            after_failure(terms, 1, true, since, late, 0),
            Err(Cause::Age),
            "it would be too old when it is due"
        );
        let once = Terms { attempts: 0, ..terms };
        assert_eq!(after_failure(once, 1, true, since, now, 0), Err(Cause::Attempts));
    }

    #[test]
    fn jitter_spreads() {
        let delays: std::collections::BTreeSet<_> = (0..100)
            .map(|i| backoff(SECOND, SECOND, 1, jitter(CallId(RequestId(i)), 1)))
            .collect();
        assert!(delays.len() > 50, "100 calls share {} delays", delays.len());
        assert_ne!(jitter(CallId(RequestId(1)), 1), jitter(CallId(RequestId(1)), 2));
    }
}
