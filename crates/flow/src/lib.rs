//! A body on its way between two threads: between a connection and a sandbox on another core, or between a sandbox and a service.
//! A bounded queue of pieces with one sender and one receiver, each of which is woken when the other has got on.

#![forbid(unsafe_code)]

use bytes::Bytes;
use contract::{BodyError, BodyStream, Trailers};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    fmt, mem,
    sync::Arc,
    task::{Poll, Waker},
};

/// Bytes that wait in a flow before its sender is asked to wait. One piece may go beyond.
pub const WINDOW: usize = 256 << 10;

struct Flow {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    end: Option<Result<(), BodyError>>,
    trailers: Trailers,
    sender: Option<Waker>,
    receiver: Option<Waker>,
    /// The receiver has gone.
    unread: bool,
}

/// Where pieces go in. Dropping it without [`Sender::end`] cuts the body off.
pub struct Sender(Arc<Mutex<Flow>>);

/// Where they come out. Dropping it tells the sender that nobody wants more.
pub struct Receiver(Arc<Mutex<Flow>>);

/// Both ends of an empty flow.
pub fn flow() -> (Sender, Receiver) {
    let flow = Arc::new(Mutex::new(Flow {
        pieces: VecDeque::new(),
        bytes: 0,
        end: None,
        trailers: Trailers::new(),
        sender: None,
        receiver: None,
        unread: false,
    }));
    (Sender(flow.clone()), Receiver(flow))
}

/// Remembers whom to wake, without counting anew for one that is remembered already.
fn remember(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(known) if known.will_wake(waker) => {}
        _ => *slot = Some(waker.clone()),
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Sender {
    /// Adds a piece, whatever waits already.
    pub fn send(&self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        let mut flow = self.0.lock();
        if flow.end.is_none() && !flow.unread {
            flow.bytes += piece.len();
            flow.pieces.push_back(piece);
            let waker = flow.receiver.take();
            drop(flow);
            wake(waker);
        }
    }

    /// How many bytes are welcome. While it is pending, `waker` is woken once there is room for half a [`WINDOW`].
    pub fn poll_room(&self, waker: &Waker) -> Poll<Result<usize, BodyError>> {
        let mut flow = self.0.lock();
        if flow.unread {
            return Poll::Ready(Err(BodyError::Gone));
        }
        if flow.bytes < WINDOW {
            return Poll::Ready(Ok(WINDOW - flow.bytes));
        }
        remember(&mut flow.sender, waker);
        Poll::Pending
    }

    /// Nothing more comes but these.
    pub fn end(self, trailers: Trailers) {
        self.conclude(Ok(()), trailers);
    }

    /// Nothing more comes, though it should.
    pub fn fail(self, error: BodyError) {
        self.conclude(Err(error), Trailers::new());
    }

    fn conclude(&self, end: Result<(), BodyError>, trailers: Trailers) {
        let mut flow = self.0.lock();
        if flow.end.is_none() {
            flow.end = Some(end);
            flow.trailers = trailers;
            let waker = flow.receiver.take();
            drop(flow);
            wake(waker);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.conclude(Err(BodyError::Gone), Trailers::new());
    }
}

impl BodyStream for Receiver {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        let mut flow = self.0.lock();
        if let Some(piece) = flow.pieces.pop_front() {
            flow.bytes -= piece.len();
            let sender = if flow.bytes <= WINDOW / 2 {
                flow.sender.take()
            } else {
                None
            };
            drop(flow);
            wake(sender);
            return Poll::Ready(Ok(Some(piece)));
        }
        match flow.end {
            Some(Ok(())) => Poll::Ready(Ok(None)),
            Some(Err(error)) => Poll::Ready(Err(error)),
            None => {
                remember(&mut flow.receiver, waker);
                Poll::Pending
            }
        }
    }

    fn trailers(&mut self) -> Trailers {
        let mut flow = self.0.lock();
        if flow.pieces.is_empty() {
            mem::take(&mut flow.trailers)
        } else {
            Trailers::new()
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let mut flow = self.0.lock();
        flow.unread = true;
        flow.pieces.clear();
        flow.bytes = 0;
        let waker = flow.sender.take();
        drop(flow);
        wake(waker);
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        task::Wake,
        thread,
    };

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (count.clone(), Waker::from(count))
    }

    #[test]
    fn a_full_flow_wakes_its_sender_when_half_of_it_is_gone() {
        let (sender, mut receiver) = flow();
        let (woken, waker) = counted();
        for _ in 0..4 {
            assert!(sender.poll_room(&waker).is_ready());
            sender.send(Bytes::from(vec![7; WINDOW / 4]));
        }
        assert!(sender.poll_room(&waker).is_pending());
        assert!(receiver.poll_next(&waker).is_ready());
        assert_eq!(woken.0.load(Ordering::SeqCst), 0, "three quarters wait");
        assert!(receiver.poll_next(&waker).is_ready());
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(sender.poll_room(&waker), Poll::Ready(Ok(WINDOW / 2)));
    }

    #[test]
    fn an_end_comes_after_all_pieces_and_stays() {
        let (sender, mut receiver) = flow();
        let (woken, waker) = counted();
        assert!(receiver.poll_next(&waker).is_pending());
        sender.send(Bytes::from_static(b"one"));
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        sender.end(vec![("checksum".into(), Bytes::from_static(b"1"))]);
        assert!(receiver.trailers().is_empty(), "they come after the end");
        assert_eq!(
            receiver.poll_next(&waker),
            Poll::Ready(Ok(Some(Bytes::from_static(b"one"))))
        );
        for _ in 0..2 {
            assert_eq!(receiver.poll_next(&waker), Poll::Ready(Ok(None)));
        }
        assert_eq!(receiver.trailers().len(), 1);
        assert!(receiver.trailers().is_empty());
    }

    #[test]
    fn who_is_left_alone_learns_of_it() {
        let (waker_count, waker) = counted();
        let (sender, mut receiver) = flow();
        sender.send(Bytes::from_static(b"one"));
        drop(sender);
        assert!(matches!(receiver.poll_next(&waker), Poll::Ready(Ok(Some(_)))));
        assert_eq!(receiver.poll_next(&waker), Poll::Ready(Err(BodyError::Gone)));
        let (sender, receiver) = flow();
        sender.send(Bytes::from(vec![0; WINDOW]));
        assert!(sender.poll_room(&waker).is_pending());
        drop(receiver);
        assert_eq!(waker_count.0.load(Ordering::SeqCst), 1);
        assert_eq!(sender.poll_room(&waker), Poll::Ready(Err(BodyError::Gone)));
    }

    #[test]
    fn every_byte_comes_through_between_threads() {
        struct Unpark(thread::Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        const PIECES: u32 = 20_000;
        let (sender, mut receiver) = flow();
        let reading = thread::spawn(move || {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            let mut expected = 0;
            loop {
                match receiver.poll_next(&waker) {
                    Poll::Pending => thread::park(),
                    Poll::Ready(Ok(Some(piece))) => {
                        assert_eq!(piece[..4], u32::to_le_bytes(expected));
                        expected += 1;
                    }
                    Poll::Ready(end) => return (end, expected),
                }
            }
        });
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        for number in 0..PIECES {
            while sender.poll_room(&waker).is_pending() {
                thread::park();
            }
            let mut piece = vec![0; 5_000];
            piece[..4].copy_from_slice(&number.to_le_bytes());
            sender.send(piece.into());
        }
        sender.end(Trailers::new());
        assert_eq!(reading.join().unwrap(), (Ok(None), PIECES));
    }
}
