//! What each processor does in its own way: the switches, and what the kernel keeps of an interrupted thread.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// What the switches answer.
pub(crate) const RETURNED: u32 = 0;
pub(crate) const CALL: u32 = 1;
pub(crate) const PREEMPTED: u32 = 2;
pub(crate) const FAULT: u32 = 3;
