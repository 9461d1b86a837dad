//! HTTP in and out on each core.
//!
//! A [`Gateway`] is the [`worker::Front`] of one core: it owns the connections whose sockets the kernel gave to that core's
//! listener (`SO_REUSEPORT`), and lives on the core's thread. Nothing here is shared but the dispatcher's table.
//!
//! ```text
//!   ready()  read what there is ─▶ http1::parse ─▶ dispatcher: which function? ─▶ body ─▶ worker: admit, put
//!   answer() keep it with its connection
//!   flush()  write all answers, then look at what the clients sent meanwhile
//! ```
//!
//! One request of a connection is in work at a time; pipelined ones wait in its buffer and are answered in order. A
//! connection that is idle holds a few hundred bytes: reading and writing go through two buffers of the core's.
//!
//! Other protocols end elsewhere in the node and come as HTTP/1.1 over sockets that [`Adoption`] brings; a client that
//! begins to speak HTTP/2 on one of ours, or asks for it, goes there by [`Departure`].
//!
//! After a protocol error the framing is unknown: the answer says `Connection: close`, our side is shut down, and what
//! the client still sends is discarded for a moment, so that it gets to read the answer before a reset.

#![forbid(unsafe_code)]

mod adoption;
mod begin;
mod connection;
mod edge;
/// Events in, and the calls that they make.
pub mod events;
mod gateway;
/// The server's side of HTTP/1.1, without I/O.
pub mod http1;
mod invoke;
mod later;
mod listener;
mod options;
mod refusals;
mod respond;
mod streams;

pub use adoption::{Adoption, Departing, Departure};
pub use gateway::Gateway;
pub use later::{DEPTH, Later, problem as problem_of_unkept};
pub use listener::Listener;
pub use options::{Options, Timeouts};
pub use respond::record_elsewhere;
