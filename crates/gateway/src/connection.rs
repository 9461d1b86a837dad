//! One connection: where it is in its requests, and what it still has to write.

use crate::{
    http1::{ChunkDecoder, Fed, Framing, Reject},
    later::Order,
    streams::{self, Download, Leftover, Upload},
};
use bytes::Bytes;
use calls::CallId;
use contract::{Fault, Head, Name, Origin, Party, Problem, Refusal, RequestId, Trailers, VersionNumber};
use lambda::{Claim, Invoke, Rejection};
use rustix::{
    fd::{AsRawFd as _, OwnedFd},
    io::{self, Errno},
    net::{self, SendAncillaryBuffer, SendFlags, Shutdown},
};
use std::{borrow::Cow, collections::VecDeque, hint::black_box, io::IoSlice, mem, sync::Arc, time::Instant};
use telemetry::{metrics::Sample, otlp::Span};
use worker::{Answer, Interest, Target};

pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) token: u64,
    pub(crate) origin: Origin,
    /// Whose its last request was that had a tenant.
    pub(crate) tenant: Option<Party>,
    /// What it may become.
    pub(crate) kind: Kind,
    pub(crate) phase: Phase,
    /// Bytes that were read and not taken yet.
    pub(crate) input: Vec<u8>,
    pub(crate) reply: Option<Reply>,
    /// The request in work came by Lambda's API, and is answered in its words.
    pub(crate) invoke: Option<Box<Invoke>>,
    /// The request in work is to be kept and run later: what it names.
    pub(crate) later: Option<Box<Order>>,
    /// The worker has a request of this connection.
    pub(crate) in_work: bool,
    /// What it answers is not wanted: the client was told something else.
    pub(crate) disowned: bool,
    /// The rest of that request's body.
    pub(crate) upload: Option<Box<Upload>>,
    /// Bytes of that body, if it is streamed.
    pub(crate) uploaded: u64,
    /// The response to it, if that comes in pieces.
    pub(crate) download: Option<Box<Download>>,
    /// Why the response that it gave cannot be said.
    pub(crate) fault: Option<Fault>,
    /// That request, if its trace is exported.
    pub(crate) span: Option<Box<Span>>,
    /// It was not admitted, and this was recorded of it, if its trace is exported.
    pub(crate) refused: Option<Box<Sample>>,
    /// Of the response that was made last.
    pub(crate) status: u16,
    pub(crate) manner: Manner,
    pub(crate) output: Output,
    /// The last time it got on.
    pub(crate) since: Instant,
    /// The client will send nothing more.
    pub(crate) ended: bool,
    /// What epoll was told to look for;
    pub(crate) watched: Interest,
    /// and it is to look again, because not all was read that it told of.
    pub(crate) unread: bool,
}

/// Whose connection it is, which decides whether it can leave for HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A client's that has sent no request yet.
    New,
    /// A client's.
    Known,
    /// Something else of the node holds the other end.
    Adopted,
}

pub(crate) enum Phase {
    /// Waits for a request's head, or for the rest of it.
    Head,
    /// Takes a request's body.
    Body(Box<Incoming>),
    /// A request is in work, or its answer is being written.
    Working,
    /// A request was answered whose body is not all here.
    Skipping(Box<Leftover>),
    /// The last answer is written; what still comes is discarded.
    Lingering,
    /// It goes on in HTTP/2, elsewhere, perhaps with the answer to this request.
    Leaving(Option<Box<Head>>),
}

/// What a request is collected for.
pub(crate) enum Goal {
    /// To be given to this function.
    Run(Arc<Target>),
    /// To be answered this, if it was signed by somebody who may know.
    Tell(Box<(Claim, Rejection)>),
    /// To be published among the functions of this tenant: it holds events.
    Publish(Option<Name>),
}

impl Goal {
    fn streams(&self) -> bool {
        matches!(self, Self::Run(target) if target.streams())
    }

