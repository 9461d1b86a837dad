//! See [`Talk`].

use crate::{
    Ask, BEFORE, BEHIND, Broken, CALL_PIECE, Head, Kept, LARGEST_HEAD, MOST_CALLS, Room, STEP, Span, Tell,
    wire::Id,
};
use ring::{GuestEnd, channel::Place};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    os::fd::OwnedFd,
};

/// A guest's side without any waiting: each of these does what can be done now, and `None` says that more must be heard before. What is said may have
/// to be rung for ([`Talk::must_ring`]).
pub struct Talk {
    end: GuestEnd,
    room: Room,
    calls: HashMap<Id, Pending>,
    next: Id,
    must_ring: bool,
    /// The other end sleeps, and what was said since then can wait until something is said that it waits for.
    owes_ring: bool,
    gone: bool,
}

#[derive(Default)]
struct Pending {
    /// Given to the host until it is said to be read.
    places: Vec<Range<u64>>,
    head: Option<(Span, Option<u64>)>,
    /// Where all of the body lies in a row, as long as it may be kept there.
    row: Option<Span>,
    /// What of that is kept, once somebody wants it to be.
    kept: Option<Kept>,
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

impl Talk {
    /// On the channel in this file.
    ///
    /// # Errors
    /// There is no channel in it.
    pub fn open(file: OwnedFd) -> std::io::Result<Self> {
        let end = GuestEnd::open(file).map_err(std::io::Error::other)?;
        let bulk = end.bulk();
        let room = Room::new(bulk.start..bulk.start + bulk.len() / 2);
        Ok(Self {
            end,
            room,
            calls: HashMap::new(),
            next: 0,
            must_ring: false,
            owes_ring: false,
            gone: false,
        })
    }

    /// Whether nobody is there any more, as far as is known.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Nobody is there any more.
    pub fn end(&mut self) {
        self.gone = true;
    }

    /// Whether the bell must be rung for what was said since the last time.
    pub fn must_ring(&mut self) -> bool {
        std::mem::take(&mut self.must_ring)
    }

    /// Has the other end ring for what it says next: whether it will. If not, there is more to hear now.
    pub fn sleep(&mut self) -> bool {
        match self.end.sleep() {
            Ok(sleeps) => sleeps,
            Err(_) => {
                self.gone = true;
                false
            }
        }
    }

    /// Takes in all that was said. One that does not keep to the rules has gone.
    pub fn hear(&mut self) {
        if self.take_in().is_err() {
            self.gone = true;
        }
    }

    fn take_in(&mut self) -> Result<(), Broken> {
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
                Tell::Head {
                    head, length, row, ..
                } => {
                    call.head = Some((head, length));
                    call.row = row.zip(length).map(|(offset, length)| Span { offset, length });
                }
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

    /// The number of a new call with this head, which [`Talk::drop_call`] ends.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn begin(&mut self, head: &[u8]) -> Option<Result<Id, Broken>> {
        if head.len() as u64 > LARGEST_HEAD {
            return Some(Err(Broken::TooLarge));
        }
        if self.gone || self.calls.len() >= MOST_CALLS {
            return None;
        }
        // Numbers come round only after calls that have long ended.
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        self.calls.insert(id, Pending::default());
        Some(Ok(id))
    }

    /// Copies the head of a call: where it is, for [`Talk::call`].
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn put_head(&mut self, id: Id, head: &[u8]) -> Option<Result<Span, Broken>> {
        self.put(id, head, Part::Head)
    }

    /// Copies as much of a body as there is room for.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn put_first(&mut self, id: Id, body: &[u8]) -> Option<Result<Span, Broken>> {
        if body.is_empty() {
            return Some(Ok(Span::default()));
        }
        self.put(id, &body[..body.len().min(CALL_PIECE as usize)], Part::First)
    }

