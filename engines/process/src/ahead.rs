//! How many processes of a version are made ahead of need: a pure decision.

use contract::Demand;
use std::time::Duration;

/// Without requests for so long, hardly anything waits for the next one,
const QUIET: Duration = Duration::from_secs(60);

/// and nothing after this.
pub(crate) const IDLE: Duration = Duration::from_secs(600);

/// How long a fork takes on its way to its request, about: what it comes ahead of.
const FORK: Duration = Duration::from_millis(4);

/// Forks that wait, at most. Each has the pages that its runtime has written to: some 2 MB.
const MOST_FORKS: u32 = 4;

/// Processes that have imported the module and wait, at most.
const MOST_SINGLE: u32 = 8;

/// Bytes of memory of those of one version, at most, if there is more than one.
const MOST_MEMORY: u64 = 1 << 30;

/// Forks that wait for a request.
pub(crate) fn forks(demand: Demand, idle: Duration) -> u32 {
    wanted(demand, idle, FORK, MOST_FORKS)
}

/// Processes that have imported the module, which took so long and as much memory, and wait for a request.
pub(crate) fn single(demand: Demand, idle: Duration, import: Duration, memory: u64) -> u32 {
    let most = MOST_MEMORY / memory.max(1);
    wanted(
        demand,
        idle,
        import,
        u32::try_from(most).unwrap_or(u32::MAX).clamp(1, MOST_SINGLE),
    )
}

/// As many as requests come while another one is made, and twice as many as come on average: so few find none.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates"
)]
fn wanted(demand: Demand, idle: Duration, make: Duration, most: u32) -> u32 {
    if idle >= IDLE {
        return 0;
    }
    if idle >= QUIET {
        return 1;
    }
    let make = make.as_secs_f64();
    let steady = demand.rate * make * 2.0;
    let burst = demand.gap.map_or(0.0, |gap| make / gap.as_secs_f64().max(1e-6));
    // A burst has an end: with the one that is made for each that is taken, half of it goes far.
    let wanted = steady.max(burst / 2.0).ceil() as u32;
    wanted.clamp(1, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(rate: f64, gap_millis: u64) -> Demand {
        Demand {
            rate,
            gap: Some(Duration::from_millis(gap_millis)),
        }
    }

    #[test]
    fn what_is_asked_for_more_has_more_ahead() {
        let (second, none) = (Duration::from_secs(1), Duration::ZERO);
        let single = |rate, gap| super::single(demand(rate, gap), none, second, 1 << 20);
        assert_eq!(single(0.01, 60_000), 1);
        assert_eq!(single(1.5, 600), 3);
        assert_eq!(single(0.1, 200), 3, "it comes in bursts");
        assert_eq!(single(1000.0, 1), MOST_SINGLE);
        assert_eq!(forks(demand(1.0, 900), none), 1);
        assert_eq!(forks(demand(1000.0, 0), none), MOST_FORKS);
        assert_eq!(forks(Demand::default(), none), 1, "nothing is known yet");
    }

    #[test]
    fn what_costs_much_memory_has_fewer() {
        let of = |memory| single(demand(1000.0, 1), Duration::ZERO, Duration::from_secs(1), memory);
        assert_eq!(of(400 << 20), 2);
        assert_eq!(of(4 << 30), 1);
        assert_eq!(of(0), MOST_SINGLE);
    }

    #[test]
    fn what_nobody_asks_for_is_given_up() {
        let busy = demand(1000.0, 0);
        assert_eq!(forks(busy, QUIET), 1);
        assert_eq!(forks(busy, IDLE), 0);
        assert_eq!(single(busy, QUIET, QUIET, 0), 1);
        assert_eq!(single(busy, IDLE, QUIET, 0), 0);
    }
}
