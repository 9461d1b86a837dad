//! The host's side of one sandbox's channel.
//!
//! What the sandbox writes is read once and checked. One that breaks the rules of [`exchange`] loses the link, with all of its calls.

use crate::{
    call::{self, Asked, CREDIT, Event, Events, Failure, SLICE, Turn},
    limits::{Memory, SandboxLink},
    row::{Filling, Row},
};
use bytes::Bytes;
use contract::{Caller, Session};
use exchange::{
    AHEAD, Ask, CALL_PIECE, Id, KEPT, LARGEST_HEAD, MOST_CALLS, MOST_KEPT, PIECE, Room, SLOTS, Span, Tell,
};
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
    sync::{Semaphore, mpsc, oneshot},
    task::AbortHandle,
};

/// Messages that are taken in before other links have their turn.
const AT_ONCE: usize = 64;

/// Bytes of a reply whose head waits for its end: as many as come without having been read.
const SHORT: u64 = CREDIT as u64;

/// Bytes of bulk: as many as the function may have of memory, within these; the least, if the sandbox has links enough.
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
    sandbox: SandboxLink,
    caller: Caller,
    room: Room,
    /// Bytes of it that the sandbox may still keep.
    to_keep: u64,
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
    what: What,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Head,
    /// It counts among those that are ahead.
    Piece,
    /// The same, and it may be kept.
    InRow,
}

/// Head and body of a call that waits to begin, and where they are to be copied to.
type Waits = (Span, Span, oneshot::Sender<(Vec<u8>, Vec<u8>)>);

