//! The C library's heap: where forks find room in it, and what of it stays with a process between its requests.

use crate::arenas::LARGE;
use pyo3::prelude::*;
use std::{hint, os::fd::RawFd, ptr, sync::Once};

/// Bytes of a block from which on it is mapped by itself and given back at once, in a process that stays: the most that the C library comes to by itself as blocks are freed
/// (`DEFAULT_MMAP_THRESHOLD_MAX` of glibc).
const MAPPED: libc::c_int = 32 << 20;

/// Bytes that are free at its heap's end before they are given back: twice as much, as the C library has it.
const TRIMMED: libc::c_int = 2 * MAPPED;

/// Bytes of room in large pages, of which none takes memory before it is written to.
const ROOM: usize = 2 * LARGE;

/// Bytes that lie in small pages before that: who needs no more is to have no large page.
const SMALL: usize = 256 << 10;

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
            make_room();
        }
    });
}

/// Has what forks take lie by itself, in room that is made for it. Returns where the heap ended before. There is to be one thread.
pub(crate) fn close() -> usize {
    let end = end();
    // SAFETY: no other thread moves the heap's end meanwhile. What lies between is nobody's, which the allocator minds, and takes no memory.
    unsafe { libc::sbrk((large_after(end) - SMALL - end).cast_signed()) };
    open();
    end
}

/// Makes room for the request of a process that serves one.
pub(crate) fn open() {
    // glibc takes the largest block that was mapped by itself and freed for one that will be wanted again: from then on smaller ones lie in the heap, and as much as two of it
    // may be free at its end. Else the room would be given back at once. No block of `make_room` is larger.
    spare(SMALL + LARGE + ROOM);
    make_room();
}

/// Makes room at the heap's end, in large pages if the kernel has such for who asks.
///
/// A request that takes some MiB has the kernel find and clear so many pages of 4 KiB, each with a fault of its own, and take them back when its process ends:
/// 2.5 µs for each, where a large page of 2 MiB takes 100 (a virtual machine). It was up to 18 % of the CPU time of requests in bench/io.
fn make_room() {
    let before = end();
    let large = large_after(before);
    spare(large - before + ROOM);
    let room = end().saturating_sub(large);
    // SAFETY: it changes where memory of the heap's will lie, and nothing that a program sees. Where it fails, the pages are small.
    unsafe { libc::madvise(ptr::with_exposed_provenance_mut(large), room, libc::MADV_HUGEPAGE) };
}

/// Where the heap ends.
fn end() -> usize {
    // SAFETY: it asks.
    unsafe { libc::sbrk(0) }.addr()
}

/// Where room for large pages begins if the heap ends here.
fn large_after(end: usize) -> usize {
    (end + SMALL).next_multiple_of(LARGE)
}

/// Takes a block and gives it back, which leaves traces in the allocator.
fn spare(length: usize) {
    // SAFETY: a block, or none. Who asks for one and does nothing with it might not have asked.
    unsafe { libc::free(hint::black_box(libc::malloc(length))) };
}

/// From here on what is freed is kept for what comes next. Without it, a request that takes and frees some MiB has the kernel clear the same pages again and
/// again: of the CPU time of those of bench/io that were served by a process that stays, it was 4 to 30 %. A process that serves one request has little of it, and
/// would hold what it has freed while it waits.
fn keep() {
    // SAFETY: it sets two numbers of the allocator's, under its own lock.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIMMED);
    }
}
