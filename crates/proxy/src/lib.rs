//! What clients speak beside plain HTTP/1.1: TLS, and HTTP/2 with or without it.
//!
//! Both end here and go on as plain HTTP/1.1 to a core's gateway, over socket pairs of this process whose other end the
//! gateway takes for a client's connection. So routes, limits, errors, timings and whatever else a request means exist once,
//! in the gateway; and a socket is a bounded mailbox with backpressure. This crate does not know the gateway: it is given a
//! [`Dial`] that opens a stream to one.
//!
//! ```text
//!  TLS ──▶ handshake ──┬─ http/1.1 ─▶ pipe ── one socket for the connection ──┐
//!        (ALPN)        └─ h2 ───────┐                                         ├─▶ gateway of a core
//!  h2c, from a gateway ─▶ splice ───┴▶ http2 ── one socket for each stream ───┘
//! ```
//!
//! **A stream has a socket of its own**, which ends with it. A pool of kept connections would save some microseconds for each
//! request, and cost what pools cost: requests that meet a connection just as its other end closes it, cores that are loaded
//! unevenly, and the question which client's bytes may share a connection. This way streams go to the cores in turn; a stream
//! that is reset, or loses its client, drops its socket, which is all that the gateway needs to know; and no misreading of
//! HTTP/1.1's framing could ever show one client's answer to another.
//!
//! **Who the client is goes with the socket** ([`contract::Origin`]), not through it, so that no byte that a client sends can
//! forge it.
//!
//! | module | what |
//! |---|---|
//! | `server` | accepting, what is open, shutting down |
//! | `certificates` | the certificate and key of the files, read again when they change |
//! | `pipe` | bytes between a TLS connection and its socket |
//! | `http2` | a connection of HTTP/2 and its streams |
//! | `forward` | a request and an answer from one version of HTTP to the other |
//! | `splice` | the first request of a connection that was upgraded from HTTP/1.1 |
//!
//! # Bounds
//! Connections, sockets to gateways, streams of a connection, the size of a head, handshakes and idleness are bounded by
//! [`Options`]; who comes when connections or sockets are used up waits. Frames that HTTP/2 allows without end (resets, settings,
//! pings, continuations of a head) are bounded by the `h2` crate; a client that cancels more requests than it lets finish is
//! told to go. How long a request's head and body, and an answer's reader, may take is the gateway's business.
//!
//! # Shutdown
//! When the node drains: nothing is accepted any more, clients of HTTP/2 are told to go (GOAWAY), streams in work finish, and
//! connections of HTTP/1.1 end when the gateway ends them. [`serve`] returns when all are over.

#![forbid(unsafe_code)]

mod certificates;
mod forward;
mod http2;
mod pipe;
mod server;
mod splice;

pub use certificates::{CertificateError, Certificates, Reloaded};
pub use server::{Arrival, Counts, Dial, Options, Secure, Timeouts, serve};