struct Call {
    number: u64,
    /// Until it begins: where its head is, and its body if that is all there.
    asked: Option<Waits>,
    /// Where in the channel the piece of its body is that is copied next, and bytes that come after it.
    piece: Option<Span>,
    to_come: u64,
    slices: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// Whether the service waits for a slice.
    is_pulled: bool,
    /// Whether the sandbox has its places back, since the reply has begun.
    is_answered: bool,
    memory: Option<Arc<Memory>>,
    head: Option<(Vec<u8>, Option<u64>)>,
    /// Bytes of the reply that are to come, if they are known.
    left: Option<u64>,
    chunks: VecDeque<Bytes>,
    end: Option<Result<(), Failure>>,
    filling: Option<Filling>,
    /// Where the body's pieces go, as long as the sandbox may keep them.
    row: Option<Row>,
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
        sandbox: SandboxLink,
        caller: Caller,
        memory: u64,
    ) -> io::Result<Self> {
        let bulk = if sandbox.is_large() {
            memory.clamp(BULK.start, BULK.end)
        } else {
            BULK.start
        };
        let bulk = usize::try_from(bulk).map_err(io::Error::other)?;
        let before = HEADER + 2 * SLOTS as usize * size_of::<ring::channel::Message>();
        let region = Region::new(before + bulk)?;
        let end = HostEnd::new(region, SLOTS).map_err(io::Error::other)?;
        let bell = std::os::unix::net::UnixStream::from(bell);
        bell.set_nonblocking(true)?;
        let bell = Bell::new(UnixStream::from_std(bell)?);
        bell.give(end.shared().file())?;
        let bulk = end.layout().bulk();
        let room = Room::new(bulk.start + bulk.len() / 2..bulk.end);
        let to_keep = MOST_KEPT.min(bulk.len() as u64 / 8);
        let (teller, events) = mpsc::unbounded_channel();
        Ok(Self {
            end,
            bell,
            must_ring: false,
            session,
            sandbox,
            caller,
            room,
            to_keep,
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
                Ask::Keep { offset } => self.keep(offset)?,
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
        // Whether they are in the channel is seen at once; they are copied when it is the call's turn.
        for span in [head, body] {
            if span.length > 0 {
                at(&self.end, span.offset, span.length)?;
            }
        }
        let number = self.next;
        self.next += 1;
        let events = Events {
            number,
            to: self.teller.clone(),
        };
        let to_come = length - body.length;
        let (begin, begun) = oneshot::channel();
        let (slices, coming) = match to_come {
            0 => (None, None),
            _ => {
                let (slices, coming) = mpsc::unbounded_channel();
                (Some(slices), Some(coming))
            }
        };
        let (piece, whole) = match to_come {
            0 => (None, body),
            _ => (Some(body).filter(|body| body.length > 0), Span::default()),
        };
        let credit = Arc::new(Semaphore::new(CREDIT as usize));
        let sandbox = self.sandbox.sandbox().clone();
        let mut waiting = sandbox.ask(call::held(head.length, length, to_come == 0));
        let mut asked = Some((head, whole, begin));
        let (turn, memory) = match waiting.now() {
            Some(admitted) => {
                let memory = admitted.1.clone();
                (Turn::Now(admitted), Some(memory))
            }
            None => (Turn::Later(waiting), None),
        };
        if memory.is_some() {
            self.copy_asked(&mut asked)?;
        }
        let made = Asked {
            turn,
            length,
            begun,
            slices: coming,
            credit: credit.clone(),
            events,
        };
        let (session, caller) = (self.session.clone(), self.caller.clone());
        let task = tokio::spawn(call::make(session, caller, sandbox, made));
        self.numbers.insert(number, id);
        let is_begun = memory.is_some();
        let call = Call {
            number,
            asked,
            piece,
            to_come,
            slices,
            is_pulled: false,
            is_answered: false,
            memory,
            head: None,
            left: None,
            chunks: VecDeque::new(),
            end: None,
            filling: None,
            row: None,
            ahead: 0,
            credit,
            task: task.abort_handle(),
        };
        self.calls.insert(id, call);
        if is_begun {
            return self.want_body(id);
        }
        Ok(())
    }

    /// It is a call's turn: what there is of it is copied.
    fn begin(&mut self, id: Id, memory: Arc<Memory>) -> Result<(), Broken> {
        let Some(call) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        call.memory = Some(memory);
        let mut asked = call.asked.take();
        self.copy_asked(&mut asked)?;
        self.want_body(id)
    }

    fn copy_asked(&self, asked: &mut Option<Waits>) -> Result<(), Broken> {
        if let Some((head, body, begin)) = asked.take() {
            let copied = (self.copy(head)?, self.copy(body)?);
            // Nobody hears it if the call has been given up.
            let _ = begin.send(copied);
        }
        Ok(())
    }

    /// Says that more of a body can come, where nothing of it came with the call.
    fn want_body(&mut self, id: Id) -> Result<(), Broken> {
        match self.calls.get(&id) {
            Some(call) if call.piece.is_none() && call.to_come > 0 => self.say(Tell::Taken { id }),
            _ => Ok(()),
        }
    }

    fn piece(&mut self, id: Id, body: Span) -> Result<(), Broken> {
        if body.length > CALL_PIECE {
            return Err(Broken("a piece is larger than it may be"));
        }
        if body.length > 0 {
            at(&self.end, body.offset, body.length)?;
        }
        // A call may have ended before that was heard.
        if let Some(call) = self.calls.get_mut(&id) {
            let left = call.to_come.checked_sub(body.length);
            call.to_come = left
                .filter(|_| call.piece.is_none() && body.length > 0)
                .ok_or(Broken("a body is longer than its call has said"))?;
            call.piece = Some(body);
            return self.slice(id);
        }
        Ok(())
    }

    /// Copies what the service waits for of a body, if it is there.
    fn slice(&mut self, id: Id) -> Result<(), Broken> {
        let Some(call) = self.calls.get_mut(&id) else {
            return Ok(());
        };
        let Some(piece) = call.piece.filter(|_| call.is_pulled && !call.is_answered) else {
            return Ok(());
        };
        let slice = Span {
            length: piece.length.min(SLICE),
            ..piece
        };
        let rest = Span {
            offset: piece.offset + slice.length,
            length: piece.length - slice.length,
        };
        call.is_pulled = false;
        call.piece = (rest.length > 0).then_some(rest);
        let is_taken = rest.length == 0 && call.to_come > 0;
        let bytes = self.copy(slice)?;
        if let Some(slices) = self.calls.get(&id).and_then(|call| call.slices.as_ref()) {
            // Whether the service still wants it, its reply says.
            let _ = slices.send(bytes);
        }
        if is_taken {
            self.say(Tell::Taken { id })?;
        }
        Ok(())
    }

    fn free(&mut self, offset: u64) -> Result<(), Broken> {
        let given = self
            .places
            .remove(&offset)
            .ok_or(Broken("it frees what it does not have"))?;
        if given.what != What::Head
            && let Some(call) = self.calls.get_mut(&given.id)
        {
            call.ahead = call.ahead.saturating_sub(1);
        }
        let place = given.place.clone();
        self.give_back(place, given.what == What::InRow);
        if given.what == What::InRow {
            // Who reads piece by piece has the same room again and again.
            self.give_up_row(given.id);
        }
        // Others may wait for room.
        let waiting: Vec<Id> = self.calls.keys().copied().collect();
        waiting.into_iter().try_for_each(|id| self.pump(id))
    }

    fn keep(&mut self, offset: u64) -> Result<(), Broken> {
        let kept = self.places.remove(&offset);
        let kept = kept
            .filter(|given| given.what == What::InRow)
            .ok_or(Broken("it keeps what it may not"))?;
        match self.calls.get_mut(&kept.id) {
            Some(call) => {
                call.ahead = call.ahead.saturating_sub(1);
                self.pump(kept.id)
            }
            None => Ok(()),
        }
    }

    fn give_back(&mut self, place: Range<u64>, in_row: bool) {
        if in_row {
            self.to_keep += place.end - place.start;
        }
        self.room.give_back(place);
    }

    /// What pieces there will be of a reply, go wherever there is room.
    fn give_up_row(&mut self, id: Id) {
        let row = self.calls.get_mut(&id).and_then(|call| call.row.take());
        if let Some(rest) = row.and_then(Row::rest) {
            self.give_back(rest, true);
        }
    }

    /// A row for a reply's body, if it may be kept.
    fn row(&mut self, length: Option<u64>) -> Option<Row> {
        let length = length.filter(|length| KEPT.contains(length))?;
        let size = Row::size(length);
        if self.to_keep.min(self.room.spare()) < size {
            return None;
        }
        let place = self.room.take(size)?;
        if place.end - place.start < size {
            self.room.give_back(place);
            return None;
        }
        self.to_keep -= size;
        Some(Row::new(place, length))
    }

    fn drop_call(&mut self, id: Id) -> Result<(), Broken> {
        if let Some(filling) = self.calls.get_mut(&id).and_then(|call| call.filling.take()) {
            self.give_back(filling.place, filling.in_row);
        }
        self.forget(id);
        let given: Vec<_> = self.places.extract_if(|_, given| given.id == id).collect();
        for (_, given) in given {
            self.give_back(given.place, given.what == What::InRow);
        }
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
            Event::Begin(memory) => return self.begin(id, memory),
            Event::Pull => {
                call.is_pulled = true;
                return self.slice(id);
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
            // A short body is said with its end, and the head with it: whoever loses the backend has all of that, or nothing.
            let is_short = matches!(call.left, Some(1..=SHORT));
            if call.head.is_some() && is_short && call.end.is_none() {
                return Ok(());
            }
            if let Some((head, length)) = call.head.take() {
                let Some(span) = self.put(id, &head) else {
                    if let Some(call) = self.calls.get_mut(&id) {
                        call.head = Some((head, length));
                    }
                    return Ok(());
                };
                let row = self.row(length);
                let starts = row.as_ref().map(Row::start);
                if let Some(call) = self.calls.get_mut(&id) {
                    call.is_answered = true;
                    call.row = row;
                }
                self.say(Tell::Head {
                    id,
                    head: span,
                    length,
                    row: starts,
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
                call.filling = call.row.as_mut().and_then(Row::cut);
            }
            if call.filling.is_none() {
                let wanted = call.left.unwrap_or(waiting).clamp(1, PIECE);
                // Who has nothing that the sandbox could read finds room, however much others have that it does not read.
                let wanted = match (self.room.spare(), call.ahead) {
                    (0, 1..) => return Ok(()),
                    (spare, 1..) => wanted.min(spare),
                    (spare, 0) => wanted.min(spare.max(self.room.least(MOST_CALLS))),
                };
                let Some(place) = self.room.take(wanted) else {
                    return Ok(());
                };
                call.filling = Some(Filling::of(place));
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
        let Some(mut filling) = call.filling.take() else {
            return Ok(());
        };
        let (start, room) = (filling.body.start, filling.body.end - filling.body.start);
        while filling.filled < room
            && let Some(chunk) = call.chunks.front_mut()
        {
            let count = (room - filling.filled).min(chunk.len() as u64);
            let part = chunk.split_to(count as usize);
            if chunk.is_empty() {
                call.chunks.pop_front();
            }
            let to = at(&self.end, start + filling.filled, count)?;
            self.end.copy_in(to, &part).map_err(|_| OUTSIDE)?;
            call.credit.add_permits(part.len());
            filling.filled += count;
            if let Some(left) = &mut call.left {
                *left = left.saturating_sub(count);
            }
        }
        let is_end = call.end.is_some() && call.chunks.is_empty();
        let is_full = filling.filled == room && call.left != Some(0);
        let is_awaited = call.left.is_none() && call.chunks.is_empty();
        if !(is_end || is_full || is_awaited) {
            call.filling = Some(filling);
            return Ok(());
        }
        let last = is_end && matches!(call.end, Some(Ok(())));
        call.ahead += 1;
        let body = Span {
            offset: start,
            length: filling.filled,
        };
        let what = match filling.in_row {
            true => What::InRow,
            false => What::Piece,
        };
        let place = filling.place;
        self.places.insert(start, Given { place, id, what });
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
        self.give_up_row(id);
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
                what: What::Head,
            },
        );
        Some(span)
    }

    fn copy(&self, span: Span) -> Result<Vec<u8>, Broken> {
        let mut bytes = vec![0; span.length as usize];
        if span.length > 0 {
            let from = at(&self.end, span.offset, span.length)?;
            self.end.copy_out(from, &mut bytes).map_err(|_| OUTSIDE)?;
        }
        Ok(bytes)
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
pub(crate) async fn heard(bell: &Bell<UnixStream>) -> io::Result<Heard> {
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
