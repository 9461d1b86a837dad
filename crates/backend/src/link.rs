//! The host's side of one sandbox's channel.
//!
//! What the sandbox writes is read once and checked. One that breaks the rules of [`exchange`] loses the link, with all of its calls.

use crate::call::{self, CREDIT, Event, Events, Failure, Head};
use bytes::Bytes;
use contract::{Body, Caller, Session};
use exchange::{AHEAD, Ask, CALL_PIECE, Id, LARGEST_HEAD, MOST_CALLS, PIECE, Room, SLOTS, Span, Tell};
use ring::{
    Bell, Heard, HostEnd, Region,
    channel::{HEADER, Place},
};
use std::{
    collections::{HashMap, VecDeque},
    io,
    ops::Range,
    os::fd::OwnedFd,
    sync::Arc,
};
use tokio::{
    io::Interest,
    net::UnixStream,
    sync::{Semaphore, mpsc},
    task::AbortHandle,
};

/// Messages that are taken in before other links have their turn.
const AT_ONCE: usize = 64;

/// Bytes of bulk: as many as the function may have of memory, within these.
const BULK: Range<u64> = 16 << 20..1 << 30;

/// The sandbox broke the rules.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Broken(&'static str);

pub(crate) struct Link {
    end: HostEnd,
    bell: Bell<UnixStream>,
    must_ring: bool,
    session: Arc<dyn Session>,
    caller: Caller,
    room: Room,
    /// Places that the sandbox has not freed, by where they begin.
    places: HashMap<u64, Given>,
    calls: HashMap<Id, Call>,
    /// Which call has which number of ours: the sandbox's numbers come again.
    numbers: HashMap<u64, Id>,
    next: u64,
    events: mpsc::UnboundedReceiver<(u64, Event)>,
    teller: mpsc::UnboundedSender<(u64, Event)>,
}

struct Given {
    place: Range<u64>,
    id: Id,
    /// Whether it counts among those that are ahead.
    is_piece: bool,
}

struct Call {
    number: u64,
    /// Bytes of its body that are to come.
    to_come: u64,
    pieces: Option<mpsc::UnboundedSender<Bytes>>,
    /// Whether a piece is here that the service has not pulled.
    is_full: bool,
    head: Option<(Vec<u8>, Option<u64>)>,
    /// Bytes of the reply that are to come, if they are known.
    left: Option<u64>,
    chunks: VecDeque<Bytes>,
    end: Option<Result<(), Failure>>,
    /// The piece that is being filled, and how far.
    filling: Option<(Range<u64>, u64)>,
    ahead: u32,
    credit: Arc<Semaphore>,
    task: AbortHandle,
}

impl Drop for Call {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Link {
    /// For a sandbox that may use so many bytes of memory.
    pub(crate) fn new(
        bell: OwnedFd,
        session: Arc<dyn Session>,
        caller: Caller,
        memory: u64,
    ) -> io::Result<Self> {
        let bulk = usize::try_from(memory.clamp(BULK.start, BULK.end)).map_err(io::Error::other)?;
        let before = HEADER + 2 * SLOTS as usize * size_of::<ring::channel::Message>();
        let region = Region::new(before + bulk)?;
        let end = HostEnd::new(region, SLOTS).map_err(io::Error::other)?;
        let bell = std::os::unix::net::UnixStream::from(bell);
        bell.set_nonblocking(true)?;
        let bell = Bell::new(UnixStream::from_std(bell)?);
        bell.give(end.shared().file())?;
        let bulk = end.layout().bulk();
        let room = Room::new(bulk.start + bulk.len() / 2..bulk.end);
        let (teller, events) = mpsc::unbounded_channel();
        Ok(Self {
            end,
            bell,
            must_ring: false,
            session,
            caller,
            room,
            places: HashMap::new(),
            calls: HashMap::new(),
            numbers: HashMap::new(),
            next: 0,
            events,
            teller,
        })
    }

    /// Until the sandbox has gone.
    pub(crate) async fn serve(mut self) -> Result<(), Broken> {
        loop {
            let is_all = self.take_in()?;
            while let Ok((number, event)) = self.events.try_recv() {
                self.event(number, event)?;
            }
            if std::mem::take(&mut self.must_ring) {
                self.bell.ring().map_err(|_| Broken("its bell does not ring"))?;
            }
            if !is_all {
                tokio::task::yield_now().await;
                continue;
            }
            if !self.end.sleep().map_err(|_| CORRUPT)? {
                continue;
            }
            tokio::select! {
                heard = heard(&self.bell) => match heard {
                    Ok(Heard::Gone) => return Ok(()),
                    Ok(_) => {}
                    Err(_) => return Err(Broken("its bell is broken")),
                },
                Some((number, event)) = self.events.recv() => {
                    self.event(number, event)?;
                }
            }
            self.end.wake();
        }
    }

