//! HTTP in and out on each core.

#![forbid(unsafe_code)]

/// The server's side of HTTP/1.1, without I/O.
pub mod http1;
