//! Trailers of HTTP/1.1: which fields may be some, and how they are sent where hyper would drop them.
//!
//! hyper's HTTP/1 sends of a message's trailers those that its head has named in `Trailer`. Their names may be known at the end only:
//! RFC 9110 (section 6.6.2) recommends that they are announced and does not ask for it, and HTTP/2 knows nothing of the kind.
//! So they go past hyper: the message's body, when it has come to its end, leaves them in the [`Slip`] of its connection, and tells
//! hyper of no trailers. What hyper writes last of that message is the last chunk, into which the [`Trailing`] between hyper and the
//! connection puts them.
//!
//! ```text
//!   body ── data ──▶ hyper ── head, chunks, "0\r\n\r\n" ──▶ Trailing ── head, chunks, "0\r\nname: value\r\n\r\n" ──▶ connection
//!     └──── trailers ─────────────▶ Slip ─────────────────────▲
//! ```

#![forbid(unsafe_code)]

use http::HeaderMap;
use parking_lot::Mutex;
use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Fields that a trailer must not have (RFC 9110, section 6.5.1): what frames, routes, authenticates or describes a message.
const FORBIDDEN: [&str; 20] = [
    "age",
    "authorization",
    "cache-control",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "content-type",
    "cookie",
    "host",
    "keep-alive",
    "max-forwards",
    "proxy-authorization",
    "proxy-connection",
    "set-cookie",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// Whether a field of this name may trail a message.
pub fn may_trail(name: &str) -> bool {
    !FORBIDDEN.iter().any(|its| name.eq_ignore_ascii_case(its))
}

/// Where a message's body leaves its trailers for the [`Trailing`] under its connection.
#[derive(Clone, Default)]
pub struct Slip(Arc<Mutex<Option<Vec<u8>>>>);

impl Slip {
    /// Has these trail the message that is being sent, without those that [may not](may_trail). To be called while hyper polls the
    /// body of a chunked message, which then says that it has ended; a message with a length has no place for them.
    pub fn put(&self, trailers: &HeaderMap) {
        let mut lines = Vec::new();
        for (name, value) in trailers {
            if may_trail(name.as_str()) {
                for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                    lines.extend_from_slice(part);
                }
            }
        }
        if !lines.is_empty() {
            *self.0.lock() = Some(lines);
        }
    }
}

impl fmt::Debug for Slip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slip").finish_non_exhaustive()
    }
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// A connection under hyper. See the crate's introduction.
#[derive(Debug)]
pub struct Trailing<IO> {
    io: IO,
    slip: Slip,
    /// What hyper has written since there were trailers: it ends in the last chunk when hyper flushes. Not more than hyper keeps in
    /// its own buffer.
    held: Vec<u8>,
    /// Of `held`, once it is on its way.
    written: usize,
}

impl<IO> Trailing<IO> {
    /// A connection, and where the bodies of its messages leave their trailers.
    pub fn new(io: IO) -> (Self, Slip) {
        let slip = Slip::default();
        let this = Self {
            io,
            slip: slip.clone(),
            held: Vec::new(),
            written: 0,
        };
        (this, slip)
    }

    /// The connection itself.
    pub fn get_ref(&self) -> &IO {
        &self.io
    }

    fn holds(&self) -> bool {
        !self.held.is_empty() || self.slip.0.lock().is_some()
    }
}

impl<IO: AsyncWrite + Unpin> Trailing<IO> {
    /// Sends what is held, with the trailers in it.
    fn poll_release(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held.is_empty()
            && let Some(lines) = self.slip.0.lock().take()
            && self.held.ends_with(LAST_CHUNK)
        {
            self.held.truncate(self.held.len() - 2);
            self.held.extend_from_slice(&lines);
            self.held.extend_from_slice(b"\r\n");
        }
        while self.written < self.held.len() {
            let rest = &self.held[self.written..];
            match ready!(Pin::new(&mut self.io).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        self.written = 0;
        self.held = Vec::new();
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Trailing<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Trailing<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.holds() {
            self.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.holds() {
            slices.iter().for_each(|slice| self.held.extend_from_slice(slice));
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(context))?;
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_release(context))?;
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
