//! What sandboxes take of the host while they live, running or parked.

use crate::{FIBER_STACK, GUARD, Layout, TABLE, component, pool};
use fresh::{MOST_MAPS, Spare, most, threads};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ptr;

/// See [`Footprint::maps`].
const MAPS: u64 = 6;

/// What one sandbox takes of the host, at most unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Maps of the process: two of its stack, for which the pool takes them when it is made, and four of its memory: what lies
    /// before its data, its data, what lies behind, and what cannot be reached.
    pub maps: u64,
    /// Bytes of address space.
    pub address_space: u64,
    /// Bytes that a kernel counts as used which does not overcommit (`vm.overcommit_memory = 2`).
    pub committed: u64,
    /// Bytes of memory, page tables included, of a small program that waits: the least that a sandbox takes.
    pub memory: u64,
}

impl Layout {
    /// What one sandbox takes.
    pub const fn footprint(self) -> Footprint {
        let stack = FIBER_STACK as u64 + (4 << 10);
        let tables = component::TABLES_OF_A_PLACE as u64 * TABLE as u64 * size_of::<usize>() as u64;
        Footprint {
            maps: MAPS,
            address_space: self.reservation() + GUARD + stack + tables,
            committed: stack + tables,
            memory: 64 << 10,
        }
    }
}

/// What a pool has beside its sandboxes: instances that wait for their next request, first states, and one place for an image's
/// first state to be read from when it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Places, each as a sandbox's.
    pub places: u32,
    /// Maps of the process, those included that the protection of pages between two requests takes, and
    /// those that are held back for allocators.
    pub maps: u64,
}

impl Kept {
    /// That of pools in this process.
    pub fn here() -> Self {
        let idle = 2 * most(threads());
        let places = u32::try_from(idle).unwrap_or(0) + pool::PRISTINE + 1;
        Self {
            places,
            maps: u64::from(places) * MAPS + idle as u64 * MOST_MAPS + Spare::MAPS as u64,
        }
    }
}

/// The largest piece of address space that this process could reserve now, in bytes, to within a sixty-fourth.
pub fn address_space() -> u64 {
    /// What a process has with the page tables of four levels.
    const MOST: usize = 1 << 47;
    const LEAST: usize = 1 << 30;
    let mut size = MOST;
    while size > LEAST {
        // SAFETY: a new mapping, which nobody knows of and which goes at once.
        let free = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                size,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
            .and_then(|begin| munmap(begin, size))
        };
        if free.is_ok() {
            return size as u64;
        }
        size -= size / 64;
    }
    0
}
