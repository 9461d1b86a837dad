//! What of the heap stays with a process between its requests.

use pyo3::prelude::*;
use std::{os::fd::RawFd, sync::Once};

/// Bytes of a block from which on it is mapped by itself and given back at once: the most that the C library comes to by itself as blocks are freed
/// (`DEFAULT_MMAP_THRESHOLD_MAX` of glibc).
const MAPPED: libc::c_int = 32 << 20;

/// Bytes that are free at a heap's end before they are given back: twice as much, as the C library has it.
const TRIMMED: libc::c_int = 2 * MAPPED;

/// Milliseconds without a request, after which what is free is given back.
const IDLE: libc::c_int = 1000;

/// Waits until there is something to receive on a socket; if that takes long, what is kept of the heap is given back meanwhile.
#[pyfunction]
pub(crate) fn rest(py: Python<'_>, socket: RawFd) {
    static KEEPS: Once = Once::new();
    KEEPS.call_once(keep);
    let mut awaited = libc::pollfd {
        fd: socket,
        events: libc::POLLIN,
        revents: 0,
    };
    py.detach(|| {
        // SAFETY: the kernel reads and writes one entry, which outlives the call. What goes wrong here, receiving tells.
        let heard = unsafe { libc::poll(&raw mut awaited, 1, IDLE) };
        #[cfg(target_env = "gnu")]
        if heard == 0 {
            // SAFETY: the allocator does this under its own locks.
            unsafe { libc::malloc_trim(0) };
        }
    });
}

/// From here on what is freed is kept for what comes next. Without it, a request that takes and frees some MiB has the kernel clear the same pages again and
/// again: of the CPU time of those of bench/io that were served by a process that stays, it was 4 to 30 %. A process that serves one request has nothing of it, and
/// would hold what it has freed while it waits.
fn keep() {
    // SAFETY: it sets two numbers of the allocator's, under its own lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED);
    }
}