    /// Whether it streams, and has sandboxes to spare that wait for the rest of a short body.
    fn takes_unfinished(&self) -> bool {
        matches!(self, Self::Run(target) if target.streams() && target.takes_unfinished())
    }
}

/// A request whose body is on its way.
pub(crate) struct Incoming {
    pub(crate) goal: Goal,
    pub(crate) head: Box<Head>,
    pub(crate) body: Vec<u8>,
    /// Of the body, in bytes.
    pub(crate) limit: u64,
    /// Its client pauses, perhaps to hear something first.
    pub(crate) pauses: bool,
    framing: Rest,
}

/// What is missing of a body.
pub(crate) enum Rest {
    Length(u64),
    Chunked(ChunkDecoder),
}

impl Rest {
    /// Takes what has arrived and appends the body's bytes to `body`.
    pub(crate) fn take(&mut self, bytes: &[u8], body: &mut Vec<u8>, limit: u64) -> Result<Fed, Reject> {
        match self {
            Self::Length(missing) => {
                let consumed = usize::try_from(*missing).unwrap_or(usize::MAX).min(bytes.len());
                body.extend_from_slice(&bytes[..consumed]);
                *missing -= consumed as u64;
                Ok(Fed {
                    consumed,
                    done: *missing == 0,
                })
            }
            Self::Chunked(decoder) => decoder.feed(bytes, body, limit),
        }
    }

    /// What came behind the body, once that is complete.
    pub(crate) fn trailers(&self) -> Trailers {
        match self {
            Self::Length(_) => Trailers::new(),
            Self::Chunked(decoder) => streams::parse_trailers(decoder.trailers()),
        }
    }
}

/// How the request in work wants to be answered.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) keep_alive: bool,
    pub(crate) http10: bool,
    pub(crate) to_head: bool,
    /// The client reads trailers.
    pub(crate) trailers: bool,
}

/// The name of a header of the gateway's own, and its value.
pub(crate) type Header = (&'static str, Cow<'static, str>);

/// What a request came to, before it is written.
pub(crate) enum Reply {
    /// From the worker.
    Answer(Box<Answer>),
    /// From the gateway.
    Problem {
        problem: Box<Problem>,
        id: RequestId,
        arrived: Instant,
        /// What the status asks for beside the problem: `Allow`, `Retry-After`.
        header: Option<Header>,
    },
    /// It was not admitted.
    Refused {
        refusal: Refusal,
        id: RequestId,
        arrived: Instant,
    },
    /// From the gateway, in the words of Lambda's API.
    Rejection {
        rejection: Box<Rejection>,
        id: RequestId,
        arrived: Instant,
    },
    /// A `DryRun` that could have been an invocation.
    Dry {
        version: VersionNumber,
        id: RequestId,
        arrived: Instant,
    },
    /// A call that is kept.
    Accepted { id: RequestId, arrived: Instant },
    /// Events whose calls are kept.
    Published {
        calls: Vec<CallId>,
        id: RequestId,
        arrived: Instant,
    },
    /// Text of the gateway's own.
    Text {
        status: u16,
        text: &'static str,
        arrived: Instant,
    },
}

impl Incoming {
    /// Fails with the body's length if that is known to be more than `limit` bytes.
    pub(crate) fn new(goal: Goal, head: Box<Head>, framing: Framing, limit: u64) -> Result<Self, u64> {
        let (framing, capacity) = match framing {
            Framing::None => (Rest::Length(0), 0),
            Framing::Length(length) if length > limit => return Err(length),
            // Bounded by the limit, which fits an address space.
            Framing::Length(length) => {
                let capacity = usize::try_from(length).unwrap_or(usize::MAX);
                let most = if goal.streams() {
                    streams::COLLECTED
                } else {
                    MOST_AHEAD
                };
                (Rest::Length(length), capacity.min(most))
            }
            Framing::Chunked => (Rest::Chunked(ChunkDecoder::new()), 0),
        };
        Ok(Self {
            goal,
            head,
            body: Vec::with_capacity(capacity),
            limit,
            pauses: false,
            framing,
        })
    }

