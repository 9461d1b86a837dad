//! Where the code of small objects lies.
//!
//! To make pages writable, and then executable, takes longer than all else that is done to load a small object. So there is one file in
//! memory, mapped once, to be read and executed and never to be written to: code is written through its descriptor, which the host alone has.

use parking_lot::Mutex;
use rustix::{
    fd::OwnedFd,
    fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create},
    io::{Errno, pwrite},
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use std::{ffi::c_void, ptr, sync::Arc};

/// Bytes of a slot, and of the largest object that has one: others are mapped from their files.
pub(crate) const SLOT: usize = 64 << 10;

/// Address space is all that those take which were never used.
const SLOTS: usize = 16 << 10;

/// Slots whose pages are kept, for others. Who takes one leaves one soon.
const WARM: usize = 16;

/// See the module.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    base: *mut c_void,
    slots: Mutex<Slots>,
}

// SAFETY: memory that nobody writes to by its address.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

/// By number.
#[derive(Debug, Default)]
struct Slots {
    /// How many there ever were: those beyond were never used.
    seen: usize,
    /// Those that are free and have pages, which are all zeros,
    warm: Vec<usize>,
    /// and that have none.
    cold: Vec<usize>,
}

impl Arena {
    /// `None` where the host does not allow for one. Code is loaded without it then, and takes longer.
    pub fn new() -> Option<Arc<Self>> {
        // Elsewhere a processor may run what it remembers of a page that has been written to.
        if !cfg!(target_arch = "x86_64") {
            return None;
        }
        Self::make().ok().map(Arc::new)
    }

    fn make() -> Result<Self, Errno> {
        let file = memfd_create("millpond-code", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (SLOTS * SLOT) as u64)?;
        let rights = ProtFlags::READ | ProtFlags::EXEC;
        // SAFETY: a new mapping, which nobody knows of.
        let base = unsafe { mmap(ptr::null_mut(), SLOTS * SLOT, rights, MapFlags::SHARED, &file, 0)? };
        Ok(Self {
            file,
            base,
            slots: Mutex::default(),
        })
    }

    /// A slot for an object of this size, if it is small and there is one.
    pub(crate) fn take(self: &Arc<Self>, size: usize) -> Option<Slot> {
        if size > SLOT {
            return None;
        }
        let mut slots = self.slots.lock();
        let free = slots.warm.pop().or_else(|| slots.cold.pop());
        let number = free.or_else(|| (slots.seen < SLOTS).then_some(slots.seen))?;
        slots.seen = slots.seen.max(number + 1);
        Some(Slot {
            arena: self.clone(),
            number,
            written: 0,
        })
    }

    fn put(&self, number: usize, written: usize) {
        let is_warm = self.slots.lock().warm.len() < WARM && self.write(number, &vec![0; written]).is_ok();
        let is_clear = is_warm || {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&self.file, flags, (number * SLOT) as u64, SLOT as u64).is_ok()
        };
        let mut slots = self.slots.lock();
        match (is_warm, is_clear) {
            (true, _) => slots.warm.push(number),
            (false, true) => slots.cold.push(number),
            // What was there must not be found behind what comes: nobody gets it.
            (false, false) => {}
        }
    }

    fn write(&self, number: usize, bytes: &[u8]) -> Result<(), Errno> {
        let (mut at, mut rest) = ((number * SLOT) as u64, bytes);
        while !rest.is_empty() {
            match pwrite(&self.file, rest, at) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => {
                    at += written as u64;
                    rest = rest.get(written..).unwrap_or_default();
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this value's own. Whoever runs code in it has a slot, which has an `Arc` of it.
        let _ = unsafe { munmap(self.base, SLOTS * SLOT) };
    }
}

/// One object's part of an arena: all zeros but for what is written.
#[derive(Debug)]
pub(crate) struct Slot {
    arena: Arc<Arena>,
    number: usize,
    written: usize,
}

impl Slot {
    /// Where its code is read and run.
    pub(crate) fn base(&self) -> *mut c_void {
        self.arena.base.wrapping_byte_add(self.number * SLOT)
    }

    /// Writes the whole object.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let bytes = bytes.get(..SLOT).unwrap_or(bytes);
        self.written = bytes.len();
        self.arena.write(self.number, bytes)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.put(self.number, self.written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn content(slot: &Slot) -> Vec<u8> {
        // SAFETY: mapped and readable, and nobody writes to it while this test has the slot.
        unsafe { std::slice::from_raw_parts(slot.base().cast::<u8>().cast_const(), SLOT).to_vec() }
    }

    fn filled(arena: &Arc<Arena>, byte: u8, size: usize) -> Slot {
        let mut slot = arena.take(size).unwrap();
        assert!(content(&slot).iter().all(|byte| *byte == 0));
        slot.write(&vec![byte; size]).unwrap();
        slot
    }

    #[test]
    fn what_is_left_is_clear_for_the_next() {
        let Some(arena) = Arena::new() else { return };
        let (one, two) = (filled(&arena, 1, SLOT), filled(&arena, 2, 5_000));
        assert_ne!(one.base(), two.base());
        assert!(content(&one).iter().all(|byte| *byte == 1));
        assert_eq!(content(&two).iter().filter(|byte| **byte == 2).count(), 5_000);
        let place = one.base();
        drop(one);
        assert_eq!(filled(&arena, 3, 100).base(), place);
        assert!(arena.take(SLOT + 1).is_none());
    }

    #[test]
    fn pages_are_kept_of_few() {
        let Some(arena) = Arena::new() else { return };
        drop((0..3 * WARM).map(|_| filled(&arena, 1, 100)).collect::<Vec<_>>());
        assert_eq!(arena.slots.lock().warm.len(), WARM);
        drop((0..3 * WARM).map(|_| filled(&arena, 1, 100)).collect::<Vec<_>>());
        assert_eq!(arena.slots.lock().seen, 3 * WARM);
    }

    #[test]
    fn nobody_writes_to_it_by_its_address() {
        let Some(arena) = Arena::new() else { return };
        let _slot = filled(&arena, 1, SLOT);
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let rights: Vec<&str> = maps
            .lines()
            .filter(|line| line.contains("millpond-code"))
            .filter_map(|line| line.split(' ').nth(1))
            .collect();
        assert!(
            !rights.is_empty() && rights.iter().all(|rights| *rights == "r-xs"),
            "{rights:?}"
        );
    }

    #[test]
    fn there_are_no_more_than_there_is_room_for() {
        let Some(arena) = Arena::new() else { return };
        let all: Vec<Slot> = std::iter::from_fn(|| arena.take(1)).take(SLOTS + 1).collect();
        assert_eq!(all.len(), SLOTS);
        let places: BTreeSet<usize> = all.iter().map(|slot| slot.base().addr()).collect();
        assert_eq!(places.len(), SLOTS);
        drop(all);
        assert!(arena.take(1).is_some());
    }
}
