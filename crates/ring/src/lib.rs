//! Memory that the host and one sandbox share.
//!
//! A [`Region`] is memory in a file of its own without a name (memfd), whose size is fixed from the beginning: nobody who has it can have a reader run
//! into its end. Pages that nobody has touched take no memory. It belongs to one sandbox and to the host, and is never shared by sandboxes.
//!
//! While a sandbox has it, its bytes may change at any moment, so there is no slice of them: that is what the two types are for.
//!
//! | | who has it | what the host may do |
//! |---|---|---|
//! | [`Region`] | the host alone | slices, and in the end [`Bytes`](bytes::Bytes) without a copy |
//! | [`Shared`] | the sandbox, too | pass it on; get it back once the sandbox has ended |

#[cfg(not(target_os = "linux"))]
compile_error!("regions are Linux's");

mod region;

pub use region::{Region, Shared};
