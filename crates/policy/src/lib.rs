//! Scheduling and admission decisions: pure functions of what the worker tells them. No clock, no lock, no I/O.
//!
//! Who runs next is decided twice. [`Shares`] is the outer level: tenants that have work get the core's time in proportion to
//! their weights, whatever their functions claim. Within a tenant's share an [`Order`] decides:
//!
//! | order | who runs first |
//! |---|---|
//! | [`RoundRobin`] | who has waited longest; to the back after each quantum (Sledge, section 4) |
//! | [`Deadline`] | the most urgent, then the earliest deadline; without one, that which its usual length gives it |
//! | [`Shortest`] | who has the shortest time left, by its version's history |
//! | [`FirstCome`] | who came first, to its end: to compare with |
//!
//! The worker knows only [`contract::Policy`], which all of them are. [`simulation`] runs them as a worker does.
//!
//! What the backend decides for its sandboxes is here, too: how many bytes may pass ([`Bucket`]), and whose call begins when there is not enough for all
//! ([`Pool`], by [`Turns`]).

#![forbid(unsafe_code)]

mod bucket;
mod lockstep;
mod order;
mod ordered;
mod pace;
mod patience;
mod pool;
mod ready;
mod shares;
pub mod simulation;
mod turns;

pub use bucket::Bucket;
pub use lockstep::Lockstep;
pub use order::{Deadline, FirstCome, Order, Rank, RoundRobin, Shortest, left};
pub use ordered::Ordered;
pub use pace::Pace;
pub use patience::{Patience, Period};
pub use pool::Pool;
pub use shares::Shares;
pub use turns::{Turns, Verdict};

use contract::{Load, Policy};
use std::{fmt, str::FromStr, time::Duration};

/// How long a sandbox runs at a time, if nothing asks for less: Sledge's quantum (paper section 4).
pub const QUANTUM: Duration = Duration::from_millis(5);

/// No quantum is shorter.
pub const SHORTEST_QUANTUM: Duration = Duration::from_micros(100);

/// The orders by name, as an operator chooses one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// [`RoundRobin`]
    RoundRobin,
    /// [`Deadline`]
    #[default]
    Deadline,
    /// [`Shortest`]
    Shortest,
    /// [`FirstCome`]
    FirstCome,
}

impl Kind {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::RoundRobin, Self::Deadline, Self::Shortest, Self::FirstCome];

    /// The policy of a core: this order within each tenant's share.
    pub fn policy(self, quantum: Duration) -> Box<dyn Policy> {
        match self {
            Self::RoundRobin => Box::new(Shares::new(Ordered::new(RoundRobin, quantum))),
            Self::Deadline => Box::new(Shares::new(Ordered::new(Deadline, quantum))),
            Self::Shortest => Box::new(Shares::new(Ordered::new(Shortest, quantum))),
            Self::FirstCome => Box::new(Shares::new(Ordered::new(FirstCome, quantum))),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round-robin",
            Self::Deadline => "deadline",
            Self::Shortest => "shortest",
            Self::FirstCome => "first-come",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join("`, `");
            format!("there is no policy `{name}`; there are `{names}`")
        })
    }
}

/// Whether an idle core is worth waking for a backlog: waking costs two to ten microseconds of two cores, and moving a
/// request costs about ten more, because nothing of it is in the other core's caches (pings over 1,000 connections, of
/// which 8 of 100 moved, took 7.52 µs of CPU each; 6.82 where none did). So a queue of pings is better left where it is,
/// however long it is.
///
/// `waiting` counts requests that could move, beside what the core runs, and `mean` is what one of them takes (zero: not
/// known yet).
#[must_use]
pub fn worth_waking(waiting: usize, mean: Duration) -> bool {
    const UNKNOWN: Duration = Duration::from_micros(100);
    const WORTH_MOVING: Duration = Duration::from_micros(5);
    const WORTH_WAKING: Duration = Duration::from_micros(60);
    let mean = if mean.is_zero() { UNKNOWN } else { mean };
    let all = mean.saturating_mul(u32::try_from(waiting).unwrap_or(u32::MAX));
    mean >= WORTH_MOVING && all >= WORTH_WAKING
}

/// Whether a function has places to spare for requests that are not all here: a quarter of its places is kept from them, as long
/// as it has four. A sandbox that waits for a slow client is then never the last that a function has for those who do not
/// make it wait.
#[must_use]
pub fn may_wait_inside(load: &Load) -> bool {
    load.running.saturating_add(load.queued) < load.concurrency - load.concurrency / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_slow_leave_places_to_others() {
        let load = |running, concurrency| Load {
            running,
            queued: 0,
            concurrency,
            queue: 1,
            held: 0,
            share: 1.0,
            draining: false,
        };
        let most = |concurrency| {
            (0..=concurrency)
                .find(|running| !may_wait_inside(&load(*running, concurrency)))
                .unwrap()
        };
        assert_eq!([1, 2, 3, 4, 5, 8, 256].map(most), [1, 2, 3, 3, 4, 6, 192]);
    }

    #[test]
    fn pings_stay_and_long_work_moves() {
        assert!(!worth_waking(8, Duration::from_micros(3)));
        assert!(!worth_waking(1000, Duration::from_micros(3)));
        assert!(worth_waking(10, Duration::from_micros(6)));
        assert!(!worth_waking(0, Duration::from_millis(50)));
        assert!(worth_waking(1, Duration::from_millis(50)));
        assert!(worth_waking(1, Duration::ZERO));
    }

    #[test]
    fn each_kind_is_found_by_its_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "fifo".parse::<Kind>().unwrap_err();
        assert!(
            error.contains("`round-robin`, `deadline`, `shortest`, `first-come`"),
            "{error}"
        );
    }
}