    /// Some of what was said: whether it was all.
    fn take_in(&mut self) -> Result<bool, Broken> {
        for _ in 0..AT_ONCE {
            let Some(message) = self.end.receive().map_err(|_| CORRUPT)? else {
                return Ok(true);
            };
            match Ask::read(message).ok_or(Broken("it says what nobody says"))? {
                Ask::Call {
                    id,
                    head,
                    body,
                    length,
                } => self.call(id, head, body, length)?,
                Ask::Piece { id, body } => self.piece(id, body)?,
                Ask::Free { offset } => self.free(offset)?,
                Ask::Drop { id } => self.drop_call(id)?,
            }
        }
        Ok(false)
    }

    fn call(&mut self, id: Id, head: Span, body: Span, length: u64) -> Result<(), Broken> {
        if self.calls.contains_key(&id) || self.calls.len() >= MOST_CALLS {
            return Err(Broken("it calls too often at once"));
        }
        if head.length > LARGEST_HEAD || body.length > CALL_PIECE.min(length) {
            return Err(Broken("a call is larger than it may be"));
        }
        let head = Head::read(&self.copy(head)?);
        let first = self.copy(body)?;
        let number = self.next;
        self.next += 1;
        let events = Events {
            number,
            to: self.teller.clone(),
        };
        let to_come = length - body.length;
        let is_full = to_come > 0 && !first.is_empty();
        let (body, pieces) = if to_come == 0 {
            (Body::Whole(first), None)
        } else {
            let (pieces, coming) = mpsc::unbounded_channel();
            if is_full {
                let _ = pieces.send(first);
            } else {
                self.say(Tell::Taken { id })?;
            }
            (call::body(coming, length, events.clone()), Some(pieces))
        };
        let credit = Arc::new(Semaphore::new(CREDIT as usize));
        let (session, caller, given) = (self.session.clone(), self.caller.clone(), credit.clone());
        let task = tokio::spawn(async move {
            match head {
                Ok(head) => {
                    let call = head.call(body, length, caller);
                    call::make(session, call, given, events).await;
                }
                Err(failure) => call::refuse(failure, &events),
            }
        });
        self.numbers.insert(number, id);
        let call = Call {
            number,
            to_come,
            pieces,
            is_full,
            head: None,
            left: None,
            chunks: VecDeque::new(),
            end: None,
            filling: None,
            ahead: 0,
            credit,
            task: task.abort_handle(),
        };
        self.calls.insert(id, call);
        Ok(())
    }

    fn piece(&mut self, id: Id, body: Span) -> Result<(), Broken> {
        if body.length > CALL_PIECE {
            return Err(Broken("a piece is larger than it may be"));
        }
        let piece = self.copy(body)?;
        // A call may have ended before that was heard.
        if let Some(call) = self.calls.get_mut(&id) {
            let left = call.to_come.checked_sub(body.length);
            call.to_come = left
                .filter(|_| !call.is_full && body.length > 0)
                .ok_or(Broken("a body is longer than its call has said"))?;
            call.is_full = true;
            if let Some(pieces) = &call.pieces {
                // Whether the service still wants it, its reply says.
                let _ = pieces.send(piece);
            }
        }
        Ok(())
    }

    fn free(&mut self, offset: u64) -> Result<(), Broken> {
        let given = self
            .places
            .remove(&offset)
            .ok_or(Broken("it frees what it does not have"))?;
        self.room.give_back(given.place);
        if given.is_piece
            && let Some(call) = self.calls.get_mut(&given.id)
        {
            call.ahead -= 1;
        }
        // Others may wait for room.
        let waiting: Vec<Id> = self.calls.keys().copied().collect();
        waiting.into_iter().try_for_each(|id| self.pump(id))
    }

    fn drop_call(&mut self, id: Id) -> Result<(), Broken> {
        if let Some(mut call) = self.calls.remove(&id) {
            self.numbers.remove(&call.number);
            if let Some((place, _)) = call.filling.take() {
                self.room.give_back(place);
            }
        }
        let room = &mut self.room;
        self.places.retain(|_, given| {
            if given.id == id {
                room.give_back(given.place.clone());
            }
            given.id != id
        });
        self.say(Tell::Failed {
            id,
            reason: Span::default(),
        })
    }

    fn event(&mut self, number: u64, event: Event) -> Result<(), Broken> {
        let Some(id) = self.numbers.get(&number).copied() else {
            return Ok(());
        };
        let Some(call) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        match event {
            Event::Pulled => {
                call.is_full = false;
                return self.say(Tell::Taken { id });
            }
            Event::Head(head, length) => {
                call.left = length;
                call.head = Some((head, length));
            }
            Event::Chunk(chunk) => call.chunks.push_back(chunk),
            Event::End(end) => call.end = Some(end),
        }
        self.pump(id)
    }

