//! Linear memories.

use crate::{
    layout::{GUARD, MemorySize, Outside},
    module::SIGNED_PAGES,
    table::within,
    types::MemoryType,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{self, Errno},
    mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap},
};
use std::{
    ffi::c_void,
    ops::Range,
    os::fd::OwnedFd,
    ptr::{self, NonNull},
    slice,
};

/// Bytes of a page of Wasm's.
pub(crate) const PAGE: u64 = 64 << 10;
/// What 32 bits can address,
const RESERVED: u64 = 4 << 30;
/// and how far below a memory a signed number of 32 bits leads.
const BELOW: usize = 2 << 30;
/// Bytes of a page of the processor's: on ARM the largest that a kernel may have chosen.
pub(crate) const HOST_PAGE: usize = if cfg!(target_arch = "aarch64") {
    64 << 10
} else {
    4096
};
/// Bytes of address space that one memory takes.
pub(crate) const SPACE: usize = BELOW + (RESERVED + GUARD) as usize;

/// A linear memory, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryHandle {
    pub(crate) base: NonNull<u8>,
    pub(crate) size: NonNull<MemorySize>,
    pub(crate) kind: MemoryType,
}

/// Address space of one memory, nothing of which can be written at first.
#[derive(Debug)]
pub(crate) struct Space {
    begin: *mut c_void,
    /// Of the memory that has been in it, all zeros now; none at first.
    bytes: u64,
    outside: Outside,
}

// SAFETY: memory that belongs to this value alone.
unsafe impl Send for Space {}

impl Space {
    pub(crate) fn new(outside: Outside) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which nobody knows of.
        let begin = unsafe { mmap_anonymous(ptr::null_mut(), SPACE, ProtFlags::empty(), flags)? };
        let space = Self {
            begin,
            bytes: 0,
            outside,
        };
        if outside == Outside::Zeros {
            let behind = space.base().as_ptr().cast();
            // SAFETY: within the space, of which nobody knows yet.
            unsafe { mprotect(behind, SPACE - BELOW, rights_outside(outside))? };
        }
        Ok(space)
    }

    /// What a memory in it finds around it.
    pub(crate) fn outside(&self) -> Outside {
        self.outside
    }

    /// Where the memory begins.
    pub(crate) fn base(&self) -> NonNull<u8> {
        // SAFETY: not null: within the space.
        unsafe { NonNull::new_unchecked(self.begin.wrapping_byte_add(BELOW).cast()) }
    }

    /// Makes a memory of it that has as many bytes as there are, all zeros.
    pub(crate) fn begin(&self, memory: &MemoryHandle) {
        memory.set_bytes(self.bytes, self.outside);
    }

    /// Of a memory that was in it and [has been put back](crate::instance::Instance::restore), for any other. Its pages stay, so that who gets
    /// it waits for none of them.
    pub(crate) fn vacate(mut self, memory: &MemoryHandle, first: &FirstMemory) -> io::Result<Self> {
        first.take_away(memory)?;
        self.bytes = memory.bytes();
        Ok(self)
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: this value's own.
        let _ = unsafe { munmap(self.begin, SPACE) };
    }
}

/// Of a memory's pages,
const RIGHTS: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// and how others take their place.
const OVER: MapFlags = MapFlags::PRIVATE
    .union(MapFlags::FIXED)
    .union(MapFlags::NORESERVE);

/// What memories of an image hold at first.
#[derive(Debug)]
pub(crate) struct FirstMemory {
    content: Content,
    /// Where it begins.
    at: usize,
    /// Of the memory.
    pub(crate) bytes: u64,
}

#[derive(Debug)]
enum Content {
    /// Few bytes, or none, which each memory has a copy of: that takes less time than to map them, and no descriptor.
    Few(Box<[u8]>),
    /// Whole pages of a file that all memories map, each for itself, and share until they write there.
    Shared(SharedPages),
}

/// Bytes that are few.
const FEW: usize = 16 << 10;

