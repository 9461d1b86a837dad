//! The head of a request, packed: one buffer, and spans into it.
//!
//! A `HeaderMap` costs an allocation and a hash for each header, on a path that is budgeted in hundreds of
//! nanoseconds; most functions read none of them. So the gateway copies the head's bytes once and notes where things
//! lie.

use crate::RequestId;
use smallvec::SmallVec;
use std::{net::SocketAddr, time::Instant};

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// What a request says before its body.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The method, then the target. Apart from what may not be text, so that nobody has to check again that it is.
    line: String,
    method_end: u32,
    script: u32,
    /// In the target.
    path_end: u32,
    /// Names and values of headers: nearly always within the head's own allocation.
    buffer: SmallVec<[u8; 192]>,
    headers: SmallVec<[(Span, Span); 12]>,
    /// Identifies the request.
    pub id: RequestId,
    /// The connection that it came by.
    pub origin: Origin,
    /// How many functions have called each other to make it: 0 if it came from outside.
    pub depth: u8,
    /// When nobody waits for its answer any longer, if that is known: its function's own limit may be later.
    pub until: Option<Instant>,
}

/// The connection that a request came by, as the node knows it: nothing here was said by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The client's address, where there is one.
    pub remote: Option<SocketAddr>,
    /// The address the client came to.
    pub local: Option<SocketAddr>,
    /// Whether the client speaks TLS.
    pub secure: bool,
    /// Whether the client speaks HTTP/2.
    pub http2: bool,
}

impl Origin {
    /// The scheme of the URL that leads here.
    pub fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// The protocol and its version, as CGI and logs write it.
    pub fn protocol(&self) -> &'static str {
        if self.http2 { "HTTP/2.0" } else { "HTTP/1.1" }
    }
}

/// Collects a [`Head`]. Text goes in as it was received: the caller has checked it.
#[derive(Debug)]
pub struct HeadBuilder(Box<Head>);

