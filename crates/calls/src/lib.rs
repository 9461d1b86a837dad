//! Asynchronous calls: a request that is accepted now, run later, at least once, and whose result is kept for a while.
//!
//! Below lies a [`contract::Log`]; above, whoever accepts calls (HTTP) and whoever runs them. This crate knows no
//! clock, no thread and no engine: the time is an argument, and a driver asks what is due, runs it, and says what came
//! of it. One driver thread is enough, because it begins and finishes calls in batches:
//!
//! ```text
//! loop {
//!     calls.finish(&outcomes_that_came_in, now)?;
//!     for attempt in calls.begin(&calls.due(now, free_places), now)? { run(attempt) }
//!     for attempt in calls.begin(&calls.deliveries(now), now)? { deliver(attempt) }
//!     calls.maintain(now)?;                     // every second or so: expiry, and trimming the log
//!     wait for an outcome, the bell of Calls::open, calls.next_due() or calls.next_delivery()
//! }
//! ```
//!
//! # The life of a call
//!
//! ```text
//! submit ─▶ Waiting ─begin─▶ Running ─finish─▶ Succeeded ── result kept for Options::retention
//!              ▲                │
//!              ├─ later ◀─ failed, refused ─▶ Dead ── kept until discarded, or Options::dead_letter_retention
//!              └──────────── retry ◀─────┘
//! ```
//!
//! # What is promised
//!
//! - A call whose `submit` succeeded is run until it has an outcome, whatever crashes in between; a call whose `finish`
//!   said [`Verdict::Succeeded`] is not run again. What is begun is durable before it runs, so that a call which takes
//!   the node down with it ends as a dead letter after [`Options::interruptions`] restarts.
//! - Memory holds an index, some hundred bytes for each call; requests and results stay in the log. The number and the
//!   bytes of pending calls are bounded: what is beyond them is refused. Of results and dead letters the oldest give
//!   way.
//! - The log does not grow for ever. Each call has an *anchor*, the record without which it could not be known: that of
//!   its request, later that of its result. What lies before all anchors is trimmed; once more than half of the log is
//!   garbage, [`Calls::maintain`] carries the oldest anchors to the log's end and trims behind them.
//!
//! # Callbacks
//!
//! Who has a call accepted may name whom its outcome is told ([`Callback`]). When the call ends, by success or as a dead letter,
//! a call that tells so is stored by the same append: no crash loses it or makes it twice. It is a call of a function, or a
//! *delivery* to a server, which is begun, tried again, kept and given up as all calls are. Deliveries are bounded for each server and in
//! all (module `index`), and wait in queues of their own: neither other calls nor other servers wait for one that hangs. A server
//! that is to hear of too much is not named any more ([`SubmitError::Untold`]), and what does not fit into its share of the log is
//! told without its body.
//!
//! # Why it is right
//!
//! A call has at most one event on its way to the disk at a time (its entry is *busy* until then), so the order of its
//! events in the log is the order of its states in memory; and both a replay and a running node go from state to state
//! by the same function, `Index::apply`.

#![forbid(unsafe_code)]

mod call;
mod callback;
mod calls;
mod error;
mod event;
mod index;
mod retry;

pub use call::{
    Attempt, Call, CallId, Cause, Finished, Outcome, Request, Response, State, Telling, Timestamp, Verdict,
};
pub use callback::{Callback, CallbackError};
pub use calls::{Calls, Counts, Kind, Options};
pub use error::{Error, SubmitError};
