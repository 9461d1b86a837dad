//! A guest's mapping of the region: another one than the host's, as in another process.

use rustix::{
    fd::AsFd,
    fs::fstat,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::ptr::NonNull;

pub(crate) struct Mapping {
    pub(crate) start: NonNull<u8>,
    pub(crate) size: usize,
}

// SAFETY: it owns what it points to.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(crate) fn new(file: impl AsFd) -> Self {
        let size = fstat(&file).unwrap().st_size as usize;
        let all = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a place where nothing is.
        let start = unsafe { mmap(std::ptr::null_mut(), size, all, MapFlags::SHARED, file, 0) }.unwrap();
        Self {
            start: NonNull::new(start.cast()).unwrap(),
            size,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is its own.
        unsafe { munmap(self.start.as_ptr().cast(), self.size) }.unwrap();
    }
}
