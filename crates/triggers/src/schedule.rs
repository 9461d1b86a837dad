//! What is to be done about a schedule now.

use crate::{Event, Milliseconds, Timing, rfc3339};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

/// A run that is this late is still on time: the disk was slow, or the node restarted. Milliseconds.
pub const GRACE: Milliseconds = 5_000;
/// Missed runs that are made up for at most, the latest ones.
pub const MOST_MISSED: usize = 100;
/// A clock that is set back by less runs nothing twice: schedules wait until it has caught up. One that is set back by more is
/// taken to have been wrong before (as cron(8) does). Milliseconds.
pub const SETBACK: Milliseconds = 3 * 60 * 60 * 1_000;

/// What is to be done about runs that could not happen when they were due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Nothing.
    Skip,
    /// One run, the latest, makes up for all of them.
    #[default]
    Once,
    /// Each is made up for: the latest hundred.
    All,
}

/// What is to be done about a schedule now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// When the runs were due that are to happen now, in their order.
    pub runs: Vec<Milliseconds>,
    /// The last time when the schedule was due.
    pub last: Milliseconds,
    /// Some that were missed do not happen.
    pub left_out: bool,
    /// The clock was set back so far that the schedule begins anew.
    pub anew: bool,
}

/// What is to be done at `now` about a schedule that was last due at `last`, or began then.
pub fn decide(timing: &Timing, missed: Missed, last: Milliseconds, now: Milliseconds) -> Decision {
    let mut decision = Decision {
        runs: Vec::new(),
        last,
        left_out: false,
        anew: false,
    };
    if now.saturating_add(SETBACK) < last {
        decision.last = now;
        decision.anew = true;
        return decision;
    }
    let most = match missed {
        Missed::Skip => 0,
        Missed::Once => 1,
        Missed::All => MOST_MISSED,
    };
    let on_time = now.saturating_sub(GRACE);
    let mut late = 0;
    for due in timing.back(last, now) {
        decision.last = decision.last.max(due);
        if due < on_time {
            if late == most {
                decision.left_out = true;
                break;
            }
            late += 1;
        }
        decision.runs.push(due);
    }
    decision.runs.reverse();
    decision
}

/// What tells the schedules of a node from each other: application, function, and when it is due.
pub fn key(application: &str, function: &str, when: &str) -> String {
    format!("{application}/{function}/{when}")
}

/// When each schedule of a node will be due next, by its [`key`]. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Agenda(Arc<Mutex<BTreeMap<String, Milliseconds>>>);

impl Agenda {
    /// What is known from now on.
    pub fn set(&self, next: BTreeMap<String, Milliseconds>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// When a schedule will be due next.
    pub fn next(&self, key: &str) -> Option<Milliseconds> {
        let agenda = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        agenda.get(key).copied()
    }

    /// When anything will be due next.
    pub fn first(&self) -> Option<Milliseconds> {
        let agenda = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        agenda.values().min().copied()
    }
}

/// The event that a schedule's run is: in `source`, about `subject` (when the schedule is due, as its author wrote it).
pub fn scheduled(id: String, source: &str, subject: &str, due: Milliseconds, payload: &str) -> Event {
    let attributes = [
        ("id", id),
        ("source", source.to_owned()),
        ("type", "millpond.schedule".to_owned()),
        ("subject", subject.to_owned()),
        ("time", rfc3339(due)),
    ];
    Event::of(attributes, Bytes::copy_from_slice(payload.as_bytes()))
}
