//! A request on its way into a sandbox, and its response on the way out.

use crate::{Head, Services};
use bytes::Bytes;
use std::{
    borrow::Cow,
    fmt,
    sync::Arc,
    task::{Poll, Waker},
};

/// What a sandbox is given.
pub struct Input {
    /// Method, target, headers.
    pub head: Box<Head>,
    /// The body.
    pub body: Body,
    /// Where everything goes that the sandbox says.
    pub response: Box<dyn ResponseSink>,
    /// What it may ask for, if its version was granted anything.
    pub services: Option<Arc<Services>>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("head", &self.head)
            .field("body", &self.body)
            .finish_non_exhaustive()
    }
}

/// The body of a request.
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// Pieces as they come. Every engine takes it; one whose [`crate::Image::streams`] is false waits for the last piece before the
    /// code runs.
    Stream(Box<dyn BodyStream>),
}

impl Body {
    /// Its bytes, if it is here.
    pub fn known_length(&self) -> Option<usize> {
        match self {
            Self::Whole(bytes) => Some(bytes.len()),
            Self::Stream(_) => None,
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => write!(f, "Whole({} bytes)", bytes.len()),
            Self::Stream(_) => write!(f, "Stream"),
        }
    }
}

/// Names and values of header fields that come after a body (RFC 9110, section 6.5), checked as those of a head.
pub type Trailers = Vec<(Cow<'static, str>, Bytes)>;

/// A body that is on its way. Nothing blocks.
pub trait BodyStream: Send {
    /// The next piece, which is not empty, or `None` at the end; after that and after an error the answer stays the same. While
    /// it is pending, `waker` is woken once it is worth asking again.
    fn poll_next(&mut self, waker: &Waker) -> Poll<Result<Option<Bytes>, BodyError>>;
    /// What came after the end. Empty before it, and when asked again.
    fn trailers(&mut self) -> Trailers;
}

/// A body that will not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// Whoever sent or took it has gone.
    #[error("the other side has gone")]
    Gone,
    /// What came is not a body, or is more than it may be.
    #[error("the body is malformed or too large")]
    Bad,
    /// Nothing came for as long as was allowed.
    #[error("the body paused for too long")]
    Slow,
    /// What came is not what its sender's checksum is of.
    #[error("the body does not have its checksum")]
    Damaged,
}

/// The first part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    /// Names are tokens, values have no control characters but tab: whoever makes a head checks that.
    pub headers: Vec<(Cow<'static, str>, Bytes)>,
}

/// Where everything goes that a sandbox says.
///
/// An engine calls `head` exactly once, then `body` any number of times, then perhaps `trailers`, all before
/// [`crate::Step::Done`]. What it has said may reach the client at any time after `head`: a [`crate::Step::Fault`] after that cuts the
/// response off, or takes its place if nothing of it has left yet. `log` and `note` may be called at any time. None of them blocks.
pub trait ResponseSink: Send {
    /// Status and headers.
    fn head(&mut self, head: ResponseHead);
    /// The next piece of the body.
    fn body(&mut self, chunk: Bytes);
    /// What follows the body. Not every way to a client has room for that.
    fn trailers(&mut self, _trailers: Trailers) {}
    /// How many bytes of the body are welcome now, at least 1. While it is pending, `waker` is woken once it is worth asking
    /// again. Who gives more than that is not refused: it fills the host's memory.
    fn poll_room(&mut self, _waker: &Waker) -> Poll<Result<usize, BodyError>> {
        Poll::Ready(Ok(usize::MAX))
    }
    /// What was given so far should reach the client as soon as the sandbox waits or is preempted.
    fn flush(&mut self) {}
    /// A piece of standard error, or of standard output where that is not the response; lines may be torn.
    fn log(&mut self, bytes: &[u8]);
    /// A line of the host's own about the request, for whoever owns the function.
    fn note(&mut self, _line: &str) {}
}
