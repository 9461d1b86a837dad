//! See [`Region`].

use bytes::Bytes;
use rustix::{
    fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create},
    io::{self, Errno},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{
    fmt,
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    ptr::NonNull,
    slice,
};

/// Memory that nobody but its owner has.
pub struct Region {
    start: NonNull<u8>,
    size: usize,
    file: OwnedFd,
}

// SAFETY: it owns what it points to, as a boxed slice does.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Of so many bytes, all 0. None is there before it is touched.
    ///
    /// # Errors
    /// The kernel's: no descriptor or no address space is left. A size of 0 is invalid.
    pub fn new(size: usize) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let file = match memfd_create("millpond-region", flags) {
            // Before Linux 6.3 there is no such flag.
            Err(Errno::INVAL) => {
                memfd_create("millpond-region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?
            }
            other => other?,
        };
        ftruncate(&file, size as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe { mmap(std::ptr::null_mut(), size, all, MapFlags::SHARED, &file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, size, file })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the size cannot change, so all of it is mapped and there; nobody else writes to it.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }

    /// Its bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else reads it.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }

    /// From here on a sandbox may have it.
    pub fn share(self) -> Shared {
        Shared(self)
    }

    /// Parts of its bytes, in their order, which keep the pages that they lie in; the other pages go. `None` if a part lies outside.
    pub fn into_parts(self, parts: &[Range<usize>]) -> Option<Vec<Bytes>> {
        if parts.iter().any(|part| self.bytes().get(part.clone()).is_none()) {
            return None;
        }
        let page = rustix::param::page_size();
        let mut pages: Vec<Range<usize>> = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| part.start / page * page..part.end.next_multiple_of(page))
            .collect();
        pages.sort_by_key(|pages| pages.start);
        let end = self.size.next_multiple_of(page);
        pages.push(end..end);
        let mut free = 0;
        for pages in &pages {
            if free < pages.start {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                // Pages that the kernel does not take back go with the last part.
                let _ = fallocate(&self.file, hole, free as u64, (pages.start - free) as u64);
            }
            free = free.max(pages.end);
        }
        let all = Bytes::from_owner(self);
        Some(parts.iter().map(|part| all.slice(part.clone())).collect())
    }
}

impl AsRef<[u8]> for Region {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.size)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it is this region's own mapping, and all slices of it have ended with it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Memory that a sandbox has, too.
#[derive(Debug)]
pub struct Shared(Region);

impl Shared {
    /// For the sandbox, which maps it or reads and writes it.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    /// Where it is mapped in this process, for as long as this is there.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    /// Takes it back.
    ///
    /// # Safety
    /// Whoever had it has ended: no process but this one has it mapped or has its descriptor, nor will have.
    pub unsafe fn reclaim(self) -> Region {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{pread, pwrite};

    #[test]
    fn what_a_sandbox_wrote_is_there_and_kept_without_a_copy() {
        let mut region = Region::new(1 << 20).unwrap();
        assert!(region.bytes().iter().all(|byte| *byte == 0));
        region.bytes_mut()[..5].copy_from_slice(b"input");
        let shared = region.share();
        let mut input = [0; 5];
        pread(shared.file(), &mut input, 0).unwrap();
        assert_eq!(&input, b"input");
        pwrite(shared.file(), b"output", 4096).unwrap();
        // SAFETY: the descriptor was used in this test only.
        let region = unsafe { shared.reclaim() };
        let address = region.bytes().as_ptr();
        let kept = region.into_parts(&[4096..4102, 4098..4100, 7..7]).unwrap();
        assert_eq!(kept, ["output", "tp", ""]);
        assert_eq!(kept[0].as_ptr() as usize, address as usize + 4096);
    }

    #[test]
    fn pages_of_what_is_not_kept_go() {
        const PAGE: usize = 4096;
        let mut region = Region::new(64 * PAGE + 100).unwrap();
        region.bytes_mut().fill(7);
        let file = region.file.try_clone().unwrap();
        let there = || rustix::fs::fstat(&file).unwrap().st_blocks as usize * 512 / PAGE;
        assert_eq!(there(), 65);
        let parts = [
            40 * PAGE - 1..42 * PAGE,
            3 * PAGE + 5..3 * PAGE + 6,
            41 * PAGE..41 * PAGE + 1,
        ];
        let kept = region.into_parts(&parts).unwrap();
        assert_eq!(there(), 4);
        assert!(kept.iter().flatten().all(|byte| *byte == 7));
        assert_eq!(
            kept.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [2 * PAGE + 1, 1, 1]
        );
    }

    #[test]
    fn nobody_changes_its_size() {
        let shared = Region::new(4096).unwrap().share();
        assert_eq!(ftruncate(shared.file(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(shared.file(), 8192), Err(Errno::PERM));
        assert_eq!(fcntl_add_seals(shared.file(), SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn what_lies_outside_is_not_given() {
        assert_eq!(Region::new(4096).unwrap().into_parts(&[0..1, 4000..4097]), None);
        assert!(Region::new(0).is_err());
    }
}
