//! What cores share: mailboxes, bells, deques' other ends. No lock is on the path of a request.

use crate::{
    Tenancy,
    bell::Bell,
    offer::Offer,
    outside::{OUTSIDE, Outside},
    poller::Eventfd,
    sink,
    target::Target,
    ticker::{Guarded, Watch},
};
use bytes::Bytes;
use contract::{Body, CoreId, Fault, Head, Refusal, RequestId, ResponseHead, Trailers};
use crossbeam_deque::{Steal, Stealer};
use crossbeam_queue::SegQueue;
use crossbeam_utils::CachePadded;
use flow::Receiver;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io,
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc,
    },
    task::{Wake, Waker},
    thread,
    time::{Duration, Instant},
};
use telemetry::metrics::Start;
use tenants::Allowance;

/// A request that has been read and admitted, on its way to a sandbox. It may change cores until it has one.
#[derive(Debug)]
pub struct Invocation {
    /// What to run.
    pub target: Arc<Target>,
    /// Method, target, headers.
    pub head: Box<Head>,
    /// The body.
    pub body: Body,
    /// Whether its front takes the response in pieces, by [`crate::Front::open`].
    pub streams: bool,
    /// When its bytes were read.
    pub arrived: Instant,
    /// For how long before they may have lain there: its core did not look at its sockets meanwhile.
    pub(crate) unseen: Duration,
    /// The core whose front waits for the answer.
    pub home: CoreId,
    /// The front's name for it.
    pub token: u64,
    /// How much of the end of its log the answer is to carry, in bytes.
    pub log_tail: usize,
    /// It came when its version's image was not loaded.
    pub(crate) cold: Cold,
    /// Set once its reader was told that the body will not come to its end.
    pub(crate) cut: Option<Arc<AtomicBool>>,
}

/// Whether a request had to wait for its version's image.
#[derive(Debug, Default)]
pub(crate) enum Cold {
    #[default]
    No,
    Loaded,
    Failed(String),
}

impl Invocation {
    /// A request that was read on the core `home`, whose front calls it `token`.
    pub fn new(
        target: Arc<Target>,
        head: Box<Head>,
        body: impl Into<Body>,
        arrived: Instant,
        home: CoreId,
        token: u64,
    ) -> Self {
        let (body, cut) = sink::watch(body.into());
        Self {
            target,
            head,
            body,
            streams: false,
            arrived,
            unseen: Duration::ZERO,
            home,
            token,
            log_tail: 0,
            cold: Cold::No,
            cut,
        }
    }

    pub(crate) fn expires(&self) -> Instant {
        self.target.expires(self.arrived, self.head.until)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.target.deadline(self.arrived, self.unseen)
    }

    /// By how much more it may be late when its turn comes: half of what is left for its client. The queue that it was let into was as long
    /// as may be, and each guest in it ran a little shorter or longer than expected.
    pub(crate) fn leeway(&self) -> Duration {
        self.target
            .claim
            .deadline
            .map_or(Duration::ZERO, |given| given / 20)
    }

    /// Whether it need not wait any longer.
    pub(crate) fn is_over(&self, now: Instant) -> bool {
        self.expires() <= now || self.deadline().is_some_and(|deadline| deadline <= now)
    }
}

/// What a request came to.
#[derive(Debug)]
pub struct Answer {
    /// What ran.
    pub target: Arc<Target>,
    /// The front's name for the request.
    pub token: u64,
    /// The request.
    pub id: RequestId,
    /// What it came to.
    pub result: Result<Response, Failure>,
    /// How long each phase took.
    pub timing: Timing,
    /// What its sandbox was made from.
    pub start: Start,
    /// The sandbox's largest memory, in bytes.
    pub memory: u64,
    /// The length of the request's body; 0 if it came as a stream, whose bytes its front has counted.
    pub request_bytes: u64,
    /// The end of its log, as much of it as the invocation asked for.
    pub log_tail: Vec<u8>,
}

