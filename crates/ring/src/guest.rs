//! See [`GuestEnd`].

use crate::{
    channel::{Corrupt, End, Message, Misfit, Place, SendError, Sent, Unfit},
    pages::Pages,
};
use rustix::{
    fs::fstat,
    io::{self, Errno},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
    param::page_size,
};
use std::{
    os::fd::{AsFd as _, OwnedFd},
    process,
    ptr::NonNull,
};

/// A guest's end of a channel, where the guest has the operating system's help, and its mapping of the memory.
///
/// It is of one process: who forks that does not give the memory on, and the end must not be used in the fork.
#[derive(Debug)]
pub struct GuestEnd {
    end: End,
    pages: Pages,
    file: OwnedFd,
    start: NonNull<u8>,
    size: usize,
    /// Whose it is.
    process: u32,
    /// Whether somebody has a part of the mapping for good.
    is_kept: bool,
}

/// A place of a channel's memory that stays for good: in this process, and in those that it forks, which share it.
#[derive(Debug)]
pub struct Kept {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory that is no thread's own.
unsafe impl Send for Kept {}

impl Kept {
    /// Where it begins. It can be read and written until the last process of those ends; who else writes to it, the two ends of the channel have agreed.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// In bytes.
    pub fn length(&self) -> usize {
        self.length
    }
}

// SAFETY: it owns the mapping, which is no thread's own.
unsafe impl Send for GuestEnd {}
// SAFETY: shared, it only reads bulk.
unsafe impl Sync for GuestEnd {}

/// Memory in which there is no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// It could not be mapped.
    Map(Errno),
    /// See [`Unfit`].
    Unfit(Unfit),
}

impl std::error::Error for OpenError {}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Map(error) => write!(f, "the channel's memory cannot be mapped: {error}"),
            Self::Unfit(unfit) => unfit.fmt(f),
        }
    }
}

impl GuestEnd {
    /// Of the channel in this file, which no other guest's end has.
    ///
    /// # Errors
    /// There is none.
    pub fn open(file: OwnedFd) -> Result<Self, OpenError> {
        let map = || -> io::Result<(NonNull<u8>, usize)> {
            let size = usize::try_from(fstat(&file)?.st_size).map_err(|_| Errno::FBIG)?;
            let all = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: the kernel chooses a place where nothing is.
            let start = unsafe { mmap(std::ptr::null_mut(), size, all, MapFlags::SHARED, &file, 0) }?;
            // SAFETY: it is the mapping that was just made, of which a fork has nothing.
            unsafe { madvise(start, size, Advice::LinuxDontFork) }?;
            Ok((NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, size))
        };
        let (start, size) = map().map_err(OpenError::Map)?;
        // SAFETY: it is mapped until this end is dropped, its file's size is sealed, and the address is nobody else's.
        let end = unsafe { End::guest(start, size) };
        match end {
            Ok(end) => Ok(Self {
                end,
                pages: Pages::default(),
                file,
                start,
                size,
                process: process::id(),
                is_kept: false,
            }),
            Err(unfit) => {
                // SAFETY: it was mapped above, and nobody else has it.
                let _ = unsafe { munmap(start.as_ptr().cast(), size) };
                Err(OpenError::Unfit(unfit))
            }
        }
    }

    /// Whether this process is the one whose it is.
    pub fn is_here(&self) -> bool {
        self.process == process::id()
    }

    /// A place of its bulk; `None` unless all of it is.
    pub fn place(&self, offset: u64, length: u64) -> Option<Place> {
        self.end.layout().place(offset, length)
    }

    /// Where bulk begins and ends.
    pub fn bulk(&self) -> std::ops::Range<usize> {
        self.end.layout().bulk()
    }

    /// [`End::send`].
    ///
    /// # Errors
    /// The same.
    pub fn send(&mut self, message: Message) -> Result<Sent, SendError> {
        self.end.send(message)
    }

    /// [`End::receive`].
    ///
    /// # Errors
    /// The same.
    pub fn receive(&mut self) -> Result<Option<Message>, Corrupt> {
        self.end.receive()
    }

    /// [`End::sleep`].
    ///
    /// # Errors
    /// The same.
    pub fn sleep(&mut self) -> Result<bool, Corrupt> {
        self.end.sleep()
    }

    /// [`End::copy_out`].
    ///
    /// # Errors
    /// The same.
    pub fn copy_out(&self, place: Place, to: &mut [u8]) -> Result<(), Misfit> {
        self.end.copy_out(place, to)
    }

    /// [`End::copy_in`].
    ///
    /// # Errors
    /// The same.
    pub fn copy_in(&mut self, place: Place, from: &[u8]) -> Result<(), Misfit> {
        self.pages.copy_in(&mut self.end, self.file.as_fd(), place, from)
    }

    /// Has a place stay for good, also when this end is gone, and in forks of this process, which have nothing else of the memory but for the rest of its pages.
    /// `None` if it is another channel's.
    ///
    /// # Errors
    /// The operating system does not allow it.
    pub fn keep(&mut self, place: Place) -> Option<io::Result<Kept>> {
        let start = self.end.pointer(place)?;
        let length = place.len();
        let page = page_size();
        let before = place.range().start % page;
        // SAFETY: the pages are of this end's mapping, since that begins with one and the place is in it; it changes what forks get.
        let given = unsafe {
            madvise(
                start.sub(before).as_ptr().cast(),
                before + length,
                Advice::LinuxDoFork,
            )
        };
        Some(given.map(|()| {
            self.is_kept = true;
            Kept { start, length }
        }))
    }
}

impl Drop for GuestEnd {
    fn drop(&mut self) {
        // In a fork something else may be there.
        if !self.is_here() || self.is_kept {
            return;
        }
        // SAFETY: it is this end's own mapping, and the end is not used any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}