impl FirstMemory {
    /// Of a memory of so many bytes, with these segments, in this order, at these places.
    pub(crate) fn new(bytes: u64, segments: &[(usize, &[u8])]) -> io::Result<Self> {
        let begin = segments.iter().map(|(at, _)| *at).min().unwrap_or_default();
        let end = segments.iter().map(|(at, content)| at + content.len()).max();
        let end = end.unwrap_or_default();
        if end - begin <= FEW {
            let mut few = vec![0; end - begin];
            for (at, content) in segments {
                few[at - begin..][..content.len()].copy_from_slice(content);
            }
            return Ok(Self {
                content: Content::Few(few.into()),
                at: begin,
                bytes,
            });
        }
        let at = begin / HOST_PAGE * HOST_PAGE;
        let pages = SharedPages::new(at..end.next_multiple_of(HOST_PAGE), segments)?;
        Ok(Self {
            content: Content::Shared(pages),
            at,
            bytes,
        })
    }

    /// What is not zero lies in here, and from where on.
    pub(crate) fn content(&self) -> (&[u8], usize) {
        let content = match &self.content {
            Content::Few(few) => few,
            Content::Shared(pages) => pages.bytes(),
        };
        (content, self.at)
    }

    fn place(&self, memory: &MemoryHandle) -> *mut u8 {
        memory.base.as_ptr().wrapping_add(self.at)
    }

    /// Puts it in place of what a memory holds there that is at least as large.
    pub(crate) fn put(&self, memory: &MemoryHandle) -> io::Result<()> {
        match &self.content {
            // SAFETY: within the memory, to which nobody has a reference.
            Content::Few(few) => unsafe {
                ptr::copy_nonoverlapping(few.as_ptr(), self.place(memory), few.len());
                Ok(())
            },
            // SAFETY: as above.
            Content::Shared(pages) => unsafe { pages.map(self.place(memory)) },
        }
    }

    /// The same once a memory has been [emptied](MemoryHandle::discard) in which it was.
    pub(crate) fn put_again(&self, memory: &MemoryHandle) -> io::Result<()> {
        match &self.content {
            Content::Few(_) => self.put(memory),
            Content::Shared(_) => Ok(()),
        }
    }

    /// Puts zeros in its place.
    fn take_away(&self, memory: &MemoryHandle) -> io::Result<()> {
        match &self.content {
            // SAFETY: as above.
            Content::Few(few) => unsafe {
                self.place(memory).write_bytes(0, few.len());
                Ok(())
            },
            // SAFETY: as above.
            Content::Shared(pages) => unsafe { pages.unmap(self.place(memory)) },
        }
    }
}

/// Pages in a file in memory, which is mapped for reading, too.
#[derive(Debug)]
struct SharedPages {
    file: OwnedFd,
    content: NonNull<c_void>,
    length: usize,
}

// SAFETY: what is mapped is only read.
unsafe impl Send for SharedPages {}
// SAFETY: as above.
unsafe impl Sync for SharedPages {}