    /// Takes what has arrived; says how much, and whether the body is complete.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Result<Fed, Reject> {
        self.framing.take(bytes, &mut self.body, self.limit)
    }

    /// Whether its function is better told of it before it is complete, or of what came behind it.
    pub(crate) fn streams(&self, done: bool) -> bool {
        match (&self.framing, done) {
            (_, false) if self.body.len() >= streams::COLLECTED => self.goal.streams(),
            (_, false) => (!self.body.is_empty() || self.pauses) && self.goal.takes_unfinished(),
            (Rest::Chunked(decoder), true) => !decoder.trailers().is_empty() && self.goal.streams(),
            (Rest::Length(_), true) => false,
        }
    }

    /// Splits it into what is sent on, and what decodes the rest.
    pub(crate) fn split(self) -> (Goal, Box<Head>, Vec<u8>, Rest) {
        (self.goal, self.head, self.body, self.framing)
    }
}

/// A body's buffer grows with what arrives: a client's announcement alone reserves no more than this.
const MOST_AHEAD: usize = 1 << 20;
/// Bodies up to this are copied behind their head, so that one write of one piece does.
const COPIED: usize = 16 << 10;
/// Pieces of one write.
const PIECES: usize = 16;

/// What is left to write.
#[derive(Default)]
pub(crate) struct Output {
    head: Vec<u8>,
    written: usize,
    bodies: VecDeque<Bytes>,
}

impl Output {
    /// Takes a buffer, if it has none.
    pub(crate) fn borrow(&mut self, spare: &mut Vec<u8>) {
        if self.head.capacity() == 0 {
            mem::swap(&mut self.head, spare);
        }
    }

    /// Gives its buffer away once all is written: a connection that waits keeps none, and what the core writes next goes where its
    /// caches still have it.
    pub(crate) fn give_back(&mut self, spare: &mut Vec<u8>) {
        if self.is_empty() {
            let buffer = mem::take(&mut self.head);
            if (1..=2 * COPIED).contains(&buffer.capacity()) {
                *spare = buffer;
            }
        }
    }

