//! Where guests keep their frames.

use crate::arch::Frame;
use rustix::{
    io,
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
    param,
};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
};

/// Memory for a guest's frames, with pages below it that cannot be accessed, and room above it for the state of a guest that is
/// interrupted.
#[derive(Debug)]
pub struct Stack {
    begin: *mut c_void,
    size: usize,
    room: usize,
}

// SAFETY: memory that belongs to this value alone.
unsafe impl Send for Stack {}

/// Of a stack's end and of the room above it.
const ALIGNMENT: usize = 64;

/// Bytes below a stack. A function that has more locals than a page touches each page in turn (`probe-stack`), so one would do; the C library's
/// functions that guests call do not.
const GUARD: usize = 64 << 10;

impl Stack {
    /// With at least this many bytes for the guest.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Self::with_room(bytes, 0)
    }

    /// The same, and `room` bytes above the guest's for whatever its host keeps of it: one map of the process is enough for both.
    pub fn with_room(bytes: usize, room: usize) -> io::Result<Self> {
        let page = param::page_size();
        let room = room.next_multiple_of(ALIGNMENT);
        let usable = (bytes + Frame::size() + room).next_multiple_of(page);
        let size = usable + GUARD.next_multiple_of(page);
        // SAFETY: a new mapping, which nobody knows of.
        let begin = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                size,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::STACK,
            )?
        };
        let stack = Self { begin, size, room };
        let rights = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the upper part of that mapping.
        unsafe { mprotect(begin.wrapping_byte_add(size - usable), usable, rights)? };
        Ok(stack)
    }

    /// The room above the guest's, all zeros at first, aligned as a cache's lines are.
    pub fn room(&self) -> NonNull<c_void> {
        let room = self.begin.wrapping_byte_add(self.size - self.room);
        // SAFETY: not null: within the mapping, or at its end if there is no room.
        unsafe { NonNull::new_unchecked(room) }
    }

    /// Makes so much of that room zeros again. `false` if there is less.
    pub fn clear_room(&self, bytes: usize) -> bool {
        let enough = bytes <= self.room;
        if enough {
            // SAFETY: within the mapping, which nothing uses: a fiber has its stack, and gives it back whole.
            unsafe { self.room().write_bytes(0, bytes) };
        }
        enough
    }

    fn top(&self) -> usize {
        self.begin.addr() + self.size - self.room
    }

    /// Where the guest's frames begin: above lies the frame.
    pub(crate) fn high(&self) -> usize {
        (self.top() - Frame::size()) & !(ALIGNMENT - 1)
    }

    /// The lowest address that a guard or a frame has.
    pub(crate) fn low(&self) -> usize {
        self.begin.addr()
    }

    pub(crate) fn frame(&self) -> Frame {
        Frame::at(self.high())
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's. No guest runs on it: whoever runs one has the fiber, which has this.
        let _ = unsafe { munmap(self.begin, self.size) };
    }
}
