//! A request on its way into a sandbox, and its response on the way out.

use crate::Head;
use bytes::Bytes;
use std::{borrow::Cow, fmt};

/// What a sandbox is given.
pub struct Input {
    /// Method, target, headers.
    pub head: Box<Head>,
    /// The body, complete.
    pub body: Bytes,
    /// Where everything goes that the sandbox says.
    pub response: Box<dyn ResponseSink>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input")
            .field("head", &self.head)
            .field("body", &self.body.len())
            .finish_non_exhaustive()
    }
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
/// An engine calls `head` exactly once and then `body` any number of times, all before [`crate::Step::Done`]; it may
/// call neither before [`crate::Step::Fault`]. `log` may be called at any time. None of them blocks.
pub trait ResponseSink: Send {
    /// Status and headers.
    fn head(&mut self, head: ResponseHead);
    /// The next piece of the body.
    fn body(&mut self, chunk: Bytes);
    /// A piece of standard error, or of standard output where that is not the response; lines may be torn.
    fn log(&mut self, bytes: &[u8]);
}
