//! What all sandboxes of an engine share: the places, and the threads that run them.

use fiber::{Stack, Thread};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    cell::OnceCell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

/// Stack that a guest may use.
const STACK: usize = 512 << 10;

/// Before a sandbox tries again that the host has refused something.
pub(crate) const AGAIN: Duration = Duration::from_millis(10);

#[derive(Default)]
pub(crate) struct Pool {
    taken: AtomicU32,
    most: u32,
}

/// A thread that runs guests.
struct Seat {
    id: i32,
    /// Whether it is in one.
    inside: AtomicBool,
}

/// All threads of the process that have ever run a guest and have not ended.
static SEATS: Mutex<Vec<Arc<Seat>>> = Mutex::new(Vec::new());

struct Seated {
    _thread: Thread,
    seat: Arc<Seat>,
}

impl Drop for Seated {
    fn drop(&mut self) {
        SEATS.lock().retain(|seat| !Arc::ptr_eq(seat, &self.seat));
    }
}

thread_local! {
    static SEATED: OnceCell<Seated> = const { OnceCell::new() };
}

impl Pool {
    pub(crate) fn new(sandboxes: u32) -> Self {
        Self {
            taken: 0.into(),
            most: sandboxes,
        }
    }

    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let place = Place(self.clone());
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.most).then_some(place)
    }

    #[expect(
        clippy::unused_self,
        reason = "stacks are kept here for the next sandbox before long"
    )]
    pub(crate) fn stack(&self) -> Result<Stack, Errno> {
        Stack::new(STACK)
    }

    /// This thread is about to run a guest.
    #[expect(clippy::unused_self, reason = "only whoever has an engine's pool has a guest")]
    pub(crate) fn enter(&self) -> Result<Inside, String> {
        SEATED.with(|seated| {
            if seated.get().is_none() {
                let thread = Thread::here()
                    .map_err(|error| format!("the host has no alternate stack for it: {error}"))?;
                let seat = Arc::new(Seat {
                    id: thread.id(),
                    inside: AtomicBool::new(false),
                });
                SEATS.lock().push(seat.clone());
                let _ = seated.set(Seated {
                    _thread: thread,
                    seat,
                });
            }
            let seat = seated.get().map(|seated| seated.seat.clone());
            let inside = Inside(seat.ok_or("the thread is ending")?);
            inside.0.inside.store(true, Ordering::SeqCst);
            Ok(inside)
        })
    }
}

/// Asks all guests that run for their core.
pub(crate) fn preempt() {
    for seat in SEATS.lock().iter() {
        if seat.inside.load(Ordering::SeqCst) {
            fiber::preempt(seat.id);
        }
    }
}

/// While a thread is in a guest.
pub(crate) struct Inside(Arc<Seat>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::SeqCst);
    }
}

/// A sandbox's, given back when dropped.
pub(crate) struct Place(Arc<Pool>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
