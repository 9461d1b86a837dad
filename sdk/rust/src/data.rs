//! The structure that the host fills in before a function begins, and reads when it has ended: the Dandelion SDK's `system.h`.

use core::{cell::UnsafeCell, ptr};

/// An item.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) name: *const u8,
    pub(crate) name_length: usize,
    pub(crate) data: *const u8,
    pub(crate) size: usize,
    pub(crate) key: usize,
}

/// A set.
#[repr(C)]
pub(crate) struct RawSet {
    pub(crate) name: *const u8,
    pub(crate) name_length: usize,
    /// The number of its first item. That of the set behind the last is the number of all.
    pub(crate) first: usize,
}

/// See the module.
#[repr(C)]
pub(crate) struct SystemData {
    pub(crate) exit_code: i32,
    pub(crate) heap_begin: usize,
    pub(crate) heap_end: usize,
    pub(crate) input_sets_length: usize,
    pub(crate) input_sets: *const RawSet,
    pub(crate) output_sets_length: usize,
    pub(crate) output_sets: *mut RawSet,
    pub(crate) inputs: *const Buffer,
    pub(crate) outputs: *const Buffer,
}

/// The host's as well as the function's.
#[repr(transparent)]
pub(crate) struct Shared(UnsafeCell<SystemData>);

// SAFETY: a function has one thread, and the host looks at this while it does not run.
unsafe impl Sync for Shared {}

/// The exit code before the function has said any.
const UNTOUCHED: i32 = 256;

/// Where the host looks for it.
#[unsafe(no_mangle)]
pub(crate) static __dandelion_system_data: Shared = Shared(UnsafeCell::new(SystemData {
    exit_code: UNTOUCHED,
    heap_begin: 0,
    heap_end: 0,
    input_sets_length: 0,
    input_sets: ptr::null(),
    output_sets_length: 0,
    output_sets: ptr::null_mut(),
    inputs: ptr::null(),
    outputs: ptr::null(),
}));

/// Where the heap is.
#[cfg_attr(
    not(target_family = "wasm"),
    expect(dead_code, reason = "elsewhere the heap is another")
)]
pub(crate) fn heap() -> (usize, usize) {
    // SAFETY: the host has written it before any code ran; through a pointer that the compiler knows nothing of.
    let data = unsafe { ptr::read_volatile(__dandelion_system_data.0.get()) };
    (data.heap_begin, data.heap_end)
}

/// Reads what the host has written, and writes what it is to read.
pub(crate) fn with(run: impl FnOnce(&mut SystemData)) {
    let at = __dandelion_system_data.0.get();
    // SAFETY: as above.
    let mut data = unsafe { ptr::read_volatile(at) };
    run(&mut data);
    // SAFETY: as above.
    unsafe { ptr::write_volatile(at, data) };
}
