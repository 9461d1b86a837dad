//! The node's end: the spawner, its zygotes, and the thread that listens to them.

use crate::{
    Counted, Options, SPAWNER,
    files::pair,
    wire::{self, End, Id, Imported, News, Order},
    zygote::Setup,
};
use confine::{Group, GroupLimits, Groups};
use fresh::{Place, Places};
use parking_lot::Mutex;
use rustix::{event::epoll, io::Errno};
use slab::Slab;
use std::{
    collections::{HashMap, VecDeque},
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::Waker,
    thread,
    time::{Duration, Instant},
};

/// What all images share.
pub(crate) struct Host {
    program: PathBuf,
    places: Arc<Places>,
    groups: Arc<Pool>,
    counted: Counted,
    spawner: Mutex<Option<Spawner>>,
    listener: Arc<Listener>,
    /// Zygotes that may wait for orders at once.
    most_zygotes: usize,
}

struct Spawner {
    socket: OwnedFd,
    process: Child,
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // Its socket closes, and it ends by itself; what is left is to bury it. It runs nothing of anybody's, so it does not tarry.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        let _ = self.process.wait();
    }
}

impl Host {
    pub(crate) fn new(options: &Options) -> io::Result<Arc<Self>> {
        let listener = Arc::new(Listener {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            heard: Mutex::default(),
        });
        let listening = listener.clone();
        thread::Builder::new()
            .name("processes".to_owned())
            .spawn(move || listening.listen())?;
        let groups = Groups::make_with(&options.controllers).map_err(|error| error.to_string());
        let counted = Counted::new(groups.as_ref().map_err(String::clone), options.allow_uncounted);
        match (&groups, counted.refusals()) {
            (_, Some(refusals)) => {
                tracing::warn!("of native executables and functions in Python, {refusals}")
            }
            (Err(error), None) => {
                tracing::info!(
                    error,
                    "native executables are limited by process, and not by request"
                );
            }
            (Ok(_), None) => {}
        }
        Ok(Arc::new(Self {
            program: options.program.clone(),
            places: Places::new(options.sandboxes, None, Arc::default()),
            groups: Arc::new(Pool::new(groups.ok())),
            counted,
            spawner: Mutex::default(),
            listener,
            most_zygotes: options.zygotes as usize,
        }))
    }

    pub(crate) fn places(&self) -> &Arc<Places> {
        &self.places
    }

    /// Whether what all processes of a guest use together can be limited.
    pub(crate) fn has_groups(&self) -> bool {
        self.groups.groups.is_some()
    }

    /// What this host keeps of a program's limits.
    pub(crate) fn counted(&self) -> &Counted {
        &self.counted
    }

    /// A control group for a guest, with these limits. None if there are none on this host.
    pub(crate) fn group(&self, limits: GroupLimits) -> io::Result<Option<Lease>> {
        Pool::lease(&self.groups, limits)
    }