impl Answer {
    /// To a request that had no sandbox, or whose sandbox came to nothing.
    pub(crate) fn failed(
        target: Arc<Target>,
        (token, id): (u64, RequestId),
        failure: Failure,
        timing: Timing,
    ) -> Self {
        Self {
            target,
            token,
            id,
            result: Err(failure),
            timing,
            start: Start::None,
            memory: 0,
            request_bytes: 0,
            log_tail: Vec::new(),
        }
    }
}

/// A complete response.
#[derive(Debug, Default)]
pub struct Response {
    /// Status and headers.
    pub head: Option<ResponseHead>,
    /// The body, in pieces as they were written.
    pub body: smallvec::SmallVec<[Bytes; 1]>,
    /// What follows the body.
    pub trailers: Trailers,
}

/// A response that has begun and whose end is not here. Its [`Answer`] comes at the end, with a response that has nothing
/// in it.
#[derive(Debug)]
pub struct Opening {
    /// The front's name for the request.
    pub token: u64,
    /// The request.
    pub id: RequestId,
    /// Status and headers.
    pub head: ResponseHead,
    /// The body. A fault cuts it off.
    pub body: Receiver,
    /// How long it waited, and how long its sandbox took to be made; the rest is not known yet.
    pub queue: Duration,
    /// See `queue`.
    pub boot: Duration,
}

/// What a front is told of one of its requests.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are answers, and a box would be an allocation for each"
)]
pub(crate) enum Word {
    Opening(Box<Opening>),
    Answer(Answer),
    /// A flow of this connection can go on.
    Stirred(u64),
}

/// Why there is no response.
#[derive(Debug)]
pub enum Failure {
    /// The function's fault.
    Fault(Fault),
    /// The function gave up after it was told that its client has gone, or does not send its request to the end.
    Left(Fault),
    /// Overload.
    Refused(Refusal),
    /// The platform's fault.
    Platform(String),
}

/// Where a request's time went. Each phase ends where the next begins, and each boundary is a clock reading.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From its bytes being read to its sandbox being made, and while it waited between quanta.
    pub queue: Duration,
    /// Making the sandbox.
    pub boot: Duration,
    /// Its code, from its first instruction to its last, its own waits included.
    pub run: Duration,
    /// Its sandbox's time on a core, making it included, and that of its processes.
    pub cpu: Duration,
    /// When its code ended: the write phase begins.
    pub ended: Instant,
}

impl Timing {
    /// Of a request that never ran: all its time so far was queueing.
    pub fn unstarted(arrived: Instant, now: Instant) -> Self {
        let queue = now.saturating_duration_since(arrived);
        Self {
            queue,
            boot: Duration::ZERO,
            run: Duration::ZERO,
            cpu: Duration::ZERO,
            ended: now,
        }
    }
}

/// What the cores of a node share.
pub struct Shared {
    seats: Box<[Seat]>,
    loader: mpsc::Sender<Box<Invocation>>,
    outside: Outside,
    /// Which core is given the next request from outside.
    next: AtomicUsize,
    draining: AtomicBool,
    generation: AtomicU64,
    watch: Watch,
    /// Off the path of requests.
    tenancies: Mutex<HashMap<u32, Weak<Tenancy>>>,
}

struct Stirrer {
    shared: Arc<Shared>,
    core: CoreId,
    token: u64,
}

impl Wake for Stirrer {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(seat) = self.shared.seat(self.core) {
            seat.words.push(Word::Stirred(self.token));
            self.shared.call(self.core, seat);
        }
    }
}

/// One core, as the others see it.
pub(crate) struct Seat {
    pub(crate) bell: Bell<Eventfd>,
    pub(crate) words: SegQueue<Word>,
    pub(crate) woken: SegQueue<usize>,
    /// Requests whose image was loaded meanwhile.
    pub(crate) loaded: SegQueue<Box<Invocation>>,
    /// Requests from outside, yet to be admitted.
    pub(crate) submitted: SegQueue<Box<Invocation>>,
    pub(crate) stealer: Stealer<Box<Invocation>>,
    pub(crate) offer: Offer,
    pub(crate) guarded: Guarded,
    /// Another core has found no place for a sandbox: this one's warm ones are to give way.
    pub(crate) give_way: AtomicBool,
    /// How many events its core has found at its sockets. Each look writes it, others read it now and then.
    found: CachePadded<AtomicU64>,
}

