//! The first request of a connection that was upgraded from HTTP/1.1 (RFC 7540, section 3.2).
//!
//! The client sent its first request in HTTP/1.1, and its first settings in that request's header. It must be answered on
//! stream 1 as if it had come there, but HTTP/2 implementations have no way to be told so. They need none: what the client
//! did not send can be put among the bytes that they read. Behind the preface comes the client's SETTINGS frame; it becomes
//!
//! ```text
//! preface │ SETTINGS: the header's, then the frame's │ HEADERS of stream 1, END_STREAM │ what the client sent next
//! ```
//!
//! One SETTINGS frame and not two, because the client expects one acknowledgement; settings take effect in their order. The
//! head is literals that are not indexed (RFC 7541, section 6.2.2), so that both sides' tables stay as the client thinks they
//! are; the client's own streams begin with 3.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use contract::Head;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Of a frame (RFC 9113, section 4.1).
const FRAME_HEAD: usize = 9;
/// The largest payload before other settings are agreed on.
const LARGEST: usize = 16_384;
const SETTING: usize = 6;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Headers that are the connection's and not the request's, and those that become pseudo-headers.
const DROPPED: [&str; 9] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What is put among the bytes of the client.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    /// Goes before the payload of the client's first SETTINGS frame.
    settings: Vec<u8>,
    /// Goes behind that frame.
    request: Vec<u8>,
}

impl Insert {
    /// For a request without a body. Settings that are not well-formed are none.
    pub(crate) fn new(head: &Head) -> Self {
        let settings = head.header("http2-settings").unwrap_or_default();
        let mut settings = BASE64_URL_SAFE_NO_PAD.decode(settings).unwrap_or_default();
        if !settings.len().is_multiple_of(SETTING) || settings.len() > LARGEST {
            settings.clear();
        }
        Self {
            settings,
            request: frames(&block(head)),
        }
    }
}

/// The head as a block of HPACK.
fn block(head: &Head) -> Vec<u8> {
    let mut block = Vec::with_capacity(1024);
    literal(&mut block, ":method", head.method().as_bytes());
    literal(&mut block, ":scheme", head.origin.scheme().as_bytes());
    literal(&mut block, ":path", head.target().as_bytes());
    if let Some(host) = head.header("host").filter(|host| !host.is_empty()) {
        literal(&mut block, ":authority", host);
    }
    for (name, value) in head.headers() {
        if !DROPPED.iter().any(|dropped| dropped.eq_ignore_ascii_case(name)) {
            literal(&mut block, &name.to_ascii_lowercase(), value);
        }
    }
    block
}

/// A field that is not indexed, with a new name (RFC 7541, section 6.2.2).
fn literal(block: &mut Vec<u8>, name: &str, value: &[u8]) {
    block.push(0);
    string(block, name.as_bytes());
    string(block, value);
}

/// A string that is not compressed: its length as an integer with a prefix of 7 bits (RFC 7541, sections 5.1 and 5.2).
fn string(block: &mut Vec<u8>, text: &[u8]) {
    const PREFIX: usize = 0x7f;
    match u8::try_from(text.len()) {
        Ok(length) if usize::from(length) < PREFIX => block.push(length),
        _ => {
            block.push(0x7f);
            let mut left = text.len() - PREFIX;
            while left >= 0x80 {
                block.push(0x80 | low(left & 0x7f));
                left >>= 7;
            }
            block.push(low(left));
        }
    }
    block.extend_from_slice(text);
}

/// The lowest eight bits.
fn low(number: usize) -> u8 {
    u8::try_from(number & 0xff).unwrap_or_default()
}

/// HEADERS of stream 1, and as many CONTINUATIONs as it takes.
fn frames(block: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(block.len() + FRAME_HEAD);
    let mut pieces = block.chunks(LARGEST).peekable();
    let mut first = true;
    while let Some(piece) = pieces.next() {
        let (kind, flags) = if first {
            (HEADERS, END_STREAM)
        } else {
            (CONTINUATION, 0)
        };
        let last = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        frame(&mut out, kind, flags | last, 1, piece.len());
        out.extend_from_slice(piece);
        first = false;
    }
    out
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u8, length: usize) {
    out.extend_from_slice(&[low(length >> 16), low(length >> 8), low(length)]);
    out.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
}

/// What can be said of the first bytes of a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Spliced {
    /// More of them must be there.
    More,
    /// What is to be read in their place.
    Done(Vec<u8>),
}

/// Puts the request where it belongs. Fails if what comes first is not the preface and a SETTINGS frame (RFC 9113, section 3.4).
pub(crate) fn splice(bytes: &[u8], insert: &Insert) -> io::Result<Spliced> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "HTTP/2 does not begin like this");
    let common = bytes.len().min(PREFACE.len());
    if bytes[..common] != PREFACE[..common] {
        return Err(wrong());
    }
    let Some((head, rest)) = bytes
        .get(PREFACE.len()..)
        .and_then(|rest| rest.split_at_checked(FRAME_HEAD))
    else {
        return Ok(Spliced::More);
    };
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let (kind, flags, stream) = (head[3], head[4], &head[5..]);
    let good = kind == SETTINGS
        && flags & ACK == 0
        // The highest bit is reserved and ignored.
        && matches!(stream, [0 | 0x80, 0, 0, 0])
        && length.is_multiple_of(SETTING)
        && length + insert.settings.len() <= LARGEST;
    if !good {
        return Err(wrong());
    }
    let Some((theirs, rest)) = rest.split_at_checked(length) else {
        return Ok(Spliced::More);
    };
    let mut out = Vec::with_capacity(bytes.len() + insert.settings.len() + insert.request.len());
    out.extend_from_slice(PREFACE);
    frame(&mut out, SETTINGS, 0, 0, insert.settings.len() + length);
    out.extend_from_slice(&insert.settings);
    out.extend_from_slice(theirs);
    out.extend_from_slice(&insert.request);
    out.extend_from_slice(rest);
    Ok(Spliced::Done(out))
}

/// A client's connection of which something was read already, and among whose bytes something may have to be put.
pub(crate) struct Resumed<IO> {
    io: IO,
    /// What is read next; if something is to be inserted, what was held back for it.
    before: Vec<u8>,
    at: usize,
    insert: Option<Insert>,
}

impl<IO> Resumed<IO> {
    pub(crate) fn new(io: IO, read: Vec<u8>, insert: Option<Insert>) -> Self {
        Self {
            io,
            before: read,
            at: 0,
            insert,
        }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Resumed<IO> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while let Some(insert) = &this.insert {
            match splice(&this.before, insert)? {
                Spliced::Done(bytes) => {
                    this.before = bytes;
                    this.insert = None;
                }
                Spliced::More => {
                    let mut piece = [0; 1024];
                    let mut piece = ReadBuf::new(&mut piece);
                    ready!(Pin::new(&mut this.io).poll_read(cx, &mut piece))?;
                    if piece.filled().is_empty() {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                    // No more than the preface, the largest frame and one such piece are ever held.
                    this.before.extend_from_slice(piece.filled());
                }
            }
        }
        if this.before.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buffer);
        }
        let rest = &this.before[this.at..];
        let taken = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..taken]);
        this.at += taken;
        if this.at == this.before.len() {
            this.before = Vec::new();
            this.at = 0;
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Resumed<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[path = "splice_tests.rs"]
mod tests;
