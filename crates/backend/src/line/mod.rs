//! Calls of the node's own, each on a socket of its own: a **line**.
//!
//! ```text
//!   near end, in the node                       far end, in the backend
//!     Grant, Call, Piece …, End ───────────────▶ service ──▶ the other side
//!     ◀─────────── Begun, Head, Piece …, End ───┘
//! ```
//!
//! Both ends are the platform's, and a body that a sandbox of Wasm sends or reads lies in the node's memory anyway. So there is no memory to share and no rule
//! that the other end could break to its profit; what is left to be wanted is that thousands of calls may wait: each takes a descriptor of the node's, no map,
//! and no memory until something comes. The socket holds a sender back whose bytes nobody reads, tells that the other end has gone, and gives a call up by
//! being closed. A body has trailers, and a length that nobody needs to know before.
//!
//! What either end reads is checked all the same: the far one reads what strangers' servers send.

mod far;
mod near;

pub(crate) use far::serve;
pub use near::Lines;

use crate::call::{Fields, read, written};
use bytes::{Buf, Bytes, BytesMut};
use contract::{
    BodyError, BodyStream, CallError, FunctionId, Grant, HttpGrant, SecretName, Trailers, VersionNumber,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    collections::VecDeque,
    future::poll_fn,
    io, mem,
    num::NonZeroU32,
    os::{fd::OwnedFd, unix::net::UnixStream as Socket},
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};
use tokio::net::UnixStream;

/// Bytes of a piece of a body.
const PIECE: usize = 64 << 10;

/// Bytes of all else that is said at once.
const LARGEST: usize = 4 << 20;

/// Bytes that are read at once, at first and at most.
const FIRST_READ: usize = 2 << 10;
const READ: usize = 64 << 10;

/// Before each: what it is, and how many bytes.
const PREFIX: usize = 5;

/// What one end says to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    /// For whom what comes next is asked: [`Granted`].
    Grant(Bytes),
    /// What is asked: [`Asked`].
    Call(Bytes),
    /// The call is made, and its body is wanted.
    Begun,
    /// The reply begins: [`crate::call::ReplyHead`].
    Head(Bytes),
    /// Bytes of a body.
    Piece(Bytes),
    /// The body's end, with its trailers.
    End(Trailers),
    /// The body breaks off.
    Broke(BodyError),
    /// There is no reply.
    Failed(CallError),
}

/// To whom a service is bound.
#[derive(Debug, Serialize, Deserialize)]
struct Granted {
    service: String,
    function: FunctionId,
    version: NonZeroU32,
    http: Vec<HttpGrant>,
}

impl Granted {
    fn of(service: &str, grant: &Grant) -> Self {
        Self {
            service: service.to_owned(),
            function: grant.function.clone(),
            version: grant.version.0,
            http: grant.http.clone(),
        }
    }

    fn grant(self) -> Grant {
        Grant {
            version: VersionNumber(self.version),
            http: self.http,
            ..Grant::nothing(self.function)
        }
    }
}

/// A call, less its body.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    operation: String,
    target: String,
    parameters: Fields,
    /// Whether it has a body, which comes behind it.
    has_body: bool,
    /// Whether the body waits for [`Said::Begun`].
    waits: bool,
}

/// [`CallError`] on its way.
#[derive(Serialize, Deserialize)]
enum Wrong {
    Denied(String),
    Unset(SecretName),
    Target(String),
    Name(String),
    Address(String),
    Refused(String),
    Timeout(String),
    Secure(String),
    Busy,
    Broken(String),
}

/// What can take too long, in the words of the services.
const LATE: [&str; 2] = ["the connection", "the beginning of a reply"];

impl From<CallError> for Wrong {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Denied(what) => Self::Denied(what),
            CallError::Unset(name) => Self::Unset(name),
            CallError::Target(what) => Self::Target(what),
            CallError::Name(what) => Self::Name(what),
            CallError::Address(what) => Self::Address(what),
            CallError::Refused(what) => Self::Refused(what),
            CallError::Timeout(what) => Self::Timeout(what.to_owned()),
            CallError::Secure(what) => Self::Secure(what),
            CallError::Busy => Self::Busy,
            CallError::Broken(what) => Self::Broken(what),
            other => Self::Broken(other.to_string()),
        }
    }
}

