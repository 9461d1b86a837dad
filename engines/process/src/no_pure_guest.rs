//! In place of `pure_guest.rs` on processors that it was not written for. There no executable is taken for a pure function
//! ([`executable`](crate::executable) says why), so nobody gets here.

use crate::executable::Layout;
use std::{convert::Infallible, io, os::fd::OwnedFd};

/// What the other module's guests leave with.
pub(crate) const STACK_OVERFLOW: i32 = 201;
pub(crate) const BAD_ACCESS: i32 = 202;

/// See the module.
pub(crate) struct Prepared;

impl Prepared {
    pub(crate) fn new(_: &Layout, _: u64, _: &OwnedFd, _: &[confine::Instruction]) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn enter(&self, _: &OwnedFd) -> io::Result<Infallible> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
