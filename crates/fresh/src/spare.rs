//! Memory maps that are held back for those who cannot wait.
//!
//! A sandbox that the kernel refuses a map waits and tries again. An allocator cannot, and a process whose allocator is
//! refused ends. So the pool holds some maps from the start, and gives them up when it first meets the kernel's bound.

use rustix::{
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
    param::page_size,
};
use std::{ffi::c_void, ptr};

/// Neighbours that differ in their protection, so that the kernel cannot make one map of them.
pub struct Spare {
    begin: *mut c_void,
}

// SAFETY: an address that nobody reads or writes at.
unsafe impl Send for Spare {}

impl Spare {
    /// Maps of the process.
    pub const MAPS: usize = 256;

    /// None if the kernel has no so many.
    pub fn hold() -> Option<Self> {
        let none = ProtFlags::empty();
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which nobody knows of.
        let begin = unsafe { mmap_anonymous(ptr::null_mut(), Self::MAPS * page_size(), none, flags) }.ok()?;
        let spare = Self { begin };
        (0..Self::MAPS)
            .step_by(2)
            .all(|page| {
                let page = spare.begin.wrapping_byte_add(page * page_size());
                // SAFETY: a page of that mapping.
                unsafe { mprotect(page, page_size(), MprotectFlags::READ) }.is_ok()
            })
            .then_some(spare)
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's. It goes as a whole, for which the kernel needs no map more.
        let _ = unsafe { munmap(self.begin, Self::MAPS * page_size()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn maps() -> usize {
        fs::read_to_string("/proc/self/maps").unwrap().lines().count()
    }

    #[test]
    fn holds_maps_and_gives_them_back() {
        let before = maps();
        let spare = Spare::hold().unwrap();
        let held = maps();
        // Those at its ends may be one with a neighbour, and other tests have maps of their own.
        assert!(
            held >= before + Spare::MAPS / 2,
            "{before} maps, and {held} with the spare ones"
        );
        drop(spare);
        assert!(maps() < held - Spare::MAPS / 2);
    }
}
