//! Where what the interpreter allocates lies, so that forks share it by large pages.
//!
//! To fork copies an entry for each page that the process has, and the end of the fork goes through them again: for tens of MiB, as
//! scikit-learn's import leaves them, that is much of what a fork costs. A large page is one entry. But the interpreter maps its arenas one by one, wherever there is
//! room between libraries, and no two of them would make a large page. So they are given out by such pages from here on; and what has been
//! written once, that and the heap of the C library, is put into them when nobody waits for it. A fork that writes to a large page copies four KiB of it, as ever; what it
//! takes itself lies in large pages from the first, each of which is one fault.

use crate::heap;
use pyo3::prelude::*;
use std::{
    collections::BTreeMap,
    ffi::{c_char, c_void},
    mem,
    ops::Range,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Bytes of a large page of most processors'. Where they are larger, arenas lie together all the same.
pub(crate) const LARGE: usize = 2 << 20;

/// Not in `libc` yet.
const MADV_COLLAPSE: libc::c_int = 25;

/// `PyObjectArenaAllocator`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Allocator {
    context: *mut c_void,
    alloc: Option<unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void>,
    free: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize)>,
}

// SAFETY: the interpreter's own, whose functions any thread may call that holds the interpreter.
unsafe impl Send for Allocator {}

/// A large page's worth of memory.
struct Chunk {
    /// Bytes that were given out so far.
    given: usize,
    /// Arenas that are in use.
    used: usize,
}

struct Arenas {
    /// By their addresses.
    chunks: BTreeMap<usize, Chunk>,
    /// Arenas that have been given back and are zeros: their address and size.
    free: Vec<(usize, usize)>,
    /// Where arenas go that were given out before.
    before: Option<Allocator>,
    /// Where the C library's heap ended when this began, and when the import was over.
    heap: Range<usize>,
}

static ARENAS: Mutex<Arenas> = Mutex::new(Arenas {
    chunks: BTreeMap::new(),
    free: Vec::new(),
    before: None,
    heap: 0..0,
});

fn arenas() -> MutexGuard<'static, Arenas> {
    ARENAS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A function of the interpreter's that is not in its stable interface.
fn function(name: *const c_char) -> Option<unsafe extern "C" fn(*mut Allocator)> {
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
    // SAFETY: each interpreter that has functions of these names declares them so; null is none.
    unsafe { mem::transmute(found) }
}

/// Has arenas lie together from here on, where the interpreter lets its arenas be chosen.
#[pyfunction]
pub(crate) fn gather() {
    let get = function(c"PyObject_GetArenaAllocator".as_ptr());
    let set = function(c"PyObject_SetArenaAllocator".as_ptr());
    let (Some(get), Some(set)) = (get, set) else {
        return;
    };
    let mut arenas = arenas();
    if arenas.before.is_some() {
        return;
    }
    let mut before = Allocator {
        context: ptr::null_mut(),
        alloc: None,
        free: None,
    };
    // SAFETY: this thread holds the interpreter, which copies what it is given.
    unsafe {
        get(&raw mut before);
        let mut here = Allocator {
            context: ptr::null_mut(),
            alloc: Some(alloc),
            free: Some(free),
        };
        set(&raw mut here);
    }
    arenas.before = Some(before);
    // SAFETY: it asks where the heap ends.
    arenas.heap.start = unsafe { libc::sbrk(0) }.addr();
}

unsafe extern "C" fn alloc(_: *mut c_void, size: usize) -> *mut c_void {
    arenas().take(size)
}

unsafe extern "C" fn free(_: *mut c_void, arena: *mut c_void, size: usize) {
    let before = {
        let mut arenas = arenas();
        if arenas.give_back(arena, size) {
            return;
        }
        arenas.before
    };
    if let Some(Allocator {
        context,
        free: Some(free),
        ..
    }) = before
    {
        // SAFETY: it is one of those that were given out by that, or was mapped as that maps them.
        unsafe { free(context, arena, size) };
    }
}

impl Arenas {
    /// Whether the import is over.
    fn is_closed(&self) -> bool {
        self.heap.end > 0
    }

