//! A guest's side: calls from any of its threads, each of which waits for its own.

use crate::{LARGEST_HEAD, Talk, wire::Id};
use ring::Bell;
use rustix::net::{Shutdown, shutdown};
use std::{
    fmt, process,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

/// A guest's end of the channel to the backend.
///
/// It is of the process that has opened it: a fork of that has nothing of it, and whatever is asked of it there fails as if the backend had gone.
pub struct Link {
    bell: Bell,
    process: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    talk: Talk,
    /// Whether a thread waits at the bell, for all of them.
    waiting: bool,
}

/// Why a call comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// There is nobody at the other end any more, or nothing that keeps to the rules. Nobody was asked.
    Gone,
    /// The same since the call was made: it may have been done or not.
    Lost,
    /// The other end says why.
    Failed(Vec<u8>),
    /// What is asked is larger than a call may be.
    TooLarge,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the backend has gone"),
            Self::Lost => f.write_str("the backend has gone since the call was made"),
            Self::Failed(reason) => f.write_str(&String::from_utf8_lossy(reason)),
            Self::TooLarge => write!(f, "the head of a call has more than {LARGEST_HEAD} bytes"),
        }
    }
}

impl std::error::Error for Broken {}

/// The head of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the service says.
    pub head: Vec<u8>,
    /// Bytes of the body, if they are known.
    pub length: Option<u64>,
}

/// A body that stays where it came.
#[derive(Debug)]
pub struct Kept {
    /// It lies in this, after [`BEFORE`](crate::BEFORE) bytes, and before [`BEHIND`](crate::BEHIND) at least. It begins at a multiple of [`STEP`](crate::STEP).
    pub memory: ring::Kept,
    /// Bytes of the body.
    pub length: usize,
}

/// A call under way. Dropping it gives up what has not been read of its reply.
pub struct CallHandle {
    link: Arc<Link>,
    id: Id,
}

impl Link {
    /// By its bell, with which the memory comes.
    ///
    /// # Errors
    /// There is no channel.
    pub fn open(bell: Bell) -> std::io::Result<Arc<Self>> {
        let file = bell.take()?.ok_or(std::io::ErrorKind::ConnectionReset)?;
        Ok(Arc::new(Self {
            bell,
            process: process::id(),
            state: Mutex::new(State {
                talk: Talk::open(file)?,
                waiting: false,
            }),
            changed: Condvar::new(),
        }))
    }

    /// Whether nobody is there any more, as far as is known.
    pub fn is_gone(&self) -> bool {
        !self.is_here() || self.lock().talk.is_gone()
    }

    /// Ends it, whatever calls there are: the other end hears no more of it, and nor does any fork of this process.
    pub fn close(&self) {
        if self.is_here() {
            self.lock().talk.end();
            // What is closed by the other end already is closed.
            let _ = shutdown(&self.bell, Shutdown::Both);
            self.changed.notify_all();
        }
    }

    fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// Begins a call whose body has so many bytes, of which these are the first: all of them, or as many as there are at hand. Says how many were sent;
    /// the others are to follow by [`CallHandle::send`].
    ///
    /// # Errors
    /// See [`Broken`]. What is `Gone` was not heard by anybody.
    pub fn call(
        self: &Arc<Self>,
        head: &[u8],
        body: &[u8],
        length: u64,
    ) -> Result<(CallHandle, usize), Broken> {
        // One that has gone without a word would be told, and only be missed afterwards.
        if self.is_here() && self.bell.is_gone().unwrap_or(true) {
            self.lock().talk.end();
        }
        let id = self.wait(|talk| talk.begin(head))?;
        let call = CallHandle {
            link: self.clone(),
            id,
        };
        let head = self.wait(|talk| talk.put_head(id, head))?;
        let first = self.wait(|talk| talk.put_first(id, body))?;
        call.wait(|talk| Some(talk.call(id, head, first, length)))?;
        Ok((call, first.length as usize))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked was in no call of these.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until it can be done.
    fn wait<T>(&self, mut attempt: impl FnMut(&mut Talk) -> Option<Result<T, Broken>>) -> Result<T, Broken> {
        if !self.is_here() {
            return Err(Broken::Gone);
        }
        let mut state = self.lock();
        loop {
            state.talk.hear();
            let done = attempt(&mut state.talk);
            // Of what is not done yet, the other end may have to hear a part first.
            if state.talk.must_ring() {
                self.bell.ring().map_err(|_| Broken::Gone)?;
            }
            if let Some(done) = done {
                return done;
            }
            if state.talk.is_gone() {
                self.changed.notify_all();
                return Err(Broken::Gone);
            }
            if state.waiting {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            if !state.talk.sleep() {
                continue;
            }
            state.waiting = true;
            drop(state);
            let rung = self.bell.wait();
            state = self.lock();
            state.waiting = false;
            if !matches!(rung, Ok(true)) {
                // What it said before is heard before.
                state.talk.hear();
                state.talk.end();
            }
            self.changed.notify_all();
        }
    }
}

impl CallHandle {
    /// Sends more of the body: how many bytes of it.
    ///
    /// # Errors
    /// See [`Broken`]. A reply that is there before the body's end ends the sending: 0 is sent.
    pub fn send(&self, body: &[u8]) -> Result<usize, Broken> {
        self.wait(|talk| talk.send(self.id, body))
    }

    /// Waits for the head of the reply, once.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn head(&self) -> Result<Head, Broken> {
        self.wait(|talk| talk.head(self.id))
    }

    /// Copies the next bytes of the reply's body: how many, 0 at its end.
    ///
    /// # Errors
    /// See [`Broken`]: the body breaks off.
    pub fn read(&self, to: &mut [u8]) -> Result<usize, Broken> {
        if to.is_empty() {
            return Ok(0);
        }
        self.wait(|talk| talk.read(self.id, to))
    }

    /// Waits for all of the reply's body, of which nothing was read and which has at most so many bytes, and keeps it where it came: `None` if it is to be read. It
    /// is shorter where it breaks off, which reading on tells.
    ///
    /// # Errors
    /// See [`Broken`]: there is nothing of it.
    pub fn keep(&self, most: usize) -> Result<Option<Kept>, Broken> {
        self.wait(|talk| talk.keep(self.id, most))
    }

    fn wait<T>(&self, attempt: impl FnMut(&mut Talk) -> Option<Result<T, Broken>>) -> Result<T, Broken> {
        let done = self.link.wait(attempt);
        done.map_err(|broken| match broken {
            Broken::Gone => Broken::Lost,
            other => other,
        })
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if !self.link.is_here() {
            return;
        }
        let mut state = self.link.lock();
        state.talk.drop_call(self.id);
        if state.talk.must_ring() {
            // Nobody is there to hear it, then.
            let _ = self.link.bell.ring();
        }
        self.link.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BEFORE, SLOTS, STEP, Span, Tell};
    use ring::{HostEnd, Region, bells};
    use std::thread;

    #[test]
    fn who_waits_for_more_to_keep_is_heard_before() {
        let (ours, theirs) = bells().unwrap();
        let mut host = HostEnd::new(Region::new(1 << 20).unwrap(), SLOTS).unwrap();
        ours.give(host.shared().file()).unwrap();
        let link = Link::open(theirs).unwrap();
        let (call, _) = link.call(b"{}", b"", 0).unwrap();
        while host.receive().unwrap().is_some() {}
        let id = 0;
        let start = host.layout().bulk().end as u64 / 2 / STEP * STEP + STEP + BEFORE;
        let head = Tell::Head {
            id,
            head: Span::default(),
            length: Some(20),
            row: Some(start),
        };
        let piece = |at, last| {
            let body = Span {
                offset: start + at,
                length: 10,
            };
            Tell::Piece { id, body, last }
        };
        for tell in [head, piece(0, false)] {
            if host.send(tell.message()).unwrap().must_ring {
                ours.ring().unwrap();
            }
        }
        assert!(host.sleep().unwrap());
        let keeping = thread::spawn(move || call.keep(20).unwrap().unwrap().length);
        // It sends the rest once it hears that there is room.
        assert!(ours.wait().unwrap());
        assert!(host.receive().unwrap().is_some());
        if host.send(piece(10, true).message()).unwrap().must_ring {
            ours.ring().unwrap();
        }
        assert_eq!(keeping.join().unwrap(), 20);
    }
}