    /// Says what can be said of a reply.
    fn pump(&mut self, id: Id) -> Result<(), Broken> {
        loop {
            let Some(call) = self.calls.get_mut(&id) else {
                return Ok(());
            };
            if let Some((head, length)) = call.head.take() {
                let Some(span) = self.put(id, &head) else {
                    if let Some(call) = self.calls.get_mut(&id) {
                        call.head = Some((head, length));
                    }
                    return Ok(());
                };
                self.say(Tell::Head {
                    id,
                    head: span,
                    length,
                })?;
                continue;
            }
            let waiting: u64 = call.chunks.iter().map(|chunk| chunk.len() as u64).sum();
            if call.filling.is_none() {
                match (waiting, &call.end) {
                    (0, None) => return Ok(()),
                    (0, Some(_)) => return self.finish(id),
                    _ if call.ahead >= AHEAD => return Ok(()),
                    _ => {}
                }
                let wanted = call.left.unwrap_or(waiting).clamp(1, PIECE);
                let Some(place) = self.room.take(wanted) else {
                    return Ok(());
                };
                call.filling = Some((place, 0));
            }
            self.fill(id)?;
            if self.calls.get(&id).is_some_and(|call| call.filling.is_some()) {
                return Ok(());
            }
        }
    }

    /// Copies what there is to the piece that is being filled, and says it if it is full, or if nothing more is to be waited for.
    fn fill(&mut self, id: Id) -> Result<(), Broken> {
        let Some(call) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        let Some((place, mut filled)) = call.filling.take() else {
            return Ok(());
        };
        let room = place.end - place.start;
        while filled < room
            && let Some(chunk) = call.chunks.front_mut()
        {
            let count = (room - filled).min(chunk.len() as u64);
            let part = chunk.split_to(count as usize);
            if chunk.is_empty() {
                call.chunks.pop_front();
            }
            let to = at(&self.end, place.start + filled, count)?;
            self.end.copy_in(to, &part).map_err(|_| OUTSIDE)?;
            call.credit.add_permits(part.len());
            filled += count;
            if let Some(left) = &mut call.left {
                *left = left.saturating_sub(count);
            }
        }
        let is_end = call.end.is_some() && call.chunks.is_empty();
        let is_full = filled == room && call.left != Some(0);
        let is_awaited = call.left.is_none() && call.chunks.is_empty();
        if !(is_end || is_full || is_awaited) {
            call.filling = Some((place, filled));
            return Ok(());
        }
        let last = is_end && matches!(call.end, Some(Ok(())));
        call.ahead += 1;
        let body = Span {
            offset: place.start,
            length: filled,
        };
        self.places.insert(
            place.start,
            Given {
                place,
                id,
                is_piece: true,
            },
        );
        if last {
            self.forget(id);
        }
        self.say(Tell::Piece { id, body, last })
    }

    /// All of a reply was said but its end.
    fn finish(&mut self, id: Id) -> Result<(), Broken> {
        let end = self.calls.get_mut(&id).and_then(|call| call.end.take());
        self.forget(id);
        match end {
            Some(Err(failure)) => {
                let reason = self.put(id, &failure.encoded()).unwrap_or_default();
                self.say(Tell::Failed { id, reason })
            }
            _ => self.say(Tell::Piece {
                id,
                body: Span::default(),
                last: true,
            }),
        }
    }

    fn forget(&mut self, id: Id) {
        if let Some(call) = self.calls.remove(&id) {
            self.numbers.remove(&call.number);
        }
    }

    /// Bytes in a place of their own, if there is room for all of them.
    fn put(&mut self, id: Id, bytes: &[u8]) -> Option<Span> {
        let length = bytes.len() as u64;
        let place = self.room.take(length)?;
        if place.end - place.start < length {
            self.room.give_back(place);
            return None;
        }
        let to = at(&self.end, place.start, length).ok()?;
        self.end.copy_in(to, bytes).ok()?;
        let span = Span {
            offset: place.start,
            length,
        };
        self.places.insert(
            place.start,
            Given {
                place,
                id,
                is_piece: false,
            },
        );
        Some(span)
    }

    fn copy(&self, span: Span) -> Result<Bytes, Broken> {
        if span.length == 0 {
            return Ok(Bytes::new());
        }
        let mut bytes = vec![0; span.length as usize];
        let from = at(&self.end, span.offset, span.length)?;
        self.end.copy_out(from, &mut bytes).map_err(|_| OUTSIDE)?;
        Ok(bytes.into())
    }

    fn say(&mut self, tell: Tell) -> Result<(), Broken> {
        let sent = self.end.send(tell.message());
        self.must_ring |= sent
            .map_err(|_| Broken("it does not hear what it is told"))?
            .must_ring;
        Ok(())
    }
}

/// Waits for the sandbox to ring, or to go.
async fn heard(bell: &Bell<UnixStream>) -> io::Result<Heard> {
    let socket = bell.get_ref();
    let hear = || match bell.heard()? {
        Heard::Nothing => Err(io::ErrorKind::WouldBlock.into()),
        heard => Ok(heard),
    };
    socket.async_io(Interest::READABLE, hear).await
}

fn at(end: &HostEnd, offset: u64, length: u64) -> Result<Place, Broken> {
    end.layout().place(offset, length).ok_or(OUTSIDE)
}

const CORRUPT: Broken = Broken("it wrote an index that cannot be");
const OUTSIDE: Broken = Broken("it names a place outside of the channel");