    /// Null if there is no memory.
    fn take(&mut self, size: usize) -> *mut c_void {
        if size == 0 || !LARGE.is_multiple_of(size) {
            return map(size);
        }
        if let Some(place) = self.free.iter().position(|(_, free)| *free == size) {
            let (arena, _) = self.free.swap_remove(place);
            if let Some(chunk) = self.chunks.get_mut(&(arena & !(LARGE - 1))) {
                chunk.used += 1;
            }
            return ptr::with_exposed_provenance_mut(arena);
        }
        let with_room = self
            .chunks
            .iter_mut()
            .find(|(_, chunk)| chunk.given + size <= LARGE);
        let (at, chunk) = match with_room {
            Some((at, chunk)) => (*at, chunk),
            None => {
                // There may be room for one arena yet.
                let Some(at) = map_large() else {
                    return map(size);
                };
                if self.is_closed() {
                    // SAFETY: it changes where this memory will lie. Where it fails, the pages are small.
                    unsafe {
                        libc::madvise(ptr::with_exposed_provenance_mut(at), LARGE, libc::MADV_HUGEPAGE)
                    };
                }
                let chunk = self.chunks.entry(at).or_insert(Chunk { given: 0, used: 0 });
                (at, chunk)
            }
        };
        let arena = at + chunk.given;
        chunk.given += size;
        chunk.used += 1;
        ptr::with_exposed_provenance_mut(arena)
    }

    /// `false` if it is none of a chunk: it was mapped by itself, as the interpreter's own allocator maps all of them.
    fn give_back(&mut self, arena: *mut c_void, size: usize) -> bool {
        let at = arena.addr() & !(LARGE - 1);
        let Some(chunk) = self.chunks.get_mut(&at) else {
            return false;
        };
        chunk.used -= 1;
        if chunk.used == 0 {
            self.chunks.remove(&at);
            self.free.retain(|(free, _)| free & !(LARGE - 1) != at);
            // SAFETY: nobody uses any of it any more.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(at), LARGE) };
        } else {
            // SAFETY: nobody uses it any more.
            unsafe { libc::madvise(arena, size, libc::MADV_DONTNEED) };
            self.free.push((arena.expose_provenance(), size));
        }
        true
    }
}

/// Null if there is none.
fn map(size: usize) -> *mut c_void {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    match unsafe { libc::mmap(ptr::null_mut(), size, rights, kind, -1, 0) } {
        libc::MAP_FAILED => ptr::null_mut(),
        at => at,
    }
}

/// A large page's worth that begins where one can.
fn map_large() -> Option<usize> {
    let twice = map(2 * LARGE);
    if twice.is_null() {
        return None;
    }
    let begin = twice.expose_provenance();
    let at = begin.next_multiple_of(LARGE);
    for (from, to) in [(begin, at), (at + LARGE, begin + 2 * LARGE)] {
        if from < to {
            // SAFETY: what is before and behind it has just been mapped, and nobody knows of it.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(from), to - from) };
        }
    }
    Some(at)
}

/// Has the heap end in room for what comes, now that there is what forks will share.
pub(crate) fn close() {
    arenas().heap.end = heap::close();
}

/// Puts what lies together into large pages, where the kernel does that (`MADV_COLLAPSE`, since Linux 6.1). It takes tens of milliseconds for as many MiB.
pub(crate) fn collapse() {
    let arenas = arenas();
    if arenas.before.is_none() {
        return;
    }
    let end = arenas.heap.end & !(LARGE - 1);
    let heap = (arenas.heap.start.next_multiple_of(LARGE)..end).step_by(LARGE);
    // A page of which a part is not in use would take memory for that, too.
    let full = arenas.chunks.iter().filter(|(at, chunk)| {
        chunk.given == LARGE && !arenas.free.iter().any(|(free, _)| free & !(LARGE - 1) == **at)
    });
    for at in heap.chain(full.map(|(at, _)| *at)) {
        // SAFETY: it changes where the memory lies, and nothing that a program sees. Where it fails, the pages stay as they are.
        unsafe { libc::madvise(ptr::with_exposed_provenance_mut(at), LARGE, MADV_COLLAPSE) };
    }
}