    /// A zygote that is about to confine itself. `Err` says why there is none.
    ///
    /// An interpreter has a control group, which lasts as long as its zygote, and its guests have others, with the same limits.
    pub(crate) fn zygote(
        &self,
        setup: &Setup,
        executable: &OwnedFd,
        limits: Option<GroupLimits>,
        links: Links,
    ) -> Result<Arc<Zygote>, String> {
        let setup = serde_json::to_vec(setup).map_err(|error| error.to_string())?;
        let group = match limits {
            Some(limits) => self.group(limits).map_err(|error| error.to_string())?,
            None => None,
        };
        let (ours, theirs) = pair().map_err(|error| format!("there is no socket for a zygote: {error}"))?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|error| error.to_string())?;
        let doors = group.iter().flat_map(Lease::doors);
        let descriptors: Vec<_> = [theirs.as_fd(), executable.as_fd()]
            .into_iter()
            .chain(doors)
            .collect();
        let mut spawner = self.spawner.lock();
        let mut sent = Err(Errno::PIPE);
        if let Some(spawner) = &*spawner {
            sent = wire::send(&spawner.socket, &[&setup], &descriptors);
        }
        if sent == Err(Errno::PIPE) || sent == Err(Errno::CONNRESET) {
            *spawner = None;
            let new = self.start().map_err(|error| {
                format!(
                    "the spawner cannot be started ({}): {error}",
                    self.program.display()
                )
            })?;
            sent = wire::send(&new.socket, &[&setup], &descriptors);
            *spawner = Some(new);
        }
        sent.map_err(|error| format!("the spawner takes no orders: {error}"))?;
        let zygote = Arc::new(Zygote {
            socket: ours,
            _group: group,
            groups: self.groups.clone(),
            limits,
            links,
            gone: AtomicBool::new(false),
            over: AtomicBool::new(false),
            started: Instant::now(),
            imported: OnceLock::new(),
            ahead: AtomicU32::new(1),
            used: AtomicU64::new(USES.fetch_add(1, Ordering::Relaxed)),
            state: Mutex::default(),
        });
        self.listener
            .add(&zygote)
            .map_err(|error| format!("cannot listen to a zygote: {error}"))?;
        self.listener.retire(self.most_zygotes, &zygote);
        zygote.send_waits(&mut zygote.state.lock());
        Ok(zygote)
    }

    /// Has a waker woken when there is something to be read from a socket, for as long as the answer is kept.
    pub(crate) fn listen_to(&self, socket: &OwnedFd, waker: &Waker) -> io::Result<Listening> {
        let key = socket.as_raw_fd() as u64;
        let waker = Arc::new(Mutex::new(waker.clone()));
        let listening = Listening {
            listener: self.listener.clone(),
            key,
            waker: waker.clone(),
        };
        self.listener.heard.lock().insert(key, Heard::Answer(waker));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &self.listener.epoll,
            socket,
            epoll::EventData::new_u64(key),
            flags,
        )?;
        Ok(listening)
    }

    fn start(&self) -> io::Result<Spawner> {
        let (ours, theirs) = pair()?;
        let process = Command::new(&self.program)
            .arg(SPAWNER)
            .env_clear()
            // The kernel writes to a place of each thread's, if it is told of one, which a pure guest has no longer.
            .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Spawner {
            socket: ours,
            process,
        })
    }
}

/// Control groups, as many as guests have been there at once.
struct Pool {
    // Before the groups that they are in.
    idle: Mutex<Vec<Group>>,
    groups: Option<Groups>,
    made: AtomicU32,
}

impl Pool {
    fn new(groups: Option<Groups>) -> Self {
        Self {
            idle: Mutex::default(),
            groups,
            made: AtomicU32::new(0),
        }
    }

    fn lease(this: &Arc<Self>, limits: GroupLimits) -> io::Result<Option<Lease>> {
        let Some(groups) = &this.groups else {
            return Ok(None);
        };
        let idle = this.idle.lock().pop();
        let mut group = match idle {
            Some(group) => group,
            None => {
                let number = this.made.fetch_add(1, Ordering::Relaxed);
                groups.group(&number.to_string())?
            }
        };
        group.limit(limits)?;
        Ok(Some(Lease {
            before: group.time().unwrap_or_default(),
            group: Some(group),
            pool: this.clone(),
        }))
    }
}

/// A guest's control group, which goes back when nothing of the guest is left.
pub(crate) struct Lease {
    group: Option<Group>,
    /// Time on processors of guests that had it before.
    before: Duration,
    pool: Arc<Pool>,
}

