//! Memory that the host and one sandbox share, and the one channel in it.
//!
//! A [`Region`] is memory in a file of its own without a name (memfd), whose size is fixed from the beginning: nobody who has it can have a reader run
//! into its end. Pages that nobody has touched take no memory. It belongs to one sandbox and to the host, and is never shared by sandboxes.
//!
//! While a sandbox has it, its bytes may change at any moment, so there is no slice of them: that is what the three types are for.
//!
//! | | who has it | what the host may do |
//! |---|---|---|
//! | [`Region`] | the host alone | slices, and in the end [`Bytes`](bytes::Bytes) without a copy |
//! | [`Shared`] | the sandbox, too | pass it on; get it back once the sandbox has ended |
//! | [`HostEnd`] | the sandbox, too | as above, and [messages](channel) and copies, all of them checked |
//!
//! Without the feature `std` there is [`channel`] alone, which needs neither an allocator nor an operating system: a guest links it.

#![cfg_attr(not(feature = "std"), no_std)]

#[cfg(all(feature = "std", not(target_os = "linux")))]
compile_error!("regions are Linux's");

#[cfg(feature = "std")]
mod bell;
pub mod channel;
#[cfg(feature = "std")]
mod guest;
#[cfg(feature = "std")]
mod host;
#[cfg(feature = "std")]
mod pages;
#[cfg(feature = "std")]
mod region;
mod sync;

#[cfg(feature = "std")]
pub use {
    bell::{Bell, Heard, bells},
    guest::{GuestEnd, Kept, OpenError},
    host::HostEnd,
    region::{Region, Shared},
};
