//! A zygote as the node sees it: what it was ordered, and how its guests stand.

use super::groups::{Lease, Pool};
use crate::wire::{self, End, Id, Imported, News, Order};
use confine::GroupLimits;
use fresh::Place;
use parking_lot::Mutex;
use rustix::io::Errno;
use slab::Slab;
use std::{
    collections::VecDeque,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::Waker,
    time::{Duration, Instant},
};

/// How a guest stands, for its sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its order is on its way.
    Ordered,
    /// It runs.
    Begun {
        /// Its process's number.
        process: i32,
        /// When the node heard of it.
        at: Instant,
    },
    /// It has ended, and nothing of it is left.
    Ended {
        /// How.
        end: End,
        /// When the node heard of its beginning.
        began: Option<Instant>,
    },
    /// Its zygote has ended before it began: nothing of it has run, and what it was given is as it was.
    Unbegun(String),
    /// It could not begin, or its zygote has ended and it with that.
    Lost(String),
}

impl Standing {
    fn is_over(&self) -> bool {
        matches!(self, Self::Ended { .. } | Self::Unbegun(_) | Self::Lost(_))
    }
}

/// Makes a link to a service of this name, for an interpreter; or says why there is none.
pub(crate) type Links = Box<dyn Fn(&str) -> Result<OwnedFd, String> + Send + Sync>;

/// What became of an order.
pub(crate) enum Ordered {
    /// It is on its way.
    Taken(Id),
    /// The socket has no room for it now.
    Full,
    /// There is nobody to take it. No guest has come of it.
    Gone,
}

/// What a guest takes of the node for as long as it lives.
pub(crate) struct Held {
    pub(crate) _place: Option<Place>,
    pub(crate) _group: Option<Lease>,
}

struct Guest {
    standing: Standing,
    waker: Option<Waker>,
    /// Since when it has no request, if it has served one and may be given another.
    resting: Option<Instant>,
    /// Nobody waits for it any more. What it holds is free once nothing of it is left.
    abandoned: Option<Held>,
}

/// The node's end of a zygote.
pub(crate) struct Zygote {
    socket: OwnedFd,
    /// Its interpreter's.
    _group: Option<Lease>,
    groups: Arc<Pool>,
    /// If its guests are forked from an interpreter: those of their control groups.
    limits: Option<GroupLimits>,
    links: Links,
    /// It has ended, or is about to. It is set while nobody else has the state, so that an order comes before that or finds it so.
    gone: AtomicBool,
    started: Instant,
    /// What its interpreter is since its import, and how long it took to become that.
    imported: OnceLock<(Imported, Duration)>,
    /// Guests that are to wait for a request.
    ahead: AtomicU32,
    /// Nothing is left of it.
    over: AtomicBool,
    /// The number of its last order.
    used: AtomicU64,
    state: Mutex<State>,
}

/// Orders so far.
static USES: AtomicU64 = AtomicU64::new(0);

#[derive(Default)]
struct State {
    guests: Slab<Guest>,
    /// Those of them that wait for a request, and their control groups.
    waiting: VecDeque<(Id, Option<Lease>)>,
    /// Guests that are to be ended once the socket takes that.
    to_end: VecDeque<Id>,
    /// Links that its interpreter gets once the socket takes them.
    to_link: VecDeque<Result<OwnedFd, String>>,
    /// Why it has gone, in its own words.
    reason: Option<String>,
}

impl State {
    /// Whether it has guests that do not wait for a request.
    fn has_requests(&self) -> bool {
        self.guests.len() > self.waiting.len()
    }
}

impl Guest {
    fn new(waker: Option<Waker>) -> Self {
        Self {
            standing: Standing::Ordered,
            waker,
            resting: None,
            abandoned: None,
        }
    }
}