impl From<Wrong> for CallError {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Denied(what) => Self::Denied(what),
            Wrong::Unset(name) => Self::Unset(name),
            Wrong::Target(what) => Self::Target(what),
            Wrong::Name(what) => Self::Name(what),
            Wrong::Address(what) => Self::Address(what),
            Wrong::Refused(what) => Self::Refused(what),
            Wrong::Timeout(what) => {
                Self::Timeout(LATE.into_iter().find(|late| *late == what).unwrap_or("the call"))
            }
            Wrong::Secure(what) => Self::Secure(what),
            Wrong::Busy => Self::Busy,
            Wrong::Broken(what) => Self::Broken(what),
        }
    }
}

/// [`BodyError`] on its way.
const BREAKS: [BodyError; 4] = [
    BodyError::Gone,
    BodyError::Bad,
    BodyError::Slow,
    BodyError::Damaged,
];

impl Said {
    /// Adds it to what is sent.
    fn write(self, to: &mut Vec<u8>) {
        match self {
            Self::Grant(bytes) => put(to, 1, &bytes),
            Self::Call(bytes) => put(to, 2, &bytes),
            Self::Begun => put(to, 3, &[]),
            Self::Head(bytes) => put(to, 4, &bytes),
            Self::Piece(bytes) => bytes.chunks(PIECE).for_each(|piece| put(to, 5, piece)),
            Self::End(trailers) if trailers.is_empty() => put(to, 6, &[]),
            Self::End(trailers) => match encoded(&written(trailers)) {
                large if large.len() > LARGEST => Self::Broke(BodyError::Bad).write(to),
                trailers => put(to, 6, &trailers),
            },
            Self::Broke(error) => {
                let number = BREAKS.iter().position(|one| *one == error);
                put(to, 7, &[number.unwrap_or_default() as u8]);
            }
            Self::Failed(error) => match encoded(&Wrong::from(error)) {
                large if large.len() > LARGEST => Self::Failed(CallError::Broken(TOO_LONG.into())).write(to),
                wrong => put(to, 8, &wrong),
            },
        }
    }

    fn read(kind: u8, bytes: Bytes) -> io::Result<Self> {
        Ok(match kind {
            1 => Self::Grant(bytes),
            2 => Self::Call(bytes),
            3 => Self::Begun,
            4 => Self::Head(bytes),
            5 => Self::Piece(bytes),
            6 if bytes.is_empty() => Self::End(Trailers::new()),
            6 => Self::End(read(decoded(&bytes)?)),
            7 => {
                let number = bytes.first().map_or(usize::MAX, |number| usize::from(*number));
                Self::Broke(*BREAKS.get(number).ok_or(io::ErrorKind::InvalidData)?)
            }
            8 => Self::Failed(decoded::<Wrong>(&bytes)?.into()),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        })
    }
}

fn put(to: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    // None is longer than `LARGEST`.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    to.push(kind);
    to.extend_from_slice(&length.to_le_bytes());
    to.extend_from_slice(bytes);
}

/// Of a reason that is larger than can be said.
const TOO_LONG: &str = "there is no reply, for a reason that is too long to be told";

fn encoded(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn decoded<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    serde_json::from_slice(bytes).map_err(io::Error::from)
}

/// Takes in what the other end says.
struct Ear {
    socket: Arc<UnixStream>,
    taken: BytesMut,
    /// Bytes of the next reading: more once that was full.
    reading: usize,
    /// What was looked at and is still to be heard.
    ahead: VecDeque<Said>,
    /// It has said what nobody says.
    is_broken: bool,
}

impl Ear {
    fn new(socket: Arc<UnixStream>) -> Self {
        Self {
            socket,
            taken: BytesMut::new(),
            reading: FIRST_READ,
            ahead: VecDeque::new(),
            is_broken: false,
        }
    }

