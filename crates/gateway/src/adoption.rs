//! Connections that a core's gateway shares with something else of the node: those that it is given, whose other end
//! something else holds ([`Adoption`]), and those that it gives away, because their clients speak HTTP/2 ([`Departure`]).

use contract::{CoreId, Head, Origin};
use crossbeam_queue::ArrayQueue;
use rustix::fd::OwnedFd;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use worker::Shared;

/// Adopted connections that one core has yet to look at.
const WAITING: usize = 1024;

/// Gives sockets to the cores' gateways, which serve HTTP/1.1 on them as on a client's. What a request's origin is, comes
/// with the socket and not through it: nothing that is sent can change it.
#[derive(Clone)]
pub struct Adoption {
    shared: Arc<Shared>,
    doors: Arc<[Door]>,
    next: Arc<AtomicUsize>,
}

/// Where one core's gateway takes what it is given.
struct Door {
    waiting: ArrayQueue<Adopted>,
    closed: AtomicBool,
}

/// A socket with a client behind it.
pub(crate) struct Adopted {
    pub(crate) socket: OwnedFd,
    pub(crate) origin: Origin,
}

impl Adoption {
    /// For all cores of a node.
    pub fn new(shared: Arc<Shared>) -> Self {
        let doors = (0..shared.cores()).map(|_| Door {
            waiting: ArrayQueue::new(WAITING),
            closed: AtomicBool::new(false),
        });
        Self {
            doors: doors.collect(),
            shared,
            next: Arc::default(),
        }
    }

    /// Gives a non-blocking stream socket to the next core in turn that takes it. `false`, and the socket is closed, if none
    /// does: all are full or have ended. A core that has as many connections as it may closes it later.
    pub fn adopt(&self, socket: OwnedFd, origin: Origin) -> bool {
        let mut adopted = Adopted { socket, origin };
        for _ in 0..self.doors.len() {
            let core = self.next.fetch_add(1, Ordering::Relaxed) % self.doors.len();
            let door = &self.doors[core];
            match door.waiting.push(adopted) {
                Ok(()) => {
                    if door.closed.load(Ordering::SeqCst) {
                        // Its core has ended: either it or this has emptied it.
                        door.empty();
                        return false;
                    }
                    // There are no more cores than a `CoreId` counts.
                    self.shared.wake(CoreId(u16::try_from(core).unwrap_or(u16::MAX)));
                    return true;
                }
                Err(back) => adopted = back,
            }
        }
        false
    }

    /// One core's part.
    pub(crate) fn door(&self, core: CoreId) -> Option<Intake> {
        let index = usize::from(core.0);
        (index < self.doors.len()).then(|| Intake {
            doors: self.doors.clone(),
            index,
        })
    }
}

impl fmt::Debug for Adoption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adoption").finish_non_exhaustive()
    }
}

impl Door {
    fn empty(&self) {
        while self.waiting.pop().is_some() {}
    }
}

/// The inner side of a door. When it is dropped the door is closed, with whoever still stands before it.
pub(crate) struct Intake {
    doors: Arc<[Door]>,
    index: usize,
}

impl Intake {
    pub(crate) fn next(&self) -> Option<Adopted> {
        self.doors[self.index].waiting.pop()
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let door = &self.doors[self.index];
        door.closed.store(true, Ordering::SeqCst);
        door.empty();
    }
}

/// A connection that goes on in HTTP/2.
#[derive(Debug)]
pub struct Departing {
    /// The client's, non-blocking.
    pub socket: OwnedFd,
    /// Where the client is.
    pub origin: Origin,
    /// What was read of it and is HTTP/2's.
    pub read: Vec<u8>,
    /// The request by which the client asked for HTTP/2 (RFC 7540, section 3.2), which was not answered: it has no body, and
    /// exactly one well-formed `HTTP2-Settings`. None if the client just began to speak it.
    pub request: Option<Box<Head>>,
}

/// What takes connections that go on in HTTP/2. Called on a core: it must not block. What it cannot take it drops.
#[derive(Clone)]
pub struct Departure(pub Arc<dyn Fn(Departing) + Send + Sync>);

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Departure").finish_non_exhaustive()
    }
}