impl SharedPages {
    /// Of this range of a memory, with these segments.
    fn new(range: Range<usize>, segments: &[(usize, &[u8])]) -> io::Result<Self> {
        let file = memfd_create("first-memory", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, range.len() as u64)?;
        for (at, content) in segments {
            let (mut left, mut to) = (*content, at - range.start);
            while !left.is_empty() {
                let written = io::retry_on_intr(|| rustix::io::pwrite(&file, left, to as u64))?;
                left = left.get(written..).filter(|_| written > 0).ok_or(Errno::NOSPC)?;
                to += written;
            }
        }
        // SAFETY: a new mapping of a file that is not written any more.
        let content = unsafe {
            mmap(
                ptr::null_mut(),
                range.len(),
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        Ok(Self {
            file,
            content: NonNull::new(content).ok_or(Errno::NOMEM)?,
            length: range.len(),
        })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped as long as `self`, and never written.
        unsafe { slice::from_raw_parts(self.content.as_ptr().cast(), self.length) }
    }

    /// Puts them there.
    ///
    /// # Safety
    /// What is there is a part of a memory to which nobody has a reference.
    unsafe fn map(&self, at: *mut u8) -> io::Result<()> {
        // SAFETY: see above.
        unsafe { mmap(at.cast(), self.length, RIGHTS, OVER, &self.file, 0).map(drop) }
    }

    /// Puts zeros there.
    ///
    /// # Safety
    /// As above.
    unsafe fn unmap(&self, at: *mut u8) -> io::Result<()> {
        // SAFETY: as above.
        unsafe { mmap_anonymous(at.cast(), self.length, RIGHTS, OVER).map(drop) }
    }
}

impl Drop for SharedPages {
    fn drop(&mut self) {
        // SAFETY: this value's own.
        let _ = unsafe { munmap(self.content.as_ptr(), self.length) };
    }
}

/// The most bytes that a memory can ever have.
pub(crate) fn most(kind: MemoryType) -> u64 {
    let most = match kind.has_signed_addresses() {
        true => SIGNED_PAGES,
        false => RESERVED / PAGE,
    };
    kind.maximum.map_or(most, |maximum| maximum.min(most)) * PAGE
}

pub(crate) fn fits_memory(wanted: &MemoryType, given: &MemoryHandle) -> bool {
    within(
        wanted.initial,
        wanted.maximum,
        given.bytes() / PAGE,
        given.kind.maximum,
    )
}

impl MemoryHandle {
    pub(crate) fn bytes(&self) -> u64 {
        // SAFETY: a memory that lives as long as its handles are used.
        unsafe { self.size.as_ref().bytes }
    }

    /// See [`most`].
    pub(crate) fn most(&self) -> u64 {
        most(self.kind)
    }

    pub(crate) fn grow(&self, pages: u32, outside: Outside) -> u32 {
        let before = self.bytes() / PAGE;
        let after = before + u64::from(pages);
        if after * PAGE > self.most() || self.resize(after * PAGE, outside).is_err() {
            return u32::MAX;
        }
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    /// Makes it so large, which is no less than it is.
    pub(crate) fn resize(&self, bytes: u64, outside: Outside) -> io::Result<()> {
        let (before, after) = (accessible(self.bytes(), outside), accessible(bytes, outside));
        if after > before {
            self.protect(before, after, MprotectFlags::READ | MprotectFlags::WRITE)?;
        }
        self.set_bytes(bytes, outside);
        Ok(())
    }

    /// Makes it no larger than this; what lay beyond is gone.
    pub(crate) fn shrink(&self, bytes: u64, outside: Outside) -> io::Result<()> {
        let (before, after) = (accessible(self.bytes(), outside), accessible(bytes, outside));
        if before > after {
            self.protect(after, before, rights_outside(outside))?;
            self.forget(after, before)?;
        }
        self.set_bytes(bytes, outside);
        Ok(())
    }

    /// Makes it what its mappings give by themselves.
    pub(crate) fn discard(&self, outside: Outside) -> io::Result<()> {
        self.forget(0, self.mapped(outside))
    }

    /// Bytes from its begin on that its code can write to, which may be more than it has.
    pub(crate) fn mapped(&self, outside: Outside) -> u64 {
        accessible(self.bytes(), outside)
    }

    fn set_bytes(&self, bytes: u64, outside: Outside) {
        let size = MemorySize {
            bytes,
            mask: accessible(bytes, outside).wrapping_sub(1),
        };
        // SAFETY: as in `bytes`.
        unsafe { self.size.as_ptr().write(size) };
    }

    fn protect(&self, from: u64, to: u64, rights: MprotectFlags) -> io::Result<()> {
        let at = self.base.as_ptr().wrapping_add(from as usize).cast();
        // SAFETY: reserved for this memory, to which nobody has a reference.
        unsafe { mprotect(at, (to - from) as usize, rights) }
    }

    fn forget(&self, from: u64, to: u64) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        let at = self.base.as_ptr().wrapping_add(from as usize).cast();
        // SAFETY: as above.
        unsafe { madvise(at, (to - from) as usize, Advice::LinuxDontNeed) }
    }
}

/// Of what lies behind a memory.
fn rights_outside(outside: Outside) -> MprotectFlags {
    match outside {
        Outside::Zeros => MprotectFlags::READ,
        Outside::Faults | Outside::Inside => MprotectFlags::empty(),
    }
}

/// What of a memory of so many bytes is mapped.
fn accessible(bytes: u64, outside: Outside) -> u64 {
    match outside {
        Outside::Inside if bytes > 0 => bytes.next_power_of_two().max(PAGE),
        _ => bytes,
    }
}
