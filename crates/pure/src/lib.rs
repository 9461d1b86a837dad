//! Sets of items: what a pure function is given, and what it gives back.
//!
//! A pure function does no I/O. Its inputs are *sets* of named, keyed *items*, there before it begins; its outputs are sets, taken when it has
//! ended. Who deploys it names the sets. This crate knows three forms of them:
//!
//! - [`Set`]s and [`Item`]s themselves, whose bytes are shared and not copied;
//! - HTTP: [`read_request`] and [`response`];
//! - the structure of the Dandelion SDK in a guest's memory, for 32 and 64 bits: [`system_data`].
//!
//! Equal inputs have an equal [`seed`], from which a guest gets its random numbers.

#![forbid(unsafe_code)]

mod http;
mod set;
pub mod system_data;

pub use http::{BadRequest, read_request, response};
use set::LONGEST_NAME;
pub use set::{BadName, Item, MOST_ITEMS, Set, check_name, seed};