impl Lease {
    /// For the guest to go in by.
    pub(crate) fn doors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.group.iter().flat_map(Group::doors)
    }

    /// Time is counted from here on.
    pub(crate) fn begin(&mut self) {
        if let Some(time) = self.group.as_mut().and_then(Group::time) {
            self.before = time;
        }
    }

    /// Time on processors of all the guest's processes. `None` if this host does not count it.
    pub(crate) fn time(&mut self) -> Option<Duration> {
        Some(self.group.as_mut()?.time()?.saturating_sub(self.before))
    }

    /// Whether a process of the guest was ended for want of memory.
    pub(crate) fn ran_out(&mut self) -> bool {
        self.group.as_mut().is_some_and(Group::ran_out)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(mut group) = self.group.take() {
            // The next guest has nothing to do with it.
            group.ran_out();
            self.pool.idle.lock().push(group);
        }
    }
}

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
    fn hear(&self, buffer: &mut [u8]) -> bool {
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
    fn lose(&self) {
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

/// What the listener does when there is something to be read.
#[derive(Clone)]
enum Heard {
    Zygote(Weak<Zygote>),
    Answer(Arc<Mutex<Waker>>),
}

/// See [`Host::listen_to`]. It goes before the socket does.
pub(crate) struct Listening {
    listener: Arc<Listener>,
    key: u64,
    waker: Arc<Mutex<Waker>>,
}

impl Listening {
    /// Has this waker woken from now on.
    pub(crate) fn wakes(&self, waker: &Waker) {
        self.waker.lock().clone_from(waker);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The kernel forgets the socket with its last descriptor.
        self.listener.heard.lock().remove(&self.key);
    }
}

/// Listens to all zygotes, and to guests that answer.
struct Listener {
    epoll: OwnedFd,
    /// By their sockets.
    heard: Mutex<HashMap<u64, Heard>>,
}

impl Listener {
    fn add(&self, zygote: &Arc<Zygote>) -> rustix::io::Result<()> {
        let key = zygote.socket.as_raw_fd() as u64;
        let heard = Heard::Zygote(Arc::downgrade(zygote));
        self.heard.lock().insert(key, heard);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &zygote.socket, epoll::EventData::new_u64(key), flags)
    }

    /// Has those zygotes end that were not used for the longest time, until there are only so many. This one stays, and so do those with guests.
    fn retire(&self, most: usize, newest: &Arc<Zygote>) {
        let heard = self.heard.lock();
        let mut others: Vec<_> = heard
            .values()
            .filter_map(|heard| match heard {
                Heard::Zygote(zygote) => zygote.upgrade(),
                Heard::Answer(_) => None,
            })
            .filter(|zygote| !zygote.is_gone() && !Arc::ptr_eq(zygote, newest))
            .collect();
        drop(heard);
        let mut surplus = (others.len() + 1).saturating_sub(most);
        if surplus == 0 {
            return;
        }
        others.sort_by_key(|zygote| zygote.used.load(Ordering::Relaxed));
        for zygote in others {
            if surplus > 0 && zygote.retire() {
                surplus -= 1;
            }
        }
    }

    fn listen(&self) {
        let mut events = Vec::with_capacity(64);
        let mut buffer = vec![0; 4096];
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "nobody listens to processes any more");
                    return;
                }
            }
            for event in &events {
                let key = event.data.u64();
                let known = self.heard.lock().get(&key).cloned();
                let known = match known {
                    Some(Heard::Zygote(zygote)) => zygote,
                    Some(Heard::Answer(waker)) => {
                        waker.lock().wake_by_ref();
                        continue;
                    }
                    None => continue,
                };
                let zygote = known.upgrade();
                let heard = zygote.as_ref().is_some_and(|zygote| zygote.hear(&mut buffer));
                if let (false, Some(zygote)) = (heard, &zygote) {
                    let _ = epoll::delete(&self.epoll, &zygote.socket);
                    zygote.lose();
                }
                let mut all = self.heard.lock();
                // The number may be another's by now.
                if !heard && matches!(all.get(&key), Some(Heard::Zygote(other)) if other.ptr_eq(&known)) {
                    all.remove(&key);
                }
            }
        }
    }
}
