//! See [`Pages`].

use crate::channel::{End, Misfit, Place};
use rustix::io::{self, Errno, pwrite};
use std::os::fd::BorrowedFd;

/// Bytes for which the kernel is asked, at least.
const WORTH: usize = 16 << 10;

/// How far an end has written to its memory.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    there: usize,
}

impl Pages {
    /// [`End::copy_in`], in memory that is this file.
    ///
    /// Pages that are not there yet are written to by way of the file: the kernel fills them as it makes them, and neither zeroes them before nor faults at
    /// each. 1 MiB took 0.27 ms so and 0.52 ms by the mapping; where the pages are there, 0.03 ms by the mapping.
    pub(crate) fn copy_in(
        &mut self,
        end: &mut End,
        file: BorrowedFd<'_>,
        place: Place,
        from: &[u8],
    ) -> Result<(), Misfit> {
        let range = place.range();
        let fits = range.len() == from.len() && end.pointer(place).is_some();
        if fits && from.len() >= WORTH && range.start >= self.there {
            self.there = range.end;
            if write(file, from, range.start as u64).is_ok() {
                return Ok(());
            }
        }
        end.copy_in(place, from)
    }
}

fn write(file: BorrowedFd<'_>, mut from: &[u8], mut at: u64) -> io::Result<()> {
    while !from.is_empty() {
        match pwrite(file, from, at) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(count) => {
                from = &from[count..];
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
