//! The per-core loop: poll, steal, run, preempt, park.
//!
//! One thread for each core, one [`Core`] for each thread, and everything about a request stays on it: it is read, run
//! and answered there (Sledge, sections 3.3 and 3.4). A turn of the loop is
//!
//! ```text
//!   poll the sockets ─▶ read everything that is ready, queue its requests; who has had more than its share is read later
//!   take mail        ─▶ answers from cores that stole from us, wake-ups of parked sandboxes
//!   run              ─▶ queued requests and preempted sandboxes in the policy's order, a quantum at a time
//!   flush            ─▶ write all responses; batching the wake-ups of clients saves more than it delays
//! ```
//!
//! Work distribution stands apart from scheduling, as in Sledge: *requests* wait in a deque that idle cores steal from;
//! a *sandbox* never leaves the core that made it. A stolen request's answer goes back to the core that owns its
//! connection, by mailbox.
//!
//! The sockets belong to a [`Front`], which the gateway provides and which lives on the core's thread. The loop never
//! blocks but in `epoll_wait`, and never awaits.
//!
//! Shutdown: [`Shared::drain`] makes admission refuse and wakes every core; a core is [`Core::drained`] when it owes no answer.
//! What still runs when the drain's limit is over is dropped with its core.

#![forbid(unsafe_code)]

mod aside;
mod bell;
mod core;
mod front;
mod gate;
mod line;
mod manners;
mod offer;
mod outside;
mod poller;
mod queues;
mod shared;
mod sink;
mod sync;
mod tally;
mod target;
mod tenancy;
mod ticker;
mod turns;

pub use core::{Core, Seatless};
pub use front::{CoreOptions, Front};
pub use poller::{Interest, Poller, Readiness, Trigger};
pub use queues::{Admitted, Intake};
pub use shared::{Answer, Failure, Invocation, Opening, Response, Shared, Timing};
pub use target::{Loader, Target, TargetOptions, Targets};
pub use tenancy::Tenancy;
pub use ticker::Ticker;
