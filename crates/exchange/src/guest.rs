//! A guest's side: calls from any of its threads, each of which waits for its own.

use crate::{Ask, CALL_PIECE, LARGEST_HEAD, MOST_CALLS, Room, Span, Tell, wire::Id};
use ring::{Bell, GuestEnd, channel::Place};
use rustix::net::{Shutdown, shutdown};
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    ops::Range,
    process,
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
    end: GuestEnd,
    room: Room,
    calls: HashMap<Id, Pending>,
    next: Id,
    /// Whether a thread waits at the bell, for all of them.
    waiting: bool,
    gone: bool,
}

#[derive(Default)]
struct Pending {
    /// Given to the host until it is said to be read.
    places: Vec<Range<u64>>,
    head: Option<(Span, Option<u64>)>,
    pieces: VecDeque<Span>,
    /// Of the first piece, what was read.
    read: u64,
    last: bool,
    failed: Option<Vec<u8>>,
    /// Nobody waits for it, but the host has not said its last word yet, and may be reading.
    dropped: bool,
}

/// What of a call is copied: what it begins with leaves some room to those that have begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Head,
    First,
    /// Of a body, once the host has taken what came before.
    Next,
}

/// Why a call comes to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// There is nobody at the other end any more, or nothing that keeps to the rules.
    Gone,
    /// The other end says why.
    Failed(Vec<u8>),
    /// What is asked is larger than a call may be.
    TooLarge,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the backend has gone"),
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
        let end = GuestEnd::open(file).map_err(std::io::Error::other)?;
        let bulk = end.bulk();
        let room = Room::new(bulk.start..bulk.start + bulk.len() / 2);
        Ok(Arc::new(Self {
            bell,
            process: process::id(),
            state: Mutex::new(State {
                end,
                room,
                calls: HashMap::new(),
                next: 0,
                waiting: false,
                gone: false,
            }),
            changed: Condvar::new(),
        }))
    }

    /// Whether nobody is there any more, as far as is known.
    pub fn is_gone(&self) -> bool {
        !self.is_here() || self.lock().gone
    }

    /// Ends it, whatever calls there are: the other end hears no more of it, and nor does any fork of this process.
    pub fn close(&self) {
        if self.is_here() {
            self.lock().gone = true;
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
    /// See [`Broken`].
    pub fn call(
        self: &Arc<Self>,
        head: &[u8],
        body: &[u8],
        length: u64,
    ) -> Result<(CallHandle, usize), Broken> {
        if head.len() as u64 > LARGEST_HEAD {
            return Err(Broken::TooLarge);
        }
        let (mut state, ()) = self.wait(|state| (state.calls.len() < MOST_CALLS).then_some(()))?;
        if state.gone {
            return Err(Broken::Gone);
        }
        // Numbers come round only after calls that have long ended.
        let id = state.next;
        state.next = state.next.wrapping_add(1);
        state.calls.insert(id, Pending::default());
        let call = CallHandle {
            link: self.clone(),
            id,
        };
        drop(state);
        let head = self.put(id, head, Part::Head)?;
        let first = if body.is_empty() {
            Span::default()
        } else {
            self.put(id, &body[..body.len().min(CALL_PIECE as usize)], Part::First)?
        };
        let mut state = self.lock();
        self.say(
            &mut state,
            Ask::Call {
                id,
                head,
                body: first,
                length,
            },
        )?;
        Ok((call, first.length as usize))
    }

    /// Copies bytes to a place: of a body, as many as there is room for.
    fn put(&self, id: Id, bytes: &[u8], part: Part) -> Result<Span, Broken> {
        let all = bytes.len() as u64;
        let (mut state, place) = self.wait(|state| {
            let wanted = match part {
                Part::Head if state.room.spare() < all => return None,
                Part::First if state.room.spare() == 0 => return None,
                Part::First => all.min(state.room.spare()),
                Part::Head | Part::Next => all,
            };
            let place = state.room.take(wanted)?;
            if part == Part::Head && place.end - place.start < wanted {
                state.room.give_back(place);
                return None;
            }
            Some(place)
        })?;
        let span = Span {
            offset: place.start,
            length: all.min(place.end - place.start),
        };
        let call = state.calls.get_mut(&id).ok_or(Broken::Gone)?;
        call.places.push(place);
        let at = state.place(span)?;
        state
            .end
            .copy_in(at, &bytes[..span.length as usize])
            .map_err(|_| Broken::Gone)?;
        Ok(span)
    }

    fn say(&self, state: &mut State, ask: Ask) -> Result<(), Broken> {
        let sent = state.end.send(ask.message());
        // By the rules there is room, so a full ring is one of which the other end reads nothing.
        let sent = sent.map_err(|_| {
            state.gone = true;
            Broken::Gone
        })?;
        if sent.must_ring {
            self.bell.ring().map_err(|_| Broken::Gone)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked was in no call of these.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Until there is what is looked for.
    fn wait<T>(
        &self,
        mut find: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<(MutexGuard<'_, State>, T), Broken> {
        if !self.is_here() {
            return Err(Broken::Gone);
        }
        let mut state = self.lock();
        loop {
            let heard = state.hear();
            if let Some(found) = find(&mut state) {
                return Ok((state, found));
            }
            if heard.is_err() || state.gone {
                state.gone = true;
                self.changed.notify_all();
                return Err(Broken::Gone);
            }
            if state.waiting {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            match state.end.sleep() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => {
                    state.gone = true;
                    continue;
                }
            }
            state.waiting = true;
            drop(state);
            let rung = self.bell.wait();
            state = self.lock();
            state.waiting = false;
            if !matches!(rung, Ok(true)) {
                // What it said before is heard before.
                let _ = state.hear();
                state.gone = true;
            }
            self.changed.notify_all();
        }
    }
}

impl State {
    fn place(&self, span: Span) -> Result<Place, Broken> {
        self.end.place(span.offset, span.length).ok_or(Broken::Gone)
    }

    fn copy(&self, span: Span) -> Result<Vec<u8>, Broken> {
        let mut bytes = vec![0; span.length as usize];
        self.end
            .copy_out(self.place(span)?, &mut bytes)
            .map_err(|_| Broken::Gone)?;
        Ok(bytes)
    }

    /// Takes in all that was said.
    fn hear(&mut self) -> Result<(), Broken> {
        while let Some(message) = self.end.receive().map_err(|_| Broken::Gone)? {
            let tell = Tell::read(message).ok_or(Broken::Gone)?;
            let (Tell::Taken { id }
            | Tell::Head { id, .. }
            | Tell::Piece { id, .. }
            | Tell::Failed { id, .. }) = tell;
            let reason = match tell {
                Tell::Failed { reason, .. } if reason.length > 0 => self.copy(reason)?,
                _ => Vec::new(),
            };
            let Some(call) = self.calls.get_mut(&id) else {
                // It failed, and was dropped before that was heard.
                continue;
            };
            match tell {
                Tell::Taken { .. } => {}
                Tell::Head { head, length, .. } => call.head = Some((head, length)),
                Tell::Piece { body, last, .. } => {
                    call.last |= last;
                    call.pieces.extend((body.length > 0).then_some(body));
                    continue;
                }
                Tell::Failed { .. } => call.failed = Some(reason),
            }
            let is_over = call.dropped && call.failed.is_some();
            for place in call.places.drain(..) {
                self.room.give_back(place);
            }
            if is_over {
                self.calls.remove(&id);
            }
        }
        Ok(())
    }
}

impl CallHandle {
    /// Sends more of the body: how many bytes of it.
    ///
    /// # Errors
    /// See [`Broken`]. A reply that is there before the body's end ends the sending: 0 is sent.
    pub fn send(&self, body: &[u8]) -> Result<usize, Broken> {
        let (state, answered) = self.link.wait(|state| {
            let call = state.calls.get(&self.id)?;
            let answered = call.head.is_some() || call.failed.is_some();
            (answered || call.places.is_empty()).then_some(answered)
        })?;
        drop(state);
        if answered || body.is_empty() {
            return Ok(0);
        }
        let span = self
            .link
            .put(self.id, &body[..body.len().min(CALL_PIECE as usize)], Part::Next)?;
        let mut state = self.link.lock();
        self.link.say(
            &mut state,
            Ask::Piece {
                id: self.id,
                body: span,
            },
        )?;
        Ok(span.length as usize)
    }

    /// Waits for the head of the reply, once.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn head(&self) -> Result<Head, Broken> {
        let (mut state, found) = self.link.wait(|state| {
            let call = state.calls.get_mut(&self.id)?;
            match (call.head.take(), &call.failed) {
                (Some(head), _) => Some(Ok(head)),
                (None, Some(reason)) => Some(Err(Broken::Failed(reason.clone()))),
                (None, None) => None,
            }
        })?;
        let (span, length) = found?;
        let head = state.copy(span)?;
        self.link.say(&mut state, Ask::Free { offset: span.offset })?;
        Ok(Head { head, length })
    }

    /// Copies the next bytes of the reply's body: how many, 0 at its end.
    ///
    /// # Errors
    /// See [`Broken`]: the body breaks off.
    pub fn read(&self, to: &mut [u8]) -> Result<usize, Broken> {
        if to.is_empty() {
            return Ok(0);
        }
        let (mut state, found) = self.link.wait(|state| {
            let call = state.calls.get(&self.id)?;
            match (call.pieces.front(), &call.failed) {
                (Some(piece), _) => Some(Ok(Some((*piece, call.read)))),
                (None, Some(reason)) => Some(Err(Broken::Failed(reason.clone()))),
                (None, None) => call.last.then_some(Ok(None)),
            }
        })?;
        let Some((piece, read)) = found? else {
            return Ok(0);
        };
        let left = piece.length.saturating_sub(read);
        let count = left.min(to.len() as u64);
        let part = Span {
            offset: piece.offset + read,
            length: count,
        };
        let place = state.place(part)?;
        let copied = state.end.copy_out(place, &mut to[..count as usize]);
        copied.map_err(|_| Broken::Gone)?;
        let call = state.calls.get_mut(&self.id).ok_or(Broken::Gone)?;
        call.read += count;
        if count == left {
            call.read = 0;
            call.pieces.pop_front();
            self.link.say(&mut state, Ask::Free { offset: piece.offset })?;
        }
        Ok(count as usize)
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if !self.link.is_here() {
            return;
        }
        let mut state = self.link.lock();
        let _ = state.hear();
        if let Some(call) = state.calls.get_mut(&self.id) {
            let has_nothing = call.head.is_none() && call.pieces.is_empty() && call.failed.is_none();
            if call.last && has_nothing {
                state.calls.remove(&self.id);
            } else {
                call.dropped = true;
                let _ = self.link.say(&mut state, Ask::Drop { id: self.id });
            }
        }
        self.link.changed.notify_all();
    }
}
