//! Where a sandbox's words go: the response into a slot that the core reads at the end, or into a flow if the end is far;
//! the rest to the log.

use crate::{Response, Target};
use bytes::Bytes;
use contract::{Body, BodyError, BodyStream, RequestId, ResponseHead, ResponseSink, Trailers};
use flow::{Receiver, Sender};
use parking_lot::Mutex;
use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
};
use telemetry::logs::{Lines, Stream};

/// A response is kept until its end if its body is not longer than this, in bytes: it then goes out in one write, with its
/// length and its whole timing.
const KEPT: usize = 64 << 10;

/// Both ends of a response that is being collected on one core. The lock is never contended: `ResponseSink` must be
/// `Send` because engines keep it where `Send` is asked for, but it stays on its thread.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    response: Response,
    log_tail: Vec<u8>,
    /// The client can be sent the response in pieces.
    streams: bool,
    /// Bytes in `response`.
    kept: usize,
    /// What is kept should not wait for the rest.
    pressing: bool,
    /// The way of a response that has begun to go out.
    flow: Option<Sender>,
    /// The sandbox was told that its client has gone.
    left: bool,
    /// It was told that its request will not come to its end: see [`watch`].
    cut: Option<Arc<AtomicBool>>,
}

/// What is left of a response at its end.
pub(crate) struct Rest {
    pub(crate) response: Response,
    pub(crate) log_tail: Vec<u8>,
    /// Its beginning has gone out already: here is how to end it.
    pub(crate) flow: Option<Sender>,
    /// Its sandbox was told that its client has gone, or does not send its request to the end.
    pub(crate) left: bool,
}

impl Slot {
    pub(crate) fn new(streams: bool, cut: Option<Arc<AtomicBool>>) -> Self {
        Self(Arc::new(Mutex::new(Collected {
            streams,
            cut,
            ..Collected::default()
        })))
    }

    /// The response so far, and the end of the log.
    pub(crate) fn take(&self) -> Rest {
        let Collected {
            response,
            log_tail,
            flow,
            left,
            cut,
            ..
        } = mem::take(&mut *self.0.lock());
        Rest {
            response,
            log_tail,
            flow,
            left: left || cut.is_some_and(|cut| cut.load(Ordering::Relaxed)),
        }
    }

    /// Its sandbox waits, or others have their turn: if a response has begun that can go out in pieces, this is its head, and
    /// where its body comes from.
    pub(crate) fn open(&self, waits: bool) -> Option<(ResponseHead, Receiver)> {
        let mut collected = self.0.lock();
        let due = collected.pressing || (waits && collected.kept > 0);
        if !(collected.streams && due && collected.flow.is_none()) {
            return None;
        }
        let head = collected.response.head.take()?;
        let (sender, receiver) = flow::flow();
        mem::take(&mut collected.response.body)
            .into_iter()
            .for_each(|piece| sender.send(piece));
        collected.flow = Some(sender);
        Some((head, receiver))
    }
}

/// A request's body of which it is noted whether its reader was told that it will not come to its end.
struct Watched {
    stream: Box<dyn BodyStream>,
    left: Arc<AtomicBool>,
}

/// Has it noted of a body, if it could happen.
pub(crate) fn watch(body: Body) -> (Body, Option<Arc<AtomicBool>>) {
    match body {
        Body::Whole(_) => (body, None),
        Body::Stream(stream) => {
            let left = Arc::new(AtomicBool::new(false));
            let watched = Watched {
                stream,
                left: left.clone(),
            };
            (Body::Stream(Box::new(watched)), Some(left))
        }
    }
}

impl BodyStream for Watched {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let next = self.stream.poll_next(waker);
        if matches!(next, Poll::Ready(Err(_))) {
            self.left.store(true, Ordering::Relaxed);
        }
        next
    }

    fn trailers(&mut self) -> Trailers {
        self.stream.trailers()
    }
}

pub(crate) struct Sink {
    slot: Slot,
    target: Arc<Target>,
    request: RequestId,
    /// How much of the log's end is kept.
    log_tail: usize,
    lines: Option<Lines>,
}

impl Sink {
    pub(crate) fn new(slot: Slot, target: Arc<Target>, request: RequestId, log_tail: usize) -> Self {
        Self {
            slot,
            target,
            request,
            log_tail,
            lines: None,
        }
    }
}

impl ResponseSink for Sink {
    fn head(&mut self, head: ResponseHead) {
        self.slot.0.lock().response.head = Some(head);
    }

    fn body(&mut self, chunk: Bytes) {
        let mut collected = self.slot.0.lock();
        match &collected.flow {
            Some(flow) => flow.send(chunk),
            None if chunk.is_empty() => {}
            None => {
                collected.kept += chunk.len();
                collected.response.body.push(chunk);
            }
        }
    }

    fn trailers(&mut self, trailers: Trailers) {
        self.slot.0.lock().response.trailers = trailers;
    }

    fn poll_room(&mut self, waker: &Waker) -> Poll<Result<usize, BodyError>> {
        let mut collected = self.slot.0.lock();
        match &collected.flow {
            Some(flow) => {
                let room = flow.poll_room(waker);
                collected.left |= matches!(room, Poll::Ready(Err(_)));
                room
            }
            None if !collected.streams => Poll::Ready(Ok(usize::MAX)),
            None if collected.kept < KEPT => Poll::Ready(Ok(KEPT - collected.kept)),
            None => {
                // The core opens the response before it parks the sandbox, and runs it again at once.
                collected.pressing = true;
                Poll::Pending
            }
        }
    }

    fn flush(&mut self) {
        self.slot.0.lock().pressing = true;
    }

    fn log(&mut self, bytes: &[u8]) {
        let Self {
            target,
            request,
            lines,
            ..
        } = self;
        lines
            .get_or_insert_with(|| target.log.lines(*request, Stream::Stderr))
            .write(bytes);
        if self.log_tail > 0 {
            let tail = &mut self.slot.0.lock().log_tail;
            tail.extend_from_slice(&bytes[bytes.len().saturating_sub(self.log_tail)..]);
            let over = tail.len().saturating_sub(self.log_tail);
            tail.drain(..over);
        }
    }

    fn note(&mut self, line: &str) {
        self.target.log.platform(Some(self.request), line);
    }
}