    /// Where heads and small bodies are appended.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.head
    }

    pub(crate) fn body(&mut self, piece: Bytes) {
        if self.bodies.is_empty() && piece.len() <= COPIED {
            self.head.extend_from_slice(&piece);
        } else {
            self.bodies.push_back(piece);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written == self.head.len() && self.bodies.is_empty()
    }

    /// Bytes that are not written.
    pub(crate) fn len(&self) -> usize {
        self.head.len() - self.written + self.bodies.iter().map(Bytes::len).sum::<usize>()
    }

    /// Where the output ends now.
    pub(crate) fn mark(&self) -> (usize, usize) {
        (self.head.len(), self.bodies.len())
    }

    /// Takes back what was added since [`Output::mark`], none of which has been written.
    pub(crate) fn rewind(&mut self, (head, bodies): (usize, usize)) {
        self.head.truncate(head);
        self.bodies.truncate(bodies);
    }

    /// A chunk (RFC 9112, section 7.1).
    pub(crate) fn chunk(&mut self, piece: Bytes) {
        let size = format!("{:x}\r\n", piece.len());
        if self.bodies.is_empty() && piece.len() <= COPIED {
            self.head.extend_from_slice(size.as_bytes());
            self.head.extend_from_slice(&piece);
            self.head.extend_from_slice(b"\r\n");
        } else {
            self.bodies.push_back(size.into_bytes().into());
            self.bodies.push_back(piece);
            self.bodies.push_back(Bytes::from_static(b"\r\n"));
        }
    }

    /// The last chunk, and what trails it.
    pub(crate) fn last_chunk<'a>(&mut self, trailers: impl IntoIterator<Item = (&'a str, &'a [u8])>) {
        let mut last = b"0\r\n".to_vec();
        for (name, value) in trailers {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                last.extend_from_slice(part);
            }
        }
        last.extend_from_slice(b"\r\n");
        self.body(last.into());
    }

    /// Writes what the socket takes. `Ok(true)` if that was all.
    pub(crate) fn write(&mut self, socket: &OwnedFd, sent: &mut u64) -> io::Result<bool> {
        while !self.is_empty() {
            let head = &self.head[self.written..];
            let result = if self.bodies.is_empty() {
                net::send(socket, head, SendFlags::NOSIGNAL)
            } else {
                let pieces: smallvec::SmallVec<[IoSlice<'_>; PIECES]> = std::iter::once(head)
                    .filter(|head| !head.is_empty())
                    .chain(self.bodies.iter().map(|body| &body[..]))
                    .take(PIECES)
                    .map(IoSlice::new)
                    .collect();
                net::sendmsg(
                    socket,
                    &pieces,
                    &mut SendAncillaryBuffer::default(),
                    SendFlags::NOSIGNAL,
                )
            };
            match result {
                Ok(written) => {
                    *sent += written as u64;
                    self.advance(written);
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.head.clear();
        Ok(true)
    }

    fn advance(&mut self, written: usize) {
        let from_head = written.min(self.head.len() - self.written);
        self.written += from_head;
        let mut left = written - from_head;
        while left > 0
            && let Some(body) = self.bodies.front_mut()
        {
            if body.len() > left {
                *body = body.slice(left..);
                return;
            }
            left -= body.len();
            self.bodies.pop_front();
        }
    }
}

impl Connection {
    /// Reads what its next request begins with: among many connections it is no longer in the core's caches.
    pub(crate) fn prefetch(&self) {
        black_box((
            matches!(self.phase, Phase::Head),
            self.socket.as_raw_fd(),
            self.input.len(),
            self.reply.is_some(),
            self.fault.is_some(),
            self.upload.is_some(),
            self.origin.secure,
            self.output.written,
            self.output.bodies.len(),
            self.since,
            self.watched,
        ));
    }

    pub(crate) fn new(socket: OwnedFd, token: u64, origin: Origin, kind: Kind, now: Instant) -> Self {
        Self {
            socket,
            token,
            origin,
            tenant: None,
            kind,
            phase: Phase::Head,
            input: Vec::new(),
            reply: None,
            invoke: None,
            later: None,
            in_work: false,
            disowned: false,
            upload: None,
            uploaded: 0,
            download: None,
            fault: None,
            span: None,
            refused: None,
            status: 0,
            manner: Manner {
                keep_alive: true,
                http10: false,
                to_head: false,
                trailers: false,
            },
            output: Output::default(),
            since: now,
            ended: false,
            watched: Interest {
                input: true,
                output: false,
            },
            unread: false,
        }
    }

    /// Between two requests, with nothing of the next one here.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head) && self.input.is_empty() && self.output.is_empty()
    }

    /// Owes no answer.
    pub(crate) fn is_quiet(&self) -> bool {
        !matches!(self.phase, Phase::Working)
    }

    /// Whether the request whose body is being taken is one that [`Incoming::streams`]. Calls and Lambda's API give theirs whole.
    pub(crate) fn streams(&self, done: bool) -> bool {
        matches!(&self.phase, Phase::Body(incoming) if incoming.streams(done))
            && self.invoke.is_none()
            && self.later.is_none()
    }

    /// The body that was being taken, if one was and it is due.
    pub(crate) fn take_incoming_if(&mut self, due: bool) -> Option<Box<Incoming>> {
        match mem::replace(&mut self.phase, Phase::Working) {
            Phase::Body(incoming) if due => Some(incoming),
            other => {
                self.phase = other;
                None
            }
        }
    }

    /// Our side is done; the client may not have read it yet.
    pub(crate) fn linger(&mut self) {
        self.phase = Phase::Lingering;
        self.input = Vec::new();
        // It fails only for a connection that is gone, which the next event tells.
        let _ = net::shutdown(&self.socket, Shutdown::Write);
    }
}