impl Seat {
    /// Its core has found so many events more. Nobody else may say so.
    pub(crate) fn count_found(&self, events: usize) {
        let found = self.found.load(Ordering::Relaxed);
        self.found
            .store(found.wrapping_add(events as u64), Ordering::Relaxed);
    }

    /// Whether others have left something for this core.
    pub(crate) fn has_mail(&self) -> bool {
        !(self.words.is_empty()
            && self.loaded.is_empty()
            && self.submitted.is_empty()
            && self.woken.is_empty())
    }
}

impl Shared {
    pub(crate) fn new(
        stealers: impl IntoIterator<Item = Stealer<Box<Invocation>>>,
        watch: Watch,
    ) -> io::Result<Arc<Self>> {
        let seats = stealers
            .into_iter()
            .map(|stealer| {
                Ok(Seat {
                    bell: Bell::new(Eventfd::new()?),
                    words: SegQueue::new(),
                    woken: SegQueue::new(),
                    loaded: SegQueue::new(),
                    submitted: SegQueue::new(),
                    stealer,
                    offer: Offer::new(),
                    guarded: Guarded::new(),
                    give_way: AtomicBool::new(false),
                    found: CachePadded::default(),
                })
            })
            .collect::<io::Result<_>>()?;
        let (loader, requests) = mpsc::channel();
        let shared = Arc::new(Self {
            seats,
            loader,
            outside: Outside::default(),
            next: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            watch,
            tenancies: Mutex::default(),
        });
        let weak = Arc::downgrade(&shared);
        // Ends with the last sender, which is in `Shared`.
        thread::Builder::new()
            .name("loader".into())
            .spawn(move || load(&weak, &requests))?;
        Ok(shared)
    }

    /// Has a request run that no front has read, with `log_tail` bytes of its log's end in the answer. Each gets an answer, if
    /// only a refusal; `reply` is called with it on the core that it names, and must not block.
    pub fn submit(
        &self,
        target: Arc<Target>,
        head: Box<Head>,
        body: Bytes,
        log_tail: usize,
        reply: impl FnOnce(CoreId, Answer) + Send + 'static,
    ) {
        let token = self.outside.expect(Box::new(reply));
        let mut invocation = Box::new(Invocation::new(
            target,
            head,
            body,
            Instant::now(),
            OUTSIDE,
            token,
        ));
        invocation.log_tail = log_tail;
        let (core, seat) = self.any_seat();
        seat.submitted.push(invocation);
        self.call(core, seat);
    }

    /// What all functions of a tenant share.
    pub fn tenancy(&self, allowance: &Arc<Allowance>) -> Arc<Tenancy> {
        let mut tenancies = self.tenancies.lock();
        tenancies.retain(|_, tenancy| tenancy.strong_count() > 0);
        let known = tenancies.entry(allowance.party().index).or_default();
        known.upgrade().unwrap_or_else(|| {
            let new = Arc::new(Tenancy::new(allowance.clone()));
            *known = Arc::downgrade(&new);
            new
        })
    }

    /// There is mail for a core: wakes it, or asks the guest that holds it for it.
    pub(crate) fn call(&self, core: CoreId, seat: &Seat) {
        if !seat.bell.ring() {
            self.watch.ask(core, &seat.guarded);
        }
    }

