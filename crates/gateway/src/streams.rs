//! Bodies that are too long to be collected: a request's on its way to its function, a response's on its way from it.
//!
//! Each is a flow of the worker with an end of ours. A full flow stops the reading of its connection, and a client that
//! does not read stops its function, so that what waits in memory is bounded whatever the length.

use crate::{
    connection::{Manner, Output, Rest},
    http1::{Fed, Reject, ResponseLine, write_head},
};
use bytes::Bytes;
use contract::{BodyError, BodyStream as _, Fault, ResponseHead, Trailers};
use flow::{Receiver, Sender};
use std::{
    io::Write as _,
    task::{Poll, Waker},
    time::Duration,
};
use trailers::may_trail;
use worker::Opening;

/// A body that is longer than this goes to a function that takes streams before it is complete, whatever else goes on; a shorter
/// one if not all of it came at once and the function has places to spare. In bytes.
pub(crate) const COLLECTED: usize = 64 << 10;
/// What one turn of the core moves of one response, in bytes: others have their turn between.
const TURN: usize = 1 << 20;
/// What is framed before it is written, in bytes.
const AHEAD: usize = 128 << 10;

/// A request's body, the rest of which is on its way.
pub(crate) struct Upload {
    /// None once nobody wants it: the rest is read and dropped.
    sender: Option<Sender>,
    framing: Rest,
    limit: u64,
    /// Bytes of it that have come.
    length: u64,
    /// The function is behind: nothing more is read.
    full: bool,
}

impl Upload {
    /// `begun` has been decoded already.
    pub(crate) fn new(sender: Sender, begun: Vec<u8>, framing: Rest, limit: u64) -> Self {
        let length = begun.len() as u64;
        sender.send(begun.into());
        Self {
            sender: Some(sender),
            framing,
            limit,
            length,
            full: false,
        }
    }

    /// Takes what has arrived; says how much, and whether the body is complete. Takes nothing while [`Upload::is_full`].
    pub(crate) fn take(&mut self, bytes: &[u8], waker: &Waker) -> Result<(Fed, usize), Reject> {
        let mut body = Vec::new();
        let fed = self.framing.take(bytes, &mut body, self.limit)?;
        let length = body.len();
        self.length += length as u64;
        if let Some(sender) = &self.sender {
            sender.send(body.into());
        }
        if fed.done {
            if let Some(sender) = self.sender.take() {
                sender.end(self.framing.trailers());
            }
        } else {
            self.look(waker);
        }
        Ok((fed, length))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.full
    }

    /// Whether there is room now that was not before.
    pub(crate) fn has_opened(&mut self, waker: &Waker) -> bool {
        let before = self.full;
        self.look(waker);
        before && !self.full
    }

    fn look(&mut self, waker: &Waker) {
        let room = self.sender.as_ref().map(|sender| sender.poll_room(waker));
        self.full = matches!(room, Some(Poll::Pending));
        if matches!(room, Some(Poll::Ready(Err(_)))) {
            self.sender = None;
        }
    }

    /// The rest of it is not to be had.
    pub(crate) fn fail(&mut self) {
        if let Some(sender) = self.sender.take() {
            sender.fail(BodyError::Bad);
        }
    }

    /// Whether the rest of it can be read though nobody wants it, for the sake of its connection.
    pub(crate) fn is_short(&self) -> bool {
        let missing = match self.framing {
            Rest::Length(missing) => missing,
            // That is not known.
            Rest::Chunked(_) => 0,
        };
        self.length.saturating_add(missing) <= COLLECTED as u64
    }

    /// Its function has answered and reads no more of it: what is to be skipped, if it [`is_short`](Self::is_short).
    pub(crate) fn forsake(self) -> Option<Leftover> {
        self.is_short().then_some(Leftover(self.framing))
    }
}

/// The rest of a request's body behind which its connection goes on: it is read and dropped.
pub(crate) struct Leftover(Rest);

impl Leftover {
    /// Drops what has arrived; says how much, and whether that was the rest of it. Fails if the whole body is longer than one
    /// may be that nobody reads.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Fed, Reject> {
        self.0.take(bytes, &mut Vec::new(), COLLECTED as u64)
    }
}

