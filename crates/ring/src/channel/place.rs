//! See [`Place`].

use super::Layout;
use core::{
    error, fmt,
    ops::Range,
    ptr,
    sync::atomic::{Ordering, compiler_fence},
};

/// A place in a channel's bulk, made by [`Layout::place`] of what a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    start: usize,
    end: usize,
}

impl Place {
    pub(super) fn new(layout: &Layout, offset: u64, length: u64) -> Option<Self> {
        let end = usize::try_from(offset.checked_add(length)?).ok()?;
        let start = usize::try_from(offset).ok()?;
        let bulk = layout.bulk();
        (bulk.start <= start && end <= bulk.end).then_some(Self { start, end })
    }

    /// In all of the memory.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// In bytes.
    #[expect(clippy::len_without_is_empty, reason = "it holds nothing, it is somewhere")]
    pub fn len(&self) -> usize {
        self.end - self.start
    }
}

/// A place is not one of this channel, or what is copied is not of its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot copy: the place is another channel's, or of another length")
    }
}

impl error::Error for Misfit {}

/// Copies out of or into memory that another process may write to meanwhile.
///
/// To the language another process is no thread of this program, so its writes are no data race here: they are what a device does. The bytes
/// are any bytes at each moment, and that is all that is asked of a `u8`. No reference to them exists, so nothing is assumed to stay.
/// The fence keeps the compiler from copying anew, out of the shared memory, what was copied: it takes that to have changed by then.
///
/// # Safety
/// That many bytes can be read and written, the two do not overlap, and no other thread of this process copies to them through this mapping.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: as this function's.
    unsafe { ptr::copy_nonoverlapping(from, to, length) };
    compiler_fence(Ordering::SeqCst);
}
