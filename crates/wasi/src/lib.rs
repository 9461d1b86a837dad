//! WASI 0.1 (`wasi_snapshot_preview1`) for a command that answers one request: host functions over plain memory.
//!
//! A [`Command`] is one run of a guest's `_start`: its standard input is the request's body, its standard output the
//! response, its standard error the log, its environment the manifest's variables and the request as CGI/1.1
//! (RFC 3875). There is nothing else: no directories, no sockets, no variable of the host. A pure function has files in place of that, and
//! a world of its own: see [`Protocol::Pure`](contract::Protocol::Pure). It may also have its sets in its memory, and call nothing at all.
//!
//! An engine owns instances, memory and control flow; this crate owns what the functions mean. The protocol:
//!
//! 1. [`Command::new`] for each request. It costs a few moves: arguments, environment, clocks and random numbers are
//!    made when the guest asks for them.
//! 2. Each import of module [`MODULE`] calls the function of the same name here, with the command and the guest's
//!    linear memory as it is now. [`for_each_function!`] lists them all, so that an engine binds them in one place.
//! 3. A [`Stop`] ends the guest: unwind it, whatever is on its stack. [`Stop::Exit`] goes to [`Command::finish`] just
//!    as a `_start` that returned does, with code 0; [`Stop::Fault`] is the sandbox's fault.
//! 4. [`Poll::Until`] asks to park the guest, and to make the same call again at that time.
//! 5. [`Command::finish`] turns what the guest wrote into the response, or says what is wrong with it.
//!
//! No call blocks and none takes longer than it takes to copy a mebibyte. Guest memory is never trusted: each pointer
//! is checked with its length, each field is read once, and no argument makes a function panic.

#![forbid(unsafe_code)]

mod bind;
mod cgi;
mod clock;
mod command;
mod environment;
mod errno;
mod files;
mod incoming;
mod memory;
mod poll;
mod preview1;
mod pure;
mod sets;
#[cfg(test)]
mod test;

pub use bind::{FUNCTIONS, Function, ValueType, function};
pub use cgi::CONNECTION_FIELDS;
pub use clock::{origin, realtime};
pub use command::{Command, Stop};
pub use errno::Errno;
pub use incoming::Incoming;
pub use poll::{Poll, poll_oneoff};
pub use preview1::*;

/// The module that guests import these functions from.
pub const MODULE: &str = "wasi_snapshot_preview1";