/// A response whose body comes in pieces.
pub(crate) struct Download {
    /// Until it is written.
    head: Option<ResponseHead>,
    pub(crate) status: u16,
    request_id: [u8; 32],
    waits: (Duration, Duration),
    body: Receiver,
    framing: Framing,
    state: State,
    /// Bytes of the body so far.
    pub(crate) sent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Chunked,
    /// As many bytes are missing.
    Length(u64),
    /// It ends with its connection.
    Closed,
    /// There is no body.
    None,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// More may come.
    Open,
    /// There is more than one turn moves.
    Busy,
    Ended,
    Broken,
}

impl Download {
    pub(crate) fn new(opening: Opening) -> Self {
        Self {
            status: opening.head.status,
            head: Some(opening.head),
            request_id: opening.id.hex(),
            waits: (opening.queue, opening.boot),
            body: opening.body,
            framing: Framing::None,
            state: State::Open,
            sent: 0,
        }
    }

    /// Nothing of it has left: another answer can take its place.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.head.is_some()
    }

    /// All of it is in the output.
    pub(crate) fn is_ended(&self) -> bool {
        self.state == State::Ended
    }

    /// It will not come to its end.
    pub(crate) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// There is more to move, once the output is written.
    pub(crate) fn is_busy(&self) -> bool {
        self.state == State::Busy
    }

    /// Moves what there is to the output, up to a bound. Fails, with nothing moved, if its head cannot be said in HTTP.
    pub(crate) fn pump(
        &mut self,
        output: &mut Output,
        manner: &mut Manner,
        date: [u8; 29],
        waker: &Waker,
    ) -> Result<(), Fault> {
        let mut moved = 0;
        // What could still be taken back: its head, and where it begins in the output.
        let mut begun = None;
        self.state = loop {
            if output.len() >= AHEAD || moved >= TURN {
                break State::Busy;
            }
            let next = self.body.poll_next(waker);
            if matches!(next, Poll::Ready(Err(_))) {
                if let Some((mark, head)) = begun {
                    // The answer says why, in its place.
                    output.rewind(mark);
                    self.head = Some(head);
                }
                break State::Broken;
            }
            if let Some(head) = self.head.take() {
                let mark = output.mark();
                self.begin(&head, output, manner, date)?;
                begun = Some((mark, head));
            }
            match next {
                Poll::Pending | Poll::Ready(Err(_)) => break State::Open,
                Poll::Ready(Ok(None)) => break State::Ended,
                Poll::Ready(Ok(Some(piece))) => {
                    moved += piece.len();
                    if self.frame(piece, output) {
                        continue;
                    }
                    let Some((mark, _)) = begun else {
                        break State::Broken;
                    };
                    output.rewind(mark);
                    return Err(Fault::BadOutput {
                        reason: "its body is longer than its `Content-Length`".into(),
                    });
                }
            }
        };
        Ok(())
    }

    fn begin(
        &mut self,
        head: &ResponseHead,
        output: &mut Output,
        manner: &mut Manner,
        date: [u8; 29],
    ) -> Result<(), Fault> {
        let declared = declared(head);
        self.framing = match declared {
            Some(length) => Framing::Length(length),
            None if manner.http10 => Framing::Closed,
            None => Framing::Chunked,
        };
        if self.framing == Framing::Closed {
            manner.keep_alive = false;
        }
        let line = ResponseLine {
            status: head.status,
            length: declared,
            to_head: manner.to_head,
            keep_alive: manner.keep_alive,
            http10: manner.http10,
            date: Some(date),
        };
        let mut timing = Vec::new();
        let (queue, boot) = self.waits;
        // Writing to memory does not fail.
        let _ = write!(
            timing,
            "queue;dur={:.3}, boot;dur={:.3}",
            queue.as_secs_f64() * 1e3,
            boot.as_secs_f64() * 1e3
        );
        let ours = [
            ("Server-Timing", &timing[..]),
            ("X-Request-Id", &self.request_id[..]),
        ];
        let theirs = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_ref()));
        let theirs = theirs.filter(|(name, _)| !ours.iter().any(|(our, _)| our.eq_ignore_ascii_case(name)));
        let written = write_head(output.head(), &line, theirs, &ours);
        match written {
            Ok(true) => {}
            Ok(false) => self.framing = Framing::None,
            Err(bad) => {
                return Err(Fault::BadOutput {
                    reason: bad.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Adds a piece to the output; `false` if it is more than the head has promised.
    fn frame(&mut self, piece: Bytes, output: &mut Output) -> bool {
        let length = piece.len() as u64;
        self.sent += length;
        match &mut self.framing {
            Framing::None => {}
            Framing::Closed => output.body(piece),
            Framing::Chunked => output.chunk(piece),
            Framing::Length(missing) => match missing.checked_sub(length) {
                Some(left) => {
                    *missing = left;
                    output.body(piece);
                }
                None => return false,
            },
        }
        true
    }

    /// Ends the body, with the `Server-Timing` of what its head could not know. `false` if it is shorter than was said: only
    /// closing the connection can tell.
    pub(crate) fn conclude(&mut self, output: &mut Output, manner: Manner, timing: &[u8]) -> bool {
        match self.framing {
            Framing::Length(missing) => missing == 0,
            Framing::Closed | Framing::None => true,
            Framing::Chunked => {
                let trailers = self.body.trailers();
                let all = shown(&trailers).chain([("Server-Timing", timing)]);
                output.last_chunk(all.filter(|_| manner.trailers));
                true
            }
        }
    }
}

/// The `Content-Length` that a function gave its response.
pub(crate) fn declared(head: &ResponseHead) -> Option<u64> {
    let mut headers = head.headers.iter();
    let (_, value) = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Of a function's trailers, those that may be.
pub(crate) fn shown(trailers: &Trailers) -> impl Iterator<Item = (&str, &[u8])> {
    let all = trailers
        .iter()
        .map(|(name, value)| (name.as_ref(), value.as_ref()));
    all.filter(|(name, _)| may_trail(name))
}

/// The trailer section of a request, as it came.
pub(crate) fn parse_trailers(section: &[u8]) -> Trailers {
    let lines = section.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let colon = line.iter().position(|byte| *byte == b':')?;
            let name = std::str::from_utf8(&line[..colon]).ok()?;
            let value = line[colon + 1..].trim_ascii();
            (may_trail(name) && !name.contains('_'))
                .then(|| (name.to_owned().into(), Bytes::copy_from_slice(value)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::ChunkDecoder;

    fn upload(framing: Rest, begun: &[u8]) -> Upload {
        Upload::new(flow::flow().0, begun.to_vec(), framing, u64::MAX)
    }

    #[test]
    fn the_rest_of_a_short_body_is_skipped() {
        for framing in [Rest::Length(5), Rest::Chunked(ChunkDecoder::new())] {
            let (first, last): (&[u8], &[u8]) = match framing {
                Rest::Length(_) => (b"ab", b"cde"),
                Rest::Chunked(_) => (b"5\r\nab", b"cde\r\n0\r\n\r\n"),
            };
            let mut leftover = upload(framing, b"begun").forsake().unwrap();
            assert!(!leftover.take(first).unwrap().done);
            let fed = leftover.take(&[last, b"GET"].concat()).unwrap();
            assert_eq!((fed.consumed, fed.done), (last.len(), true));
        }
    }

    #[test]
    fn the_rest_of_a_long_body_is_not() {
        let begun = vec![0; COLLECTED - 10];
        assert!(upload(Rest::Length(10), &begun).is_short());
        assert!(upload(Rest::Length(11), &begun).forsake().is_none());
        assert!(upload(Rest::Length(u64::MAX), &begun).forsake().is_none());
        let chunked = || Rest::Chunked(ChunkDecoder::new());
        assert!(upload(chunked(), &[0; COLLECTED + 1]).forsake().is_none());
        let mut leftover = upload(chunked(), &begun).forsake().unwrap();
        assert!(
            leftover.take(b"10001\r\n").is_err(),
            "it is longer than it seemed"
        );
    }
}
