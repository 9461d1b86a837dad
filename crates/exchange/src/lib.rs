//! What a sandbox and the backend say to each other on a [channel](ring::channel).
//!
//! A sandbox calls, any number of times at once up to [`MOST_CALLS`], and each call has a reply. Heads are short text whose meaning is the services'; bodies are pieces that
//! lie in the channel's bulk, which the two have halved: each end gives out places of its own half ([`Room`]) and has them back by what the other says.
//!
//! | [`Ask`] of the guest | | [`Tell`] of the host |
//! |---|---|---|
//! | `Call`: head, first piece of the body, whole length | → | |
//! | `Piece`: the next of the body, once the one before is taken | → | `Taken`: what was sent was copied, there is more to come, and the places are the guest's again |
//! | | ← | `Head`: of the reply, together with its end if its body is short; all places of the call are the guest's again |
//! | `Free`: a place of the host's, read | ⇄ | `Piece`: of the reply's body, up to [`AHEAD`] that are neither free nor kept yet |
//! | `Keep`: a piece of the reply's stays where it is, for good | → | |
//! | `Drop`: the call is over for the guest, all places of the host's with it | → | `Failed`: there is no reply, or no more of it: the call is over for both. Each `Drop` has one |
//!
//! A guest that wants all of a body at once may keep it where it lies, and copies nothing, as `bytes` of Python are kept
//! ([`Talk::keep`]): if its length is one of [`KEPT`], the host has room for it in a row, and not [`MOST_KEPT`] of its room are kept.
//!
//! A guest that keeps to these rules finds room for each message in rings of [`SLOTS`]; one that does not loses its channel.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

mod guest;
mod room;
mod talk;
mod wire;

pub use guest::{Broken, CallHandle, Head, Kept, Link};
pub use room::{Room, STEP};
pub use talk::Talk;
pub use wire::{Ask, Id, Span, Tell};

/// Calls of one guest at a time.
pub const MOST_CALLS: usize = 32;

/// In each ring: more than there can be messages under way.
pub const SLOTS: u32 = 256;

/// Pieces of one reply that the guest has not freed.
pub const AHEAD: u32 = 2;

/// Bytes of a piece of a reply.
pub const PIECE: u64 = 1 << 20;

/// Bytes before a body that may be kept, for what a guest makes of it: they begin at a multiple of [`STEP`].
pub const BEFORE: u64 = 32;

/// Bytes behind it.
pub const BEHIND: u64 = 1;

/// Bytes of a body that may be kept. Of less, a copy costs no more than what is kept: places that no other body gets, so that each has new pages.
pub const KEPT: RangeInclusive<u64> = 512 << 10..=MOST_KEPT;

/// Bytes that one guest keeps at most, and no more than a quarter of what the host has.
pub const MOST_KEPT: u64 = 16 << 20;

/// Bytes of a piece of a call's body.
pub const CALL_PIECE: u64 = 8 << 20;

/// Bytes of a head.
pub const LARGEST_HEAD: u64 = 64 << 10;