impl Zygote {
    /// One that has been started, which is heard on this socket.
    pub(super) fn new(
        socket: OwnedFd,
        group: Option<Lease>,
        groups: Arc<Pool>,
        limits: Option<GroupLimits>,
        links: Links,
    ) -> Self {
        Self {
            socket,
            _group: group,
            groups,
            limits,
            links,
            gone: AtomicBool::new(false),
            over: AtomicBool::new(false),
            started: Instant::now(),
            imported: OnceLock::new(),
            ahead: AtomicU32::new(1),
            used: AtomicU64::new(USES.fetch_add(1, Ordering::Relaxed)),
            state: Mutex::default(),
        }
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// The number of its last order, of all that were given to any.
    pub(super) fn last_used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Orders the first guests that wait for a request.
    pub(super) fn begin(&self) {
        self.send_waits(&mut self.state.lock());
    }

    /// Whether it has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether nothing is left of it, and of its guests.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// What its interpreter is since its import, and how long it took to become that. None as long as it is not known.
    pub(crate) fn imported(&self) -> Option<&(Imported, Duration)> {
        self.imported.get()
    }

    /// Whether it serves one request and no other.
    fn is_single(&self) -> bool {
        self.imported().is_some_and(|(imported, _)| imported.threads > 0)
    }

    /// Has so many guests wait for requests, from now on.
    pub(crate) fn have_ahead(&self, guests: u32) {
        self.ahead.store(guests, Ordering::Relaxed);
        let mut state = self.state.lock();
        while state.waiting.len() > guests as usize
            && let Some((id, group)) = state.waiting.pop_back()
        {
            let held = Held {
                _place: None,
                _group: group,
            };
            self.abandon(&mut state, id, held);
        }
        self.send_waits(&mut state);
    }

    /// Orders guests that wait for a request, until there are enough. Where that fails, the next call is what it is tried again by.
    fn send_waits(&self, state: &mut State) {
        while !self.is_gone()
            && !self.is_single()
            && state.waiting.len() < self.ahead.load(Ordering::Relaxed) as usize
        {
            match self.send_wait(state) {
                Ok(waiting) => state.waiting.push_back(waiting),
                Err(Errno::AGAIN) => return,
                Err(error) => return tracing::debug!(%error, "no guest can be ordered ahead of need"),
            }
        }
    }

    fn send_wait(&self, state: &mut State) -> rustix::io::Result<(Id, Option<Lease>)> {
        let limits = self.limits.ok_or(Errno::INVAL)?;
        let group = Pool::lease(&self.groups, limits)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let id = state.guests.insert(Guest::new(None));
        let doors: Vec<_> = group.iter().flat_map(Lease::doors).collect();
        let sent = wire::send(&self.socket, &[&Order::Wait(id as Id).head()], &doors);
        if sent.is_err() {
            state.guests.remove(id);
        }
        sent.map(|()| (id as Id, group))
    }

    /// Gives a request to a guest that waits, or to one more: these words, with descriptors. The guest's control group comes with the answer.
    ///
    /// # Errors
    /// The kernel's: no group can be made.
    pub(crate) fn call(
        &self,
        text: &[u8],
        descriptors: &[BorrowedFd<'_>],
        waker: &Waker,
    ) -> rustix::io::Result<(Ordered, Option<Lease>)> {
        let mut state = self.state.lock();
        if self.is_gone() {
            return Ok((Ordered::Gone, None));
        }
        self.is_used();
        let waiting = match state.waiting.pop_front() {
            Some(waiting) => Ok(waiting),
            None => self.send_wait(&mut state),
        };
        let (id, mut group) = match waiting {
            Ok(waiting) => waiting,
            Err(error) => return self.unsent(error).map(|ordered| (ordered, None)),
        };
        match wire::send(&self.socket, &[&Order::Call(id, &[]).head(), text], descriptors) {
            Ok(()) => {
                if self.is_single() {
                    self.gone.store(true, Ordering::Release);
                }
                if let Some(guest) = state.guests.get_mut(id as usize) {
                    guest.waker = Some(waker.clone());
                }
                if let Some(group) = &mut group {
                    group.begin();
                }
                self.send_waits(&mut state);
                Ok((Ordered::Taken(id), group))
            }
            Err(error) => {
                state.waiting.push_front((id, group));
                self.unsent(error).map(|ordered| (ordered, None))
            }
        }
    }

    /// Orders a guest, with the words of a program.
    pub(crate) fn order(
        &self,
        order: impl FnOnce(Id) -> [u8; 9],
        text: &[u8],
        descriptors: &[BorrowedFd<'_>],
        waker: &Waker,
    ) -> Ordered {
        let mut state = self.state.lock();
        if self.is_gone() {
            return Ordered::Gone;
        }
        self.is_used();
        let id = state.guests.insert(Guest::new(Some(waker.clone())));
        match wire::send(&self.socket, &[&order(id as Id), text], descriptors) {
            Ok(()) => Ordered::Taken(id as Id),
            Err(error) => {
                state.guests.remove(id);
                self.unsent(error).unwrap_or(Ordered::Gone)
            }
        }
    }

    fn is_used(&self) {
        let use_ = USES.fetch_add(1, Ordering::Relaxed);
        self.used.store(use_, Ordering::Relaxed);
    }

    /// What it means that an order was not sent.
    fn unsent(&self, error: Errno) -> rustix::io::Result<Ordered> {
        match error {
            Errno::AGAIN => Ok(Ordered::Full),
            Errno::PIPE | Errno::CONNRESET => {
                self.gone.store(true, Ordering::Release);
                Ok(Ordered::Gone)
            }
            error => Err(error),
        }
    }

    /// How a guest stands; this waker is woken when that changes.
    pub(crate) fn standing(&self, id: Id, waker: &Waker) -> Standing {
        let mut state = self.state.lock();
        let Some(guest) = state.guests.get_mut(id as usize) else {
            return Standing::Lost("it was given up".to_owned());
        };
        match &mut guest.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        guest.standing.clone()
    }

    /// Ends it, unless it has guests.
    pub(crate) fn retire(&self) -> bool {
        let state = self.state.lock();
        let idle = !state.has_requests();
        if idle {
            self.gone.store(true, Ordering::Release);
            // It ends once it hears that there will be no orders any more; whoever listens learns of that.
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
        idle
    }

    /// A guest has answered, and may be given another request.
    pub(crate) fn rest(&self, id: Id) {
        if let Some(guest) = self.state.lock().guests.get_mut(id as usize) {
            guest.resting = Some(Instant::now());
        }
    }

    /// Whether a guest that rests is there to be given another request.
    pub(crate) fn wake(&self, id: Id) -> bool {
        let mut state = self.state.lock();
        let guest = state.guests.get_mut(id as usize);
        guest.is_some_and(|guest| guest.resting.take().is_some() && !guest.standing.is_over())
    }

    /// Ends guests that have rested for so long.
    pub(crate) fn end_idle(&self, idle: Duration) {
        let mut state = self.state.lock();
        let State { guests, to_end, .. } = &mut *state;
        for (id, guest) in guests.iter_mut() {
            if guest.resting.is_some_and(|since| since.elapsed() >= idle) {
                guest.resting = None;
                to_end.push_back(id as Id);
            }
        }
        self.send_ends(&mut state);
    }

    /// A guest that never began.
    pub(crate) fn forget(&self, id: Id) {
        self.state.lock().guests.try_remove(id as usize);
    }

    /// Its sandbox has gone: it ends, if it has not yet.
    pub(crate) fn give_up(&self, id: Id, held: Held) {
        let mut state = self.state.lock();
        let Some(guest) = state.guests.get_mut(id as usize) else {
            return;
        };
        guest.waker = None;
        if guest.standing.is_over() {
            state.guests.remove(id as usize);
            return;
        }
        self.abandon(&mut state, id, held);
    }

    fn abandon(&self, state: &mut State, id: Id, held: Held) {
        if let Some(guest) = state.guests.get_mut(id as usize) {
            guest.abandoned = Some(held);
            state.to_end.push_back(id);
            self.send_ends(state);
        }
    }

    /// As many as the socket takes now. The listener sends the others.
    fn send_ends(&self, state: &mut State) {
        while let Some(link) = state.to_link.front() {
            let head = Order::Link(&[]).head();
            let sent = match link {
                Ok(bell) => wire::send(&self.socket, &[&head, b"c"], &[bell.as_fd()]),
                Err(reason) => wire::send(&self.socket, &[&head, b"n", reason.as_bytes()], &[]),
            };
            if sent == Err(Errno::AGAIN) {
                return;
            }
            state.to_link.pop_front();
        }
        while let Some(id) = state.to_end.front() {
            match wire::send(&self.socket, &[&Order::End(*id).head()], &[]) {
                Err(Errno::AGAIN) => return,
                // If it has gone, its guests have, too.
                _ => state.to_end.pop_front(),
            };
        }
    }

    /// Takes in all that the zygote has said. `false` if it has gone.
    pub(super) fn hear(&self, buffer: &mut [u8]) -> bool {
        loop {
            let length = match wire::receive(&self.socket, buffer) {
                Err(Errno::AGAIN) => break,
                // It ended before it had taken all orders; what it said before that is still to be heard.
                Err(Errno::INTR | Errno::CONNRESET) => continue,
                Ok((0, _)) | Err(_) => return false,
                Ok((length, _)) => length,
            };
            let packet = buffer.get(..length).unwrap_or_default();
            match News::read(packet) {
                Some(News::Ready(imported)) => {
                    let state = self.state.lock();
                    let _ = self.imported.set((imported, self.started.elapsed()));
                    if imported.threads > 0 && state.has_requests() {
                        self.gone.store(true, Ordering::Release);
                    }
                }
                Some(News::Begun(id, process)) => {
                    let at = Instant::now();
                    self.tell(id, Standing::Begun { process, at });
                }
                Some(News::Failed(id, error)) => {
                    let reason = io::Error::from_raw_os_error(error);
                    self.tell(
                        id,
                        Standing::Lost(format!("its process cannot be made: {reason}")),
                    );
                }
                Some(News::Ended(id, end)) => self.tell(id, Standing::Ended { end, began: None }),
                Some(News::Wanted(name)) => {
                    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                    let link = (self.links)(&String::from_utf8_lossy(&name[..length]));
                    self.state.lock().to_link.push_back(link);
                }
                Some(News::Refused(id)) => {
                    self.gone.store(true, Ordering::Release);
                    self.tell(id, Standing::Unbegun("its interpreter has ended".to_owned()));
                }
                None => {
                    let reason = String::from_utf8_lossy(packet).into_owned();
                    tracing::error!(reason, "a zygote has ended");
                    self.state.lock().reason = Some(reason);
                }
            }
        }
        self.send_ends(&mut self.state.lock());
        true
    }

    fn tell(&self, id: Id, mut standing: Standing) {
        let mut state = self.state.lock();
        let Some(guest) = state.guests.get_mut(id as usize) else {
            return;
        };
        if let (Standing::Ended { began, .. }, Standing::Begun { at, .. }) = (&mut standing, &guest.standing)
        {
            *began = Some(*at);
        }
        let over = standing.is_over();
        if over && guest.abandoned.is_some() {
            state.guests.remove(id as usize);
            return;
        }
        guest.standing = standing;
        if over && let Some(waker) = guest.waker.take() {
            drop(state);
            waker.wake();
        }
    }

    /// It has ended, and all of its guests with it.
    pub(super) fn lose(&self) {
        let mut state = self.state.lock();
        self.gone.store(true, Ordering::Release);
        self.over.store(true, Ordering::Release);
        let reason = state
            .reason
            .clone()
            .unwrap_or_else(|| "its zygote has ended".to_owned());
        for (id, _) in std::mem::take(&mut state.waiting) {
            state.guests.try_remove(id as usize);
        }
        let mut wakers = Vec::new();
        state.guests.retain(|_, guest| {
            if guest.abandoned.is_some() {
                return false;
            }
            match guest.standing {
                Standing::Ended { .. } | Standing::Lost(_) | Standing::Unbegun(_) => {}
                Standing::Ordered => guest.standing = Standing::Unbegun(reason.clone()),
                _ => guest.standing = Standing::Lost(reason.clone()),
            }
            wakers.extend(guest.waker.take());
            true
        });
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }
}