fn offset(n: usize) -> u32 {
    // Heads are bounded to tens of kilobytes long before this could saturate.
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl HeadBuilder {
    /// Begins with the method and the target (`/path?query`). `capacity` is a guess of the size of all headers, in bytes.
    pub fn new(method: &str, target: &str, capacity: usize) -> Self {
        Self::in_place_of(Box::default(), method, target, capacity)
    }

    /// The same in the place of a head that nobody needs any more. Only its memory is used again.
    pub fn in_place_of(mut head: Box<Head>, method: &str, target: &str, capacity: usize) -> Self {
        let Head {
            line,
            buffer,
            headers,
            ..
        } = &mut *head;
        line.clear();
        line.reserve_exact(method.len() + target.len());
        line.push_str(method);
        line.push_str(target);
        buffer.clear();
        buffer.reserve_exact(capacity);
        headers.clear();
        head.method_end = offset(method.len());
        head.path_end = offset(target.find('?').unwrap_or(target.len()));
        head.script = 0;
        head.id = RequestId(0);
        head.origin = Origin::default();
        head.depth = 0;
        head.until = None;
        Self(head)
    }

    /// Adds a header.
    pub fn header(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.0.add_header(name, value);
        self
    }

    /// The finished head. Its path info is all of the path until [`Head::set_script`] says otherwise.
    pub fn build(mut self, id: RequestId) -> Box<Head> {
        self.0.id = id;
        self.0
    }
}

impl Head {
    fn add_header(&mut self, name: &str, value: &[u8]) {
        let mut push = |bytes: &[u8]| {
            let start = offset(self.buffer.len());
            self.buffer.extend_from_slice(bytes);
            Span {
                start,
                end: offset(self.buffer.len()),
            }
        };
        let header = (push(name.as_bytes()), push(value));
        self.headers.push(header);
    }

    fn bytes(&self, span: Span) -> &[u8] {
        &self.buffer[span.start as usize..span.end as usize]
    }

    fn text(&self, span: Span) -> &str {
        // Names come in as `&str`; this cannot fail, and must not panic if it did.
        std::str::from_utf8(self.bytes(span)).unwrap_or_default()
    }

    /// The method, upper-case as received.
    pub fn method(&self) -> &str {
        &self.line[..self.method_end as usize]
    }

    /// The target: path and query.
    pub fn target(&self) -> &str {
        &self.line[self.method_end as usize..]
    }

    /// The path, still percent-encoded.
    pub fn path(&self) -> &str {
        &self.target()[..self.path_end as usize]
    }

    /// What follows `?`, or the empty string.
    pub fn query(&self) -> &str {
        self.target()
            .get(self.path_end as usize + 1..)
            .unwrap_or_default()
    }

    /// Says how much of the path named the function; the rest is its path info. Out of range is clamped.
    pub fn set_script(&mut self, length: usize) {
        let length = length.min(self.path_end as usize);
        if self.target().is_char_boundary(length) {
            self.script = offset(length);
        }
    }

    /// The part of the path that named the function (RFC 3875, `SCRIPT_NAME`).
    pub fn script_name(&self) -> &str {
        &self.path()[..self.script as usize]
    }

    /// The part of the path after the function's name (RFC 3875, `PATH_INFO`).
    pub fn path_info(&self) -> &str {
        &self.path()[self.script as usize..]
    }

    /// All headers, as received, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers
            .iter()
            .map(|(name, value)| (self.text(*name), self.bytes(*value)))
    }

    /// Puts one header in the place of all of this name, whatever their case.
    pub fn set_header(&mut self, name: &str, value: &[u8]) {
        self.remove_header(name);
        self.add_header(name, value);
    }

    /// Takes away all headers of this name, whatever their case.
    pub fn remove_header(&mut self, name: &str) {
        let mut headers = std::mem::take(&mut self.headers);
        headers.retain(|(n, _)| !self.text(*n).eq_ignore_ascii_case(name));
        self.headers = headers;
    }

    /// The first header of this name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_what_it_was_given() {
        let mut builder = HeadBuilder::new("POST", "/function/echo/a/b?x=1&y", 128);
        builder
            .header("Host", b"example.org")
            .header("X-Bytes", b"\xff\x00");
        let mut head = builder.build(RequestId(7));
        head.set_script("/function/echo".len());
        assert_eq!(head.method(), "POST");
        assert_eq!(head.path(), "/function/echo/a/b");
        assert_eq!(head.query(), "x=1&y");
        assert_eq!(head.script_name(), "/function/echo");
        assert_eq!(head.path_info(), "/a/b");
        assert_eq!(head.header("host"), Some(&b"example.org"[..]));
        assert_eq!(head.header("x-bytes"), Some(&b"\xff\x00"[..]));
        assert_eq!(head.header("absent"), None);
    }

    #[test]
    fn nothing_is_left_of_a_head_whose_place_is_used_again() {
        let mut builder = HeadBuilder::new("DELETE", "/function/echo/a?token=secret", 400);
        builder.header("Authorization", &[b'x'; 300]);
        let mut head = builder.build(RequestId(7));
        head.set_script("/function/echo".len());
        head.origin.secure = true;
        head.depth = 3;
        head.until = Some(Instant::now());

        let mut again = HeadBuilder::in_place_of(head, "GET", "/b?x", 10);
        again.header("Host", b"a");
        let mut new = HeadBuilder::new("GET", "/b?x", 10);
        new.header("Host", b"a");
        let (again, new) = (again.build(RequestId(8)), new.build(RequestId(8)));
        assert_eq!(format!("{again:?}"), format!("{new:?}"));
        assert_eq!((again.method(), again.path_info()), ("GET", "/b"));
    }

    #[test]
    fn a_header_can_be_replaced() {
        let mut builder = HeadBuilder::new("GET", "/", 0);
        builder
            .header("TraceParent", b"1")
            .header("Host", b"a")
            .header("traceparent", b"2");
        let mut head = builder.build(RequestId(7));
        head.set_header("traceparent", b"3");
        let headers: Vec<_> = head.headers().collect();
        assert_eq!(headers, [("Host", &b"a"[..]), ("traceparent", b"3")]);
        head.remove_header("HOST");
        assert_eq!(head.header("host"), None);
        assert_eq!((head.method(), head.target()), ("GET", "/"));
    }

    #[test]
    fn odd_targets_do_not_panic() {
        for target in ["", "?", "*", "/?", "/é", "a?b?c"] {
            let mut head = HeadBuilder::new("GET", target, 0).build(RequestId(0));
            for length in 0..6 {
                head.set_script(length);
                let _ = (head.path(), head.query(), head.script_name(), head.path_info());
            }
        }
    }
}