    /// How many events all cores have found at their sockets since they began.
    pub fn found(&self) -> u64 {
        let found = self.seats.iter().map(|seat| seat.found.load(Ordering::Relaxed));
        found.fold(0, u64::wrapping_add)
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Wakes this core's front for one of its connections: [`crate::Front::stir`].
    pub fn stirrer(self: &Arc<Self>, core: CoreId, token: u64) -> Waker {
        Waker::from(Arc::new(Stirrer {
            shared: self.clone(),
            core,
            token,
        }))
    }

    fn any_seat(&self) -> (CoreId, &Seat) {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % self.seats.len();
        // There are as many as `assemble` was asked for, in 16 bits.
        (
            CoreId(u16::try_from(index).unwrap_or(u16::MAX)),
            &self.seats[index],
        )
    }

    pub(crate) fn outside(&self) -> &Outside {
        &self.outside
    }

    /// Sends a request to wait for its image. The channel holds no more than admission lets in.
    pub(crate) fn load(&self, invocation: Box<Invocation>) {
        // It fails only if the loader's thread is gone, which nothing ends while `self` lives.
        let _ = self.loader.send(invocation);
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.seats.len()
    }

    pub(crate) fn seat(&self, core: CoreId) -> Option<&Seat> {
        self.seats.get(usize::from(core.0))
    }

    pub(crate) fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// From now on nothing is admitted.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Whether [`Shared::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Routes have changed: each core looks for warm sandboxes of versions that were retired.
    pub fn retired_some(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
        self.wake_all();
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Makes one core go through a turn of its loop.
    pub fn wake(&self, core: CoreId) {
        if let Some(seat) = self.seat(core) {
            seat.bell.interrupt();
        }
    }

    /// Makes every core go through a turn of its loop.
    pub fn wake_all(&self) {
        for seat in &self.seats {
            seat.bell.interrupt();
        }
    }

    /// Asks the other cores to drop the sandboxes that they keep for reuse.
    pub(crate) fn ask_for_places(&self, asking: CoreId) {
        for (index, seat) in self.seats.iter().enumerate() {
            if index != usize::from(asking.0) && !seat.give_way.swap(true, Ordering::SeqCst) {
                seat.bell.interrupt();
            }
        }
    }

    pub(crate) fn wake_idle(&self, except: CoreId) {
        for (index, seat) in self.seats.iter().enumerate() {
            if index != usize::from(except.0) && seat.bell.is_waiting() && seat.bell.ring() {
                return;
            }
        }
    }

    pub(crate) fn steal(&self, thief: CoreId) -> Option<Box<Invocation>> {
        let own = usize::from(thief.0);
        for offset in 1..self.seats.len() {
            let victim = &self.seats[(own + offset) % self.seats.len()];
            while victim.offer.stands() {
                match victim.stealer.steal() {
                    Steal::Success(invocation) => return Some(invocation),
                    Steal::Empty => victim.offer.found_empty(|| victim.stealer.is_empty()),
                    Steal::Retry => {}
                }
            }
        }
        None
    }

    pub(crate) fn anything_to_steal(&self, thief: CoreId) -> bool {
        let own = usize::from(thief.0);
        self.seats
            .iter()
            .enumerate()
            .any(|(index, seat)| index != own && seat.offer.stands() && !seat.stealer.is_empty())
    }
}

/// Loads images for requests that found none, off the cores.
fn load(shared: &Weak<Shared>, requests: &mpsc::Receiver<Box<Invocation>>) {
    while let Ok(mut invocation) = requests.recv() {
        // A panic here would leave every later request without an answer.
        let loaded = panic::catch_unwind(AssertUnwindSafe(|| invocation.target.preload()));
        invocation.cold = match loaded {
            Ok(Ok(())) => Cold::Loaded,
            Ok(Err(reason)) => Cold::Failed(reason),
            Err(_) => Cold::Failed("the engine panicked while it loaded the code".to_owned()),
        };
        let Some(shared) = shared.upgrade() else { return };
        let home = invocation.home;
        let (core, seat) = shared
            .seat(home)
            .map_or_else(|| shared.any_seat(), |seat| (home, seat));
        seat.loaded.push(invocation);
        shared.call(core, seat);
    }
}
