//! What engines of Wasm keep between two requests, so that a fresh sandbox costs microseconds.
//!
//! - [`Places`]: how many sandboxes there may be, and fewer for a while when the kernel refuses what one needs;
//!   [`Spare`] maps meanwhile, for those who cannot wait.
//! - [`Idle`]: instances that have been put back to their first state and wait for their image's next request.
//! - [`Restorer`]: putting a linear memory back to its first state, by the pages that were written ([`Pages`]), and
//!   without asking which these are after most requests ([`Guard`]).

mod guard;
mod idle;
mod pages;
mod places;
mod spare;

pub use guard::{Area, Guard, Guards, MOST_MAPS, Restorer, Watched};
pub use idle::{Idle, ImageId, most};
pub use pages::{Pages, Restored, Written};
pub use places::{Place, Places};
pub use spare::Spare;

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// Before a sandbox tries again that the host has refused something.
pub const AGAIN: Duration = Duration::from_millis(10);

/// Threads that were given a number.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::SeqCst);
}

/// The number of this thread: the first that asks has 0.
pub(crate) fn thread_index() -> usize {
    THREAD.with(|thread| *thread)
}

/// How many threads have a number.
pub(crate) fn seen_threads() -> usize {
    THREADS.load(Ordering::SeqCst)
}

/// Threads that can use a pool at once.
pub fn threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
