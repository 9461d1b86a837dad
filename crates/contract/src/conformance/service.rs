//! The suite of [`crate::Service`] and [`crate::Session`].
//!
//! What a service does is its own; what all of them owe to a sandbox is here. So the suite is given a service together with the
//! other side that it speaks to: a [`Peer`], which knows how to ask for each of a few replies and counts who waits for one.

use crate::{
    Body, BodyError, BodyStream, Call, CallError, Caller, Calling, Grant, Reply, Service, Session, Trailers,
};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// A service, and the other side that it speaks to. What is asked for is only ever asked with `Call`s that these methods fill in.
pub trait Peer: Send + Sync {
    /// The service. Each call gives the same one.
    fn service(&self) -> Arc<dyn Service>;
    /// Lets the grant open the other side.
    fn open(&self, grant: &mut Grant);
    /// Lets the grant open something that is not the other side.
    fn open_elsewhere(&self, grant: &mut Grant);
    /// Has the call ask for one of these.
    fn ask(&self, call: &mut Call, what: Asked);
    /// Whether this is how it denies what was not granted: with an error, unless what it speaks has a reply that says so.
    fn is_denied(&self, answer: &Result<Reply, CallError>) -> bool {
        matches!(answer, Err(CallError::Denied(_)))
    }
    /// How many requests have reached the other side, whatever became of them.
    fn reached(&self) -> usize;
    /// How many requests are under way there: neither answered to the end nor given up.
    fn under_way(&self) -> usize;
}

/// What the other side is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// A reply whose body is that of the call, in any pieces.
    Echo,
    /// A reply that never begins.
    Silence,
    /// A reply that begins, with a body of which one byte comes and nothing else.
    Stall,
    /// A reply whose body never ends.
    Flood,
    /// A reply whose body breaks off after at least one byte.
    Break,
}

/// Every part of the suite.
pub fn run(peer: &dyn Peer) {
    what_is_not_granted_is_denied(peer);
    sessions_do_not_share_their_grants(peer);
    what_is_sent_comes_back(peer);
    bodies_end_once_and_for_all(peer);
    a_body_that_breaks_off_is_no_whole_one(peer);
    beginning_a_call_waits_for_nothing(peer);
    the_last_waker_is_woken(peer);
    calls_do_not_wait_for_each_other(peer);
    whoever_gives_up_is_not_waited_for(peer);
    patience_ends(peer);
    a_pause_ends(peer);
}

/// Longer than anything here takes: a test that waits so long has failed.
const WATCHDOG: Duration = Duration::from_secs(60);

fn grant(open: impl FnOnce(&mut Grant)) -> Grant {
    let function = "suite.f".parse().unwrap_or_else(|error| panic!("{error}"));
    let mut grant = Grant::nothing(function);
    open(&mut grant);
    grant
}

fn session(peer: &dyn Peer) -> Arc<dyn Session> {
    let bound = peer.service().bind(&grant(|grant| peer.open(grant)));
    bound.unwrap_or_else(|| panic!("what is granted is bound"))
}

