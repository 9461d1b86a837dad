//! The server's side of HTTP/1.1 (RFC 9112), without I/O: bytes in, verdicts out.
//!
//! The connection loop owns sockets and buffers. It gives [`parse`] what has arrived and gets one of three answers: not
//! enough yet, a head and where it ends, or a [`Reject`] after which it answers and closes. A chunked body goes through a
//! [`ChunkDecoder`]; [`write_head`] makes the response's first part.
//!
//! **Strict, because framing that two parties read differently is how a request gets smuggled.** httparse finds the
//! tokens, but takes more than the grammar does (a bare line feed, any number of empty lines first, any byte above 0x7f in
//! a target), so the line structure is checked on the raw bytes, and both must agree on where the head ends. What is
//! refused although some servers take it:
//!
//! - lines that do not end in CRLF; folded lines; white space around a header's name; more than one empty line before a
//!   request;
//! - `Content-Length` twice or as a list, even of equal numbers; with `Transfer-Encoding`; anything but digits;
//! - `Transfer-Encoding` other than the one word `chunked`, or in HTTP/1.0;
//! - no `Host` in HTTP/1.1, more than one, or one with more than a name or address and a port;
//! - targets with a fragment, a backslash, bytes above 0x7e, or a malformed or NUL escape in the path.
//!
//! What is taken and changed: an absolute-form target becomes origin-form and its authority replaces `Host` (RFC 9112,
//! section 3.2.2). `Transfer-Encoding` is dropped, since the function sees the decoded body. Headers with `_` in their
//! name are dropped, since CGI's variables cannot tell them from those with `-`; so is `Proxy`, which would become the
//! `HTTP_PROXY` that many HTTP clients obey. Dot segments in a path are left to the router.
//!
//! **Verdicts do not depend on how the bytes were split.** [`parse`] keeps no state: on a prefix it says either
//! [`Parsed::Partial`] or what it will say about any continuation. That holds because it looks in a fixed order: first
//! byte, request line, line structure, tokens, then meaning; and the last two only once the head is complete.

mod chunked;
mod reject;
mod request;
mod response;
mod syntax;

pub use chunked::{ChunkDecoder, Fed};
pub use reject::Reject;
pub(crate) use request::parse_again;
pub use request::{Framing, Limits, PREFACE, Parsed, RequestHead, parse};
pub use response::{BadResponse, CONTINUE, ResponseLine, imf_date, write_head};