    /// What it says next; `None` if it has gone. Nothing is lost if this is given up.
    async fn next(&mut self) -> io::Result<Option<Said>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// The same, on any thread.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Said>>> {
        loop {
            if let Some(said) = self.here()? {
                return Poll::Ready(Ok(Some(said)));
            }
            if self.taken.is_empty() {
                // Nobody knows how long it will be silent.
                self.taken = BytesMut::new();
            }
            ready!(self.socket.poll_read_ready(context))?;
            self.taken.reserve(self.reading);
            match self.socket.try_read_buf(&mut self.taken) {
                Ok(0) => return Poll::Ready(Ok(None)),
                Ok(_) => {
                    if self.taken.len() == self.taken.capacity() {
                        self.reading = (2 * self.reading).min(READ);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// A short body, if all of it is here.
    fn whole(&mut self) -> Option<Bytes> {
        let mut body = Bytes::new();
        // What is broken shows when it is heard.
        while let Ok(Some(said)) = self.here() {
            match said {
                Said::Piece(piece) if body.is_empty() => body = piece,
                Said::End(trailers) if trailers.is_empty() => return Some(body),
                other => {
                    self.ahead.push_front(other);
                    break;
                }
            }
        }
        if !body.is_empty() {
            self.ahead.push_front(Said::Piece(body));
        }
        None
    }

    /// What it has said already.
    fn here(&mut self) -> io::Result<Option<Said>> {
        if let Some(said) = self.ahead.pop_front() {
            return Ok(Some(said));
        }
        let Some((prefix, rest)) = self.taken.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [kind, length @ ..] = *prefix;
        let length = u32::from_le_bytes(length) as usize;
        if self.is_broken || length > LARGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if rest.len() < length {
            return Ok(None);
        }
        self.taken.advance(PREFIX);
        let said = Said::read(kind, self.taken.split_to(length).freeze());
        self.is_broken = said.is_err();
        said.map(Some)
    }
}

/// A body as it comes.
struct Coming {
    ear: Ear,
    trailers: Trailers,
    end: Option<Result<(), BodyError>>,
}

impl Coming {
    fn new(ear: Ear) -> Self {
        Self {
            ear,
            trailers: Trailers::new(),
            end: None,
        }
    }
}

impl BodyStream for Coming {
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            if let Some(end) = self.end {
                return Poll::Ready(end.map(|()| None));
            }
            self.end = Some(match ready!(self.ear.poll(&mut Context::from_waker(waker))) {
                Ok(Some(Said::Piece(piece))) if piece.is_empty() => continue,
                Ok(Some(Said::Piece(piece))) => return Poll::Ready(Ok(Some(piece))),
                Ok(Some(Said::End(trailers))) => {
                    self.trailers = trailers;
                    Ok(())
                }
                Ok(Some(Said::Broke(error))) => Err(error),
                // The other end has gone, or says what is no body's.
                _ => Err(BodyError::Gone),
            });
        }
    }

    fn trailers(&mut self) -> Trailers {
        mem::take(&mut self.trailers)
    }
}

/// Sends all of it, as fast as it is taken.
async fn send(socket: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Of a body, its pieces to its end, from the first of these on.
async fn send_body(
    socket: &UnixStream,
    mut words: Vec<u8>,
    mut first: Option<Bytes>,
    body: &mut dyn BodyStream,
) -> io::Result<()> {
    loop {
        let next = match first.take() {
            Some(piece) => Ok(Some(piece)),
            None => next_of(socket, &mut words, body).await?,
        };
        let is_over = !matches!(next, Ok(Some(_)));
        let said = match next {
            Ok(Some(piece)) => Said::Piece(piece),
            Ok(None) => Said::End(body.trailers()),
            Err(error) => Said::Broke(error),
        };
        said.write(&mut words);
        if is_over || words.len() >= READ {
            send(socket, &words).await?;
            words = Vec::new();
        }
        if is_over {
            return Ok(());
        }
    }
}

/// The next piece of a body. While it is waited for, what came before is on its way, and takes no memory.
async fn next_of(
    socket: &UnixStream,
    words: &mut Vec<u8>,
    body: &mut dyn BodyStream,
) -> io::Result<Result<Option<Bytes>, BodyError>> {
    if !words.is_empty() {
        if let Poll::Ready(next) = poll_fn(|context| Poll::Ready(body.poll_next(context.waker()))).await {
            return Ok(next);
        }
        send(socket, words).await?;
        *words = Vec::new();
    }
    Ok(poll_fn(|context| body.poll_next(context.waker())).await)
}

/// One end of a line, on the runtime that this is called on.
fn end(socket: OwnedFd) -> io::Result<Arc<UnixStream>> {
    let socket = Socket::from(socket);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket).map(Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> (UnixStream, Ear) {
        let (near, far) = UnixStream::pair().unwrap();
        (near, Ear::new(Arc::new(far)))
    }

    fn everything() -> Vec<Said> {
        let trailers = vec![("x-sum".into(), Bytes::from_static(b"\xff\x00 \"1\""))];
        let errors = [
            CallError::Denied("the host x".to_owned()),
            CallError::Unset("KEY".parse().unwrap()),
            CallError::Target("x".to_owned()),
            CallError::Name("x".to_owned()),
            CallError::Address("x".to_owned()),
            CallError::Refused("x".to_owned()),
            CallError::Timeout(LATE[0]),
            CallError::Timeout(LATE[1]),
            CallError::Secure("x".to_owned()),
            CallError::Busy,
            CallError::Broken("x".to_owned()),
        ];
        let mut all = vec![
            Said::Grant(Bytes::from_static(b"{}")),
            Said::Call(Bytes::from(vec![b'x'; 300_000])),
            Said::Begun,
            Said::Head(Bytes::from_static(b"head")),
            Said::Piece(Bytes::from(vec![7; PIECE])),
            Said::Piece(Bytes::from_static(b"1")),
            Said::End(Trailers::new()),
            Said::End(trailers),
        ];
        all.extend(BREAKS.map(Said::Broke));
        all.extend(errors.map(Said::Failed));
        all
    }

    #[tokio::test]
    async fn what_is_said_is_heard_in_whatever_parts_it_comes() {
        let mut words = Vec::new();
        everything().into_iter().for_each(|said| said.write(&mut words));
        for part in [1, 7, 4096, words.len()] {
            let (near, mut ear) = line();
            let words = words.clone();
            let speaking = tokio::spawn(async move {
                for bytes in words.chunks(part) {
                    send(&near, bytes).await.unwrap();
                }
            });
            for said in everything() {
                assert_eq!(ear.next().await.unwrap(), Some(said), "in parts of {part}");
            }
            speaking.await.unwrap();
            assert_eq!(ear.next().await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn what_nobody_says_is_an_error() {
        let number = |length: u32| length.to_le_bytes();
        for (kind, length, bytes) in [
            (0, 0, &b""[..]),
            (9, 0, b""),
            (7, 0, b""),
            (7, 1, b"\x04"),
            (8, 2, b"{}"),
            (6, 1, b"x"),
            (5, LARGEST as u32 + 1, b""),
            (5, u32::MAX, b""),
        ] {
            let (near, mut ear) = line();
            let words = [&[kind][..], &number(length), bytes].concat();
            send(&near, &words).await.unwrap();
            assert!(ear.next().await.is_err(), "{kind} {length}");
        }
        // What breaks off is nothing.
        let (near, mut ear) = line();
        send(&near, &[5, 10, 0, 0, 0, 1, 2]).await.unwrap();
        drop(near);
        assert_eq!(ear.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_too_large_to_be_told_is_told_so() {
        let large = Bytes::from(vec![b'x'; LARGEST]);
        let mut words = Vec::new();
        Said::End(vec![("x".into(), large.clone())]).write(&mut words);
        let text = String::from_utf8(large.to_vec()).unwrap();
        Said::Failed(CallError::Broken(text)).write(&mut words);
        let (near, mut ear) = line();
        send(&near, &words).await.unwrap();
        assert_eq!(ear.next().await.unwrap(), Some(Said::Broke(BodyError::Bad)));
        let failed = Said::Failed(CallError::Broken(TOO_LONG.to_owned()));
        assert_eq!(ear.next().await.unwrap(), Some(failed));
    }

    #[tokio::test]
    async fn who_listens_for_long_keeps_no_memory_for_it() {
        let (near, mut ear) = line();
        let mut words = Vec::new();
        for _ in 0..100 {
            Said::Piece(Bytes::from(vec![1; PIECE])).write(&mut words);
        }
        let speaking = tokio::spawn(async move {
            send(&near, &words).await.unwrap();
            near
        });
        for _ in 0..100 {
            ear.next().await.unwrap();
        }
        let _near = speaking.await.unwrap();
        assert_eq!(ear.reading, READ, "it was read fast");
        let now = poll_fn(|context| Poll::Ready(ear.poll(context).is_pending())).await;
        assert!(now && ear.taken.capacity() == 0);
    }
}
