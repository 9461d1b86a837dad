//! The heap: what the host leaves free of the function's memory.
//!
//! Pieces are of classes, four for each power of two, and those that were given back are in a list of their class: one is found without a search, and
//! is a quarter larger than asked at most.

use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr,
};

/// The smallest piece, and what its size and alignment are multiples of.
const UNIT: usize = 16;

const CLASSES: usize = usize::BITS as usize * 4 + 4;

/// A piece that was given back.
struct Free {
    next: *mut Free,
}

struct State {
    /// Where what was never handed out begins; 0 before the first piece.
    next: usize,
    end: usize,
    free: [*mut Free; CLASSES],
}

pub(crate) struct Heap {
    state: UnsafeCell<State>,
    range: fn() -> (usize, usize),
}

// SAFETY: a function has one thread.
unsafe impl Sync for Heap {}

#[cfg(all(target_family = "wasm", not(test)))]
#[global_allocator]
static HEAP: Heap = Heap::new(crate::data::heap);

impl Heap {
    /// In this range, which is asked for when the first piece is.
    #[cfg_attr(
        not(target_family = "wasm"),
        allow(dead_code, reason = "elsewhere the heap is another")
    )]
    pub(crate) const fn new(range: fn() -> (usize, usize)) -> Self {
        let state = State {
            next: 0,
            end: 0,
            free: [ptr::null_mut(); CLASSES],
        };
        Self {
            state: UnsafeCell::new(state),
            range,
        }
    }
}

/// The class of the smallest pieces of so many bytes. The first four are multiples of a unit.
fn class(size: usize) -> usize {
    let last = size.saturating_sub(1);
    if last < 4 * UNIT {
        return last / UNIT;
    }
    let order = last.ilog2() as usize;
    4 * order + (last >> (order - 2) & 3)
}

/// Bytes of a class's pieces.
fn bytes(class: usize) -> usize {
    match class {
        0..4 => (class + 1) * UNIT,
        _ => (class % 4 + 5) << (class / 4 - 2),
    }
}

// SAFETY: pieces are within the range that is nobody else's, and none is handed out twice before it is given back.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread, and nothing here calls anything that allocates.
        let state = unsafe { &mut *self.state.get() };
        if state.next == 0 {
            (state.next, state.end) = (self.range)();
        }
        let class = class(layout.size());
        let alignment = layout.align().max(UNIT);
        let head = state.free[class];
        if !head.is_null() && head.addr().is_multiple_of(alignment) {
            // SAFETY: a piece that was given back, in which `dealloc` has written this.
            state.free[class] = unsafe { (*head).next };
            return head.cast();
        }
        let at = state.next.checked_next_multiple_of(alignment);
        let Some((at, end)) = at.and_then(|at| Some((at, at.checked_add(bytes(class))?))) else {
            return ptr::null_mut();
        };
        if end > state.end {
            return ptr::null_mut();
        }
        state.next = end;
        ptr::with_exposed_provenance_mut(at)
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as above.
        let state = unsafe { &mut *self.state.get() };
        let class = class(layout.size());
        let piece: *mut Free = piece.cast();
        // SAFETY: the piece is nobody's any more, and has room and alignment for this.
        unsafe {
            piece.write(Free {
                next: state.free[class],
            });
        }
        state.free[class] = piece;
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's alignment is one.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if class(size) == class(layout.size()) {
            return piece;
        }
        // SAFETY: as the caller promises; both pieces have the bytes that are copied.
        unsafe {
            let other = self.alloc(wanted);
            if !other.is_null() {
                ptr::copy_nonoverlapping(piece, other, layout.size().min(size));
                self.dealloc(piece, layout);
            }
            other
        }
    }
}
