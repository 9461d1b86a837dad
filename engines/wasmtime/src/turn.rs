//! What the code inside a sandbox's future tells [`contract::Sandbox::run`] about the turn it is in.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

#[derive(Default)]
struct Turn {
    ends: Cell<Option<Instant>>,
    preempted: Cell<bool>,
    wakes: Cell<Option<Instant>>,
}

thread_local! {
    static TURN: Turn = const { Turn { ends: Cell::new(None), preempted: Cell::new(false), wakes: Cell::new(None) } };
}

/// A turn begins on this thread.
pub(crate) fn begin(quantum: Duration) {
    TURN.with(|turn| {
        turn.ends.set(Instant::now().checked_add(quantum));
        turn.preempted.set(false);
        turn.wakes.set(None);
    });
}

/// Called at an epoch: whether the turn's quantum is over. If so, the turn is noted as preempted.
pub(crate) fn over() -> bool {
    TURN.with(|turn| {
        let over = turn.ends.get().is_none_or(|ends| Instant::now() >= ends);
        turn.preempted.set(over);
        over
    })
}

/// The sandbox is about to wait until a moment.
pub(crate) fn wait_until(moment: Instant) {
    TURN.with(|turn| turn.wakes.set(Some(moment)));
}

/// How the turn that just ended without an end of its code came to end: preempted, or waiting until when.
pub(crate) fn end() -> contract::Step {
    TURN.with(|turn| {
        if turn.preempted.get() {
            contract::Step::Preempted
        } else {
            contract::Step::Waiting {
                until: turn.wakes.get(),
            }
        }
    })
}
