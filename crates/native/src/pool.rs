//! What all sandboxes of an engine share: the places, the guests between two requests, and the threads that run them.

use crate::{
    arena::Arena,
    guest::{Guest, Vacant},
    layout::Outside,
};
use contract::CoreId;
use fiber::{Stack, Thread};
use fresh::{Guards, Idle, ImageId, Pages, Places};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::{
    cell::OnceCell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// What an engine may use of the host.
#[derive(Clone)]
pub struct Options<B> {
    /// How its compiler keeps guests in their memories.
    pub bounds: B,
    /// Those of sandboxes alive at once. Each takes of the host no more than one of Wasmtime's whose memory has guard pages, so all of these
    /// engines can have the same.
    pub places: Arc<Places>,
    /// Bytes of a linear memory that a finished sandbox leaves resident, as they were at first, for the next.
    pub keep_resident: usize,
}

impl<B: Default> Default for Options<B> {
    fn default() -> Self {
        Self {
            bounds: B::default(),
            places: Places::new(1_000, None, Arc::default()),
            keep_resident: 1 << 20,
        }
    }
}

impl<B> Options<B> {
    /// A pool for these sandboxes.
    pub fn pool(&self) -> Arc<Pool> {
        Arc::new(Pool::new(self.places.clone(), self.keep_resident))
    }
}

/// Stack that a guest may use.
const STACK: usize = 512 << 10;

/// Kept of guests that nobody asks for any more. Who takes one leaves one soon, so that a few do for many functions that are seldom called.
const VACANT: usize = 16;

/// See the module.
pub struct Pool {
    pub(crate) places: Arc<Places>,
    pub(crate) idle: Idle<Box<Guest>>,
    vacant: Mutex<Vec<Vacant>>,
    /// Where small code lies.
    pub(crate) arena: Option<Arc<Arena>>,
    pub(crate) guards: Arc<Guards>,
    /// None where the kernel cannot tell which pages were written.
    pub(crate) pages: Option<Pages>,
    pub(crate) keep_resident: usize,
    cores: Mutex<Vec<Option<Arc<Seat>>>>,
}

/// A thread that runs guests.
struct Seat {
    id: i32,
    /// Whether it is in one.
    inside: AtomicBool,
    /// Whether that is to give its core back: a signal that meets the host's own code is lost.
    asked: AtomicBool,
}

struct Seated {
    seat: Arc<Seat>,
    _thread: Thread,
}

thread_local! {
    static SEATED: OnceCell<Seated> = const { OnceCell::new() };
}

/// Of this thread.
fn seat() -> io::Result<Arc<Seat>> {
    SEATED.with(|seated| {
        if let Some(seated) = seated.get() {
            return Ok(seated.seat.clone());
        }
        let thread = Thread::here()?;
        let seat = Arc::new(Seat {
            id: thread.id(),
            inside: AtomicBool::new(false),
            asked: AtomicBool::new(false),
        });
        let _ = seated.set(Seated {
            seat: seat.clone(),
            _thread: thread,
        });
        Ok(seat)
    })
}

/// A guest's, with room for its instance's block.
pub(crate) fn stack(block: usize) -> Result<Stack, Errno> {
    Stack::with_room(STACK, block)
}

impl Pool {
    /// With these places. A finished sandbox leaves so many bytes of its memory resident, as they were at first, for the next.
    pub fn new(places: Arc<Places>, keep_resident: usize) -> Self {
        let threads = fresh::threads();
        Self {
            places,
            idle: Idle::new(threads),
            vacant: Mutex::default(),
            arena: Arena::new(),
            guards: Arc::new(Guards::new(fresh::most(threads))),
            pages: Pages::open(),
            keep_resident,
            cores: Mutex::default(),
        }
    }

    /// Keeps a guest in its first state for the next request to its image.
    pub(crate) fn keep(&self, image: ImageId, guest: Box<Guest>) {
        if let Some(oldest) = self.idle.put(image, guest) {
            self.vacate(*oldest);
        }
    }

    /// Drops the guests of an image that is no more.
    pub(crate) fn forget(&self, image: ImageId) {
        for guest in self.idle.forget(image) {
            self.vacate(*guest);
        }
    }

    /// Keeps what any image can use of a guest in its first state.
    fn vacate(&self, guest: Guest) {
        let Some(new) = guest.vacate() else { return };
        let mut vacant = self.vacant.lock();
        let oldest = (vacant.len() >= VACANT).then(|| vacant.remove(0));
        vacant.push(new);
        drop(vacant);
        drop(oldest);
    }

    /// What a guest needs that finds this around its memory, if one has left it.
    pub(crate) fn vacant(&self, outside: Outside) -> Option<Vacant> {
        let mut vacant = self.vacant.lock();
        let found = vacant.iter().rposition(|vacant| vacant.outside() == outside)?;
        Some(vacant.remove(found))
    }

    /// This thread is this core's.
    pub(crate) fn seat(&self, core: CoreId) -> io::Result<()> {
        let seat = seat()?;
        let mut cores = self.cores.lock();
        let index = usize::from(core.0);
        if cores.len() <= index {
            cores.resize(index + 1, None);
        }
        cores[index] = Some(seat);
        Ok(())
    }

    /// Asks the guest that runs on this core, if any, to give it back.
    pub(crate) fn preempt(&self, core: CoreId) {
        let cores = self.cores.lock();
        if let Some(Some(seat)) = cores.get(usize::from(core.0))
            && seat.inside.load(Ordering::SeqCst)
        {
            seat.asked.store(true, Ordering::SeqCst);
            fiber::preempt(seat.id);
        }
    }
}

/// While a thread is in a guest.
pub(crate) struct Inside(Arc<Seat>);

impl Inside {
    /// This thread is about to run a guest.
    pub(crate) fn enter() -> io::Result<Self> {
        let seat = seat()?;
        seat.inside.store(true, Ordering::SeqCst);
        Ok(Self(seat))
    }

    /// Whether the guest is to give its core back since the last time.
    pub(crate) fn is_asked(&self) -> bool {
        let asked = self.0.asked.load(Ordering::Relaxed);
        if asked {
            self.0.asked.store(false, Ordering::Relaxed);
        }
        asked
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.store(false, Ordering::SeqCst);
    }
}
