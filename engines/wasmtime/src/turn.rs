//! What the code inside a sandbox's future tells [`contract::Sandbox::run`] about the turn it is in.

use contract::{Step, Until, Usage};
use std::{
    cell::Cell,
    future::Future,
    marker::PhantomData,
    pin::Pin,
    ptr,
    sync::atomic::AtomicBool,
    task::{Context, Poll, Waker},
    time::Instant,
};

#[derive(Default)]
struct Turn {
    ends: Cell<Option<Instant>>,
    /// Of the turn's [`Until`]; null between turns.
    asked: Cell<*const AtomicBool>,
    preempted: Cell<bool>,
    wakes: Cell<Option<Instant>>,
    started: Cell<Option<Instant>>,
    memory: Cell<u64>,
}

thread_local! {
    static TURN: Turn = const {
        Turn {
            ends: Cell::new(None),
            asked: Cell::new(ptr::null()),
            preempted: Cell::new(false),
            wakes: Cell::new(None),
            started: Cell::new(None),
            memory: Cell::new(0),
        }
    };
}

/// One turn of a sandbox, which is a future: what it came to, or how the turn ended without an end of its code.
pub(crate) fn poll<T>(
    future: Pin<&mut (dyn Future<Output = T> + '_)>,
    waker: &Waker,
    until: Until<'_>,
    usage: &mut Usage,
) -> Result<T, Step> {
    let turn = begin(until, *usage);
    let polled = future.poll(&mut Context::from_waker(waker));
    drop(turn);
    *usage = self::usage();
    match polled {
        Poll::Pending => Err(end()),
        Poll::Ready(result) => Ok(result),
    }
}

/// Ends the turn, also when its poll panics.
struct During<'a>(PhantomData<Until<'a>>);

impl Drop for During<'_> {
    fn drop(&mut self) {
        TURN.with(|turn| turn.asked.set(ptr::null()));
    }
}

/// A turn begins on this thread, of a sandbox that has used this so far.
fn begin(until: Until<'_>, usage: Usage) -> During<'_> {
    TURN.with(|turn| {
        turn.ends.set(Some(until.at));
        turn.asked.set(until.asked);
        turn.preempted.set(false);
        turn.wakes.set(None);
        turn.started.set(usage.started);
        turn.memory.set(usage.memory);
    });
    During(PhantomData)
}

/// The instance is complete and its code begins.
pub(crate) fn started() {
    TURN.with(|turn| turn.started.set(Some(Instant::now())));
}

/// The sandbox's memory has grown to so many bytes.
pub(crate) fn memory(bytes: u64) {
    TURN.with(|turn| turn.memory.set(turn.memory.get().max(bytes)));
}

/// What the sandbox of this turn has used, in this turn and before.
fn usage() -> Usage {
    TURN.with(|turn| Usage {
        started: turn.started.get(),
        memory: turn.memory.get(),
        ..Usage::default()
    })
}

/// Called at an epoch: whether the turn is over. If so, it is noted as preempted.
pub(crate) fn over() -> bool {
    TURN.with(|turn| {
        // SAFETY: it is null, or what `begin` was given, which lives until `During` is dropped; that makes it null again.
        let asked = unsafe { turn.asked.get().as_ref() };
        let over = match (turn.ends.get(), asked) {
            (Some(at), Some(asked)) => Until { at, asked }.is_over(),
            _ => true,
        };
        turn.preempted.set(over);
        over
    })
}

/// The sandbox is about to wait until a moment.
pub(crate) fn wait_until(moment: Instant) {
    TURN.with(|turn| turn.wakes.set(Some(moment)));
}

/// How the turn that just ended without an end of its code came to end: preempted, or waiting until when.
fn end() -> Step {
    TURN.with(|turn| {
        if turn.preempted.get() {
            Step::Preempted
        } else {
            Step::Waiting {
                until: turn.wakes.get(),
            }
        }
    })
}