fn call(peer: &dyn Peer, what: Asked) -> Call {
    let mut call = Call {
        operation: String::new(),
        target: String::new(),
        parameters: Vec::new(),
        body: Body::Whole(Bytes::new()),
        patience: None,
        pause: None,
        caller: Caller::default(),
    };
    peer.ask(&mut call, what);
    call
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Asks until there is an answer; asks again only when woken.
fn wait<T>(what: &str, mut poll: impl FnMut(&Waker) -> Poll<T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let deadline = Instant::now() + WATCHDOG;
    loop {
        if let Poll::Ready(answer) = poll(&waker) {
            return answer;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{what}: nobody is woken");
        thread::park_timeout(left);
    }
}

fn answer(calling: &mut Calling) -> Result<Reply, CallError> {
    wait("a call", |waker| {
        calling.as_mut().poll(&mut Context::from_waker(waker))
    })
}

fn ask(session: &dyn Session, call: Call) -> Reply {
    answer(&mut session.call(call)).unwrap_or_else(|error| panic!("the call failed: {error}"))
}

fn stream(body: Body) -> Box<dyn BodyStream> {
    match body {
        Body::Whole(bytes) => Box::new(Pieces([bytes].into())),
        Body::Stream(stream) => stream,
    }
}

/// The next piece of a body, which is never an empty one.
fn next(body: &mut dyn BodyStream) -> Result<Option<Bytes>, BodyError> {
    let piece = wait("a body", |waker| body.poll_next(waker));
    assert!(
        !matches!(&piece, Ok(Some(piece)) if piece.is_empty()),
        "pieces are not empty"
    );
    piece
}

fn read(body: Body) -> Result<Vec<u8>, BodyError> {
    let (mut body, mut bytes) = (stream(body), Vec::new());
    while let Some(piece) = next(&mut *body)? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// Asks for a condition until it holds.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + WATCHDOG;
    while !condition() {
        assert!(Instant::now() < deadline, "it never came to be that {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A body in pieces, each of which must be waited for: the waker is woken from another thread.
struct Pieces(VecDeque<Bytes>);

struct Slowly {
    pieces: Pieces,
    is_asked: bool,
    is_here: Arc<AtomicBool>,
}

impl Slowly {
    fn new(pieces: VecDeque<Bytes>) -> Self {
        Self {
            pieces: Pieces(pieces),
            is_asked: false,
            is_here: Arc::default(),
        }
    }
}

impl BodyStream for Pieces {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        Poll::Ready(Ok(self.0.pop_front()))
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

impl BodyStream for Slowly {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        if !self.is_asked {
            self.is_asked = true;
            let (waker, is_here) = (waker.clone(), self.is_here.clone());
            thread::spawn(move || {
                is_here.store(true, SeqCst);
                waker.wake();
            });
            return Poll::Pending;
        }
        if !self.is_here.swap(false, SeqCst) {
            // Whoever asks early asks again.
            waker.wake_by_ref();
            return Poll::Pending;
        }
        self.is_asked = false;
        self.pieces.poll_next(waker)
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

fn noise(length: usize) -> Bytes {
    (0..length)
        .map(|i| ((i * 31) >> 3) as u8)
        .collect::<Vec<_>>()
        .into()
}

fn what_is_not_granted_is_denied(peer: &dyn Peer) {
    let service = peer.service();
    assert!(!service.name().is_empty());
    assert_eq!(service.name(), peer.service().name(), "a service keeps its name");
    assert!(
        service.bind(&grant(|_| ())).is_none(),
        "nothing is bound where nothing is granted"
    );
    let elsewhere = service.bind(&grant(|grant| peer.open_elsewhere(grant)));
    let elsewhere = elsewhere.unwrap_or_else(|| panic!("what is granted is bound"));
    let before = peer.reached();
    let denied = answer(&mut elsewhere.call(call(peer, Asked::Echo)));
    assert!(peer.is_denied(&denied), "{denied:?}");
    assert_eq!(peer.reached(), before, "nothing of it leaves the node");
}

fn sessions_do_not_share_their_grants(peer: &dyn Peer) {
    let (open, service) = (session(peer), peer.service());
    let elsewhere = service.bind(&grant(|grant| peer.open_elsewhere(grant)));
    let elsewhere = elsewhere.unwrap_or_else(|| panic!("what is granted is bound"));
    for _ in 0..3 {
        ask(&*open, call(peer, Asked::Echo));
        let denied = answer(&mut elsewhere.call(call(peer, Asked::Echo)));
        assert!(peer.is_denied(&denied), "{denied:?}");
    }
}

fn what_is_sent_comes_back(peer: &dyn Peer) {
    let session = session(peer);
    for length in [0, 1, 1000, 3 << 20] {
        let bytes = noise(length);
        let whole = Call {
            body: Body::Whole(bytes.clone()),
            ..call(peer, Asked::Echo)
        };
        let reply = ask(&*session, whole);
        assert!((100..1000).contains(&reply.head.status));
        assert_eq!(
            read(reply.body).as_deref(),
            Ok(&bytes[..]),
            "{length} bytes, whole"
        );

        let pieces = bytes.chunks(200_000).map(Bytes::copy_from_slice).collect();
        let streamed = Call {
            body: Body::Stream(Box::new(Slowly::new(pieces))),
            ..call(peer, Asked::Echo)
        };
        let reply = ask(&*session, streamed);
        assert_eq!(
            read(reply.body).as_deref(),
            Ok(&bytes[..]),
            "{length} bytes, in pieces"
        );
    }
    eventually("nothing is under way", || peer.under_way() == 0);
}

fn bodies_end_once_and_for_all(peer: &dyn Peer) {
    let session = session(peer);
    let reply = ask(
        &*session,
        Call {
            body: Body::Whole(noise(10)),
            ..call(peer, Asked::Echo)
        },
    );
    let mut body = stream(reply.body);
    while next(&mut *body) != Ok(None) {}
    for _ in 0..3 {
        assert_eq!(next(&mut *body), Ok(None), "the end stays the end");
    }
}

fn a_body_that_breaks_off_is_no_whole_one(peer: &dyn Peer) {
    let session = session(peer);
    let mut body = stream(ask(&*session, call(peer, Asked::Break)).body);
    let error = loop {
        match next(&mut *body) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a body that broke off ended as if it were whole"),
            Err(error) => break error,
        }
    };
    for _ in 0..3 {
        assert_eq!(next(&mut *body), Err(error), "the error stays the same");
    }
    assert!(body.trailers().is_empty(), "nothing follows what has no end");
}

fn beginning_a_call_waits_for_nothing(peer: &dyn Peer) {
    let session = session(peer);
    // Had one waited for its reply, this would not go on.
    let silent: Vec<_> = (0..10)
        .map(|_| session.call(call(peer, Asked::Silence)))
        .collect();
    drop(silent);
    eventually("all were given up", || peer.under_way() == 0);
}

fn the_last_waker_is_woken(peer: &dyn Peer) {
    let session = session(peer);
    let mut calling = session.call(Call {
        body: Body::Stream(Box::new(Slowly::new([noise(10)].into()))),
        ..call(peer, Asked::Echo)
    });
    // It may be ready at once, on a machine that is fast enough.
    let begun = calling.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let reply = match begun {
        Poll::Ready(reply) => reply,
        // From another thread, with a waker of its own.
        Poll::Pending => thread::scope(|scope| {
            let waiting = scope.spawn(move || answer(&mut calling));
            waiting.join().unwrap_or_else(|_| panic!("nobody was woken"))
        }),
    };
    let reply = reply.unwrap_or_else(|error| panic!("the call failed: {error}"));
    assert_eq!(read(reply.body).as_deref(), Ok(&noise(10)[..]));
}

fn calls_do_not_wait_for_each_other(peer: &dyn Peer) {
    let session = session(peer);
    let silent = session.call(call(peer, Asked::Silence));
    eventually("it is under way", || peer.under_way() == 1);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for length in 0..20 {
                    let call = Call {
                        body: Body::Whole(noise(length)),
                        ..call(peer, Asked::Echo)
                    };
                    let reply = ask(&*session, call);
                    assert_eq!(read(reply.body).as_deref(), Ok(&noise(length)[..]));
                }
            });
        }
    });
    drop(silent);
    eventually("it was given up", || peer.under_way() == 0);
}

fn whoever_gives_up_is_not_waited_for(peer: &dyn Peer) {
    let session = session(peer);
    let mut calling = session.call(call(peer, Asked::Silence));
    let nobody = &mut Context::from_waker(Waker::noop());
    assert!(calling.as_mut().poll(nobody).is_pending());
    eventually("it is under way", || peer.under_way() == 1);
    drop(calling);
    eventually("the other side learns that nobody waits", || {
        peer.under_way() == 0
    });

    for what in [Asked::Stall, Asked::Flood] {
        let mut body = stream(ask(&*session, call(peer, what)).body);
        assert!(
            matches!(next(&mut *body), Ok(Some(_))),
            "{what:?} has a beginning"
        );
        assert_eq!(peer.under_way(), 1);
        drop(body);
        eventually("the other side learns that nobody reads", || {
            peer.under_way() == 0
        });
    }
}

fn patience_ends(peer: &dyn Peer) {
    let session = session(peer);
    let hasty = Call {
        patience: Some(Duration::from_millis(20)),
        ..call(peer, Asked::Silence)
    };
    let late = answer(&mut session.call(hasty));
    assert!(matches!(late, Err(CallError::Timeout(_))), "{late:?}");
    eventually("it was given up", || peer.under_way() == 0);
    // It is about the beginning of a reply, not about the rest.
    let patient = Call {
        patience: Some(WATCHDOG),
        body: Body::Whole(noise(100)),
        ..call(peer, Asked::Echo)
    };
    assert_eq!(read(ask(&*session, patient).body).as_deref(), Ok(&noise(100)[..]));
}

fn a_pause_ends(peer: &dyn Peer) {
    let session = session(peer);
    let hasty = Call {
        pause: Some(Duration::from_millis(20)),
        ..call(peer, Asked::Stall)
    };
    let mut body = stream(ask(&*session, hasty).body);
    let error = loop {
        match next(&mut *body) {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(error, Err(BodyError::Slow));
    assert_eq!(next(&mut *body), Err(BodyError::Slow), "the error stays the same");
    drop(body);
    eventually("it was given up", || peer.under_way() == 0);
    // What keeps coming is no pause, however long nobody asks for it.
    let patient = Call {
        pause: Some(WATCHDOG),
        body: Body::Whole(noise(1 << 20)),
        ..call(peer, Asked::Echo)
    };
    assert_eq!(
        read(ask(&*session, patient).body).as_deref(),
        Ok(&noise(1 << 20)[..])
    );
}