    fn put(&mut self, id: Id, bytes: &[u8], part: Part) -> Option<Result<Span, Broken>> {
        let all = bytes.len() as u64;
        let spare = self.room.spare();
        let wanted = match part {
            Part::Head if spare < all => return None,
            Part::First if spare == 0 => return None,
            Part::First => all.min(spare),
            Part::Head | Part::Next => all,
        };
        let place = self.room.take(wanted)?;
        if part == Part::Head && place.end - place.start < wanted {
            self.room.give_back(place);
            return None;
        }
        let span = Span {
            offset: place.start,
            length: all.min(place.end - place.start),
        };
        let Some(call) = self.calls.get_mut(&id) else {
            self.room.give_back(place);
            return Some(Err(Broken::Gone));
        };
        call.places.push(place);
        Some(self.copy_in(span, &bytes[..span.length as usize]))
    }

    fn copy_in(&mut self, span: Span, bytes: &[u8]) -> Result<Span, Broken> {
        let at = self.place(span)?;
        self.end.copy_in(at, bytes).map_err(|_| Broken::Gone)?;
        Ok(span)
    }

    /// Makes a call whose body has so many bytes, of which the first are there.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn call(&mut self, id: Id, head: Span, body: Span, length: u64) -> Result<(), Broken> {
        self.say(Ask::Call {
            id,
            head,
            body,
            length,
        })
    }

    /// Whether a reply has begun, or the call has failed: no more of its body is wanted.
    pub fn is_answered(&self, id: Id) -> bool {
        let call = self.calls.get(&id);
        call.is_some_and(|call| call.head.is_some() || call.failed.is_some())
    }

    /// Sends more of the body: how many bytes of it. 0 if there is a reply already, which ends the sending.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn send(&mut self, id: Id, body: &[u8]) -> Option<Result<usize, Broken>> {
        if self.is_answered(id) || body.is_empty() {
            return Some(Ok(0));
        }
        if !self.calls.get(&id)?.places.is_empty() {
            return None;
        }
        let put = self.put(id, &body[..body.len().min(CALL_PIECE as usize)], Part::Next)?;
        Some(put.and_then(|body| {
            self.say(Ask::Piece { id, body })?;
            Ok(body.length as usize)
        }))
    }

    /// The head of the reply, once.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn head(&mut self, id: Id) -> Option<Result<Head, Broken>> {
        let call = self.calls.get_mut(&id)?;
        let (span, length) = match (call.head.take(), &call.failed) {
            (Some(head), _) => head,
            (None, Some(reason)) => return Some(Err(Broken::Failed(reason.clone()))),
            (None, None) => return None,
        };
        Some(self.copy(span).and_then(|head| {
            self.say(Ask::Free { offset: span.offset })?;
            Ok(Head { head, length })
        }))
    }

    /// Bytes of the reply's body that can be read at once: 0 at its end.
    ///
    /// # Errors
    /// See [`Broken`]: the body breaks off.
    pub fn ready(&mut self, id: Id) -> Option<Result<usize, Broken>> {
        let call = self.calls.get(&id)?;
        match (call.pieces.front(), &call.failed) {
            (Some(piece), _) => Some(Ok(piece.length.saturating_sub(call.read) as usize)),
            (None, Some(reason)) => Some(Err(Broken::Failed(reason.clone()))),
            (None, None) => call.last.then_some(Ok(0)),
        }
    }

    /// Copies the next bytes of the reply's body: how many, 0 at its end.
    ///
    /// # Errors
    /// See [`Broken`]: the body breaks off.
    pub fn read(&mut self, id: Id, to: &mut [u8]) -> Option<Result<usize, Broken>> {
        let ready = match self.ready(id)? {
            Ok(ready @ 1..) => ready,
            over => return Some(over),
        };
        let call = self.calls.get_mut(&id)?;
        call.row = None;
        let piece = *call.pieces.front()?;
        let count = ready.min(to.len());
        let part = Span {
            offset: piece.offset + call.read,
            length: count as u64,
        };
        call.read += count as u64;
        if count == ready {
            call.read = 0;
            call.pieces.pop_front();
        }
        Some(self.take_out(part, &mut to[..count]).and_then(|()| {
            if count == ready {
                self.say(Ask::Free { offset: piece.offset })?;
            }
            Ok(count)
        }))
    }

    /// Keeps all of the reply's body where it lies, once it is all there; or `None`, if it is to be read, since it has more bytes than that, or may not be kept, or
    /// has begun to be read.
    ///
    /// # Errors
    /// See [`Broken`]: there is nothing of it.
    pub fn keep(&mut self, id: Id, most: usize) -> Option<Result<Option<Kept>, Broken>> {
        let call = self.calls.get_mut(&id)?;
        let Some(row) = call.row.filter(|row| row.length <= most as u64) else {
            return Some(Ok(None));
        };
        let kept = match call.kept.take() {
            Some(kept) => kept,
            None => match self.memory(row) {
                Some(memory) => Kept { memory, length: 0 },
                None => {
                    self.calls.get_mut(&id)?.row = None;
                    return Some(Ok(None));
                }
            },
        };
        self.keep_more(id, row, kept).transpose()
    }

    /// Of a row, with what is around it; `None` if it is no place for that, or the system does not let it be kept.
    fn memory(&mut self, row: Span) -> Option<ring::Kept> {
        let around = Span {
            offset: row.offset.checked_sub(BEFORE)?,
            length: row.length.checked_add(BEFORE + BEHIND)?,
        };
        let place = self
            .place(around)
            .ok()
            .filter(|_| around.offset.is_multiple_of(STEP))?;
        self.end.keep(place)?.ok()
    }

    /// Keeps the pieces that have come: all, if there will be no more.
    fn keep_more(&mut self, id: Id, row: Span, mut kept: Kept) -> Result<Option<Option<Kept>>, Broken> {
        while let Some(call) = self.calls.get_mut(&id)
            && let Some(piece) = call.pieces.pop_front()
        {
            let next = row.offset + kept.length as u64;
            let left = row.length - kept.length as u64;
            if piece.offset != next || piece.length > left {
                return Err(Broken::Gone);
            }
            kept.length += piece.length as usize;
            self.say(Ask::Keep { offset: next })?;
        }
        let Some(call) = self.calls.get_mut(&id) else {
            return Err(Broken::Gone);
        };
        if call.last || call.failed.is_some() {
            call.row = None;
            return Ok(Some(Some(kept).filter(|kept| kept.length > 0)));
        }
        call.kept = Some(kept);
        Ok(None)
    }

    /// The call, or the rest of its reply, is not wanted any more.
    pub fn drop_call(&mut self, id: Id) {
        self.hear();
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let has_nothing = call.head.is_none() && call.pieces.is_empty() && call.failed.is_none();
        if call.last && has_nothing {
            self.calls.remove(&id);
        } else {
            call.dropped = true;
            // Nobody is there to hear it, then.
            let _ = self.say(Ask::Drop { id });
        }
    }

    fn say(&mut self, ask: Ask) -> Result<(), Broken> {
        // By the rules there is room, so a full ring is one of which the other end reads nothing.
        let sent = self.end.send(ask.message()).map_err(|_| {
            self.gone = true;
            Broken::Gone
        })?;
        self.owes_ring |= sent.must_ring;
        if !matches!(ask, Ask::Free { .. } | Ask::Keep { .. }) || self.awaits() {
            self.must_ring |= std::mem::take(&mut self.owes_ring);
        }
        Ok(())
    }

    /// Whether the other end has something left to say, for which it may want room.
    fn awaits(&self) -> bool {
        self.calls
            .values()
            .any(|call| !call.last && call.failed.is_none())
    }

    fn place(&self, span: Span) -> Result<Place, Broken> {
        self.end.place(span.offset, span.length).ok_or(Broken::Gone)
    }

    fn copy(&self, span: Span) -> Result<Vec<u8>, Broken> {
        let mut bytes = vec![0; span.length as usize];
        self.take_out(span, &mut bytes)?;
        Ok(bytes)
    }

    fn take_out(&self, span: Span, to: &mut [u8]) -> Result<(), Broken> {
        self.end.copy_out(self.place(span)?, to).map_err(|_| Broken::Gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SLOTS;
    use ring::{HostEnd, Region};
    use rustix::io::dup;

    /// A guest that has made a call, and a host that has heard it and sleeps.
    fn called() -> (Talk, HostEnd, Id) {
        let mut host = HostEnd::new(Region::new(1 << 20).unwrap(), SLOTS).unwrap();
        assert!(host.sleep().unwrap());
        let mut talk = Talk::open(dup(host.shared().file()).unwrap()).unwrap();
        let id = call(&mut talk);
        assert!(talk.must_ring());
        hears(&mut host, 1);
        (talk, host, id)
    }

    fn call(talk: &mut Talk) -> Id {
        let id = talk.begin(b"{}").unwrap().unwrap();
        let head = talk.put_head(id, b"{}").unwrap().unwrap();
        talk.call(id, head, Span::default(), 0).unwrap();
        id
    }

    fn hears(host: &mut HostEnd, messages: usize) {
        for _ in 0..messages {
            assert!(host.receive().unwrap().is_some());
        }
        assert!(host.sleep().unwrap());
    }

    /// The host replies with so many bytes, of which the last may be still to come.
    fn replied(talk: &mut Talk, host: &mut HostEnd, id: Id, last: bool) {
        let start = host.layout().bulk().end as u64 - 4096;
        let span = |at, length| Span {
            offset: start + at,
            length,
        };
        let head = Tell::Head {
            id,
            head: span(0, 2),
            length: None,
            row: None,
        };
        let piece = Tell::Piece {
            id,
            body: span(64, 10),
            last,
        };
        for tell in [head, piece] {
            assert!(
                !host.send(tell.message()).unwrap().must_ring,
                "the guest is awake"
            );
        }
        talk.hear();
        talk.head(id).unwrap().unwrap();
        assert_eq!(talk.read(id, &mut [0; 100]), Some(Ok(10)));
    }

    #[test]
    fn nobody_is_woken_to_hear_that_a_whole_reply_was_read() {
        let (mut talk, mut host, id) = called();
        replied(&mut talk, &mut host, id, true);
        talk.drop_call(id);
        assert!(!talk.must_ring());
        // It hears of that with the next call, for which it is woken.
        call(&mut talk);
        assert!(talk.must_ring());
        hears(&mut host, 3);
    }

    #[test]
    fn a_body_that_does_not_lie_in_its_row_is_not_kept() {
        for (at, length, is_kept) in [(0, 10, true), (1, 10, false), (0, 11, false)] {
            let (mut talk, mut host, id) = called();
            let start = host.layout().bulk().end as u64 / 2 / STEP * STEP;
            let span = |offset, length| Span { offset, length };
            let head = Tell::Head {
                id,
                head: span(start, 2),
                length: Some(10),
                row: Some(start + STEP + BEFORE),
            };
            let body = span(start + STEP + BEFORE + at, length);
            let last = true;
            for tell in [head, Tell::Piece { id, body, last }] {
                let _ = host.send(tell.message()).unwrap();
            }
            talk.hear();
            assert!(talk.keep(id, 9).unwrap().unwrap().is_none(), "it is longer");
            match is_kept {
                true => {
                    assert_eq!(talk.keep(id, 10).unwrap().unwrap().unwrap().length, 10);
                    assert!(!talk.must_ring(), "nobody waits for what is kept");
                }
                false => assert_eq!(talk.keep(id, 10).unwrap().err(), Some(Broken::Gone)),
            }
        }
    }

    #[test]
    fn a_row_that_cannot_be_is_read() {
        for row in [
            BEFORE - 1,
            BEFORE,
            STEP + BEFORE,
            100 * STEP + BEFORE + 1,
            u64::MAX,
        ] {
            let (mut talk, mut host, id) = called();
            let head = Tell::Head {
                id,
                head: Span::default(),
                length: Some(u64::MAX - 5),
                row: Some(row),
            };
            let _ = host.send(head.message()).unwrap();
            talk.hear();
            assert!(talk.keep(id, usize::MAX).unwrap().unwrap().is_none(), "{row}");
        }
    }

    #[test]
    fn who_has_more_to_say_hears_what_was_read() {
        let (mut talk, mut host, id) = called();
        replied(&mut talk, &mut host, id, false);
        assert!(talk.must_ring());
        hears(&mut host, 2);
        // Of another call, too.
        let (other, _) = (call(&mut talk), talk.must_ring());
        hears(&mut host, 1);
        replied(&mut talk, &mut host, other, true);
        assert!(talk.must_ring());
    }
}
