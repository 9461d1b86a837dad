//! NumPy's global generator, of which each fork needs another state.
//!
//! To seed it by `numpy.random.seed` goes through much of NumPy's Python: 120 pages of a fork's are copied for that, in 0.7 ms, be there a draw or not. What it comes to
//! is 624 words from the kernel's generator, which are written here to where they belong.

use pyo3::{
    ffi::{self, c_str},
    prelude::*,
    types::PyCapsule,
};
use std::{
    ffi::{c_int, c_void},
    mem::MaybeUninit,
    ptr::NonNull,
    slice,
    sync::{Mutex, PoisonError},
};

const WORDS: usize = 624;

/// NumPy's `mt19937_state`.
#[repr(C)]
struct State {
    key: [u32; WORDS],
    /// How many words were drawn since they were all made anew.
    drawn: c_int,
}

/// NumPy's `bitgen_t`, whose first field is all that is read.
#[repr(C)]
struct Generator {
    state: *mut c_void,
}

struct Known {
    state: NonNull<State>,
    /// Who has the state.
    _owner: Py<PyAny>,
}

// SAFETY: only who holds the interpreter touches it, as NumPy does under a lock of its own.
unsafe impl Send for Known {}

static KNOWN: Mutex<Option<Known>> = Mutex::new(None);

/// Notes where the state of a Mersenne Twister of NumPy's lies, by its capsule, if what lies there is what it says of itself: the words of its key, as bytes, and
/// how many of them were drawn.
#[pyfunction]
pub(crate) fn know(owner: Py<PyAny>, capsule: &Bound<'_, PyCapsule>, key: &[u8], drawn: c_int) {
    // SAFETY: the interpreter compares the capsule's name with this one.
    let generator = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), c_str!("BitGenerator").as_ptr()) };
    if generator.is_null() {
        // SAFETY: this thread holds the interpreter.
        unsafe { ffi::PyErr_Clear() };
        return;
    }
    // SAFETY: a capsule of this name leads to a generator, and a generator to its state; the caller says of which kind that is. It has so many words at least.
    let is_so = |state: &NonNull<State>| unsafe {
        let state = state.as_ref();
        let words = slice::from_raw_parts(state.key.as_ptr().cast::<u8>(), size_of_val(&state.key));
        words == key && state.drawn == drawn
    };
    // SAFETY: as above.
    let state = unsafe { NonNull::new((*generator.cast::<Generator>()).state.cast::<State>()) };
    if let Some(state) = state.filter(|state| state.is_aligned()).filter(is_so) {
        let known = Known { state, _owner: owner };
        *KNOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
    }
}

/// Gives it another state, once: what a request makes of NumPy is not known any more. `false` if that has to be done in another way.
#[pyfunction]
pub(crate) fn reseed() -> bool {
    let Some(known) = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return false;
    };
    let mut fresh = MaybeUninit::<[u32; WORDS]>::uninit();
    let (start, length) = (fresh.as_mut_ptr().cast::<u8>(), size_of_val(&fresh));
    let mut filled = 0;
    while filled < length {
        // SAFETY: it writes as many bytes as there are left.
        let more = unsafe { libc::getrandom(start.add(filled).cast(), length - filled, 0) };
        match usize::try_from(more) {
            Ok(more) => filled += more,
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    // SAFETY: all of it was filled.
    let mut key = unsafe { fresh.assume_init() };
    // Not all zeros, as NumPy sees to it.
    key[0] = 0x8000_0000;
    // SAFETY: it is a state, which its owner keeps, and this thread holds the interpreter. All words are to be made anew before the first is drawn.
    unsafe {
        known.state.write(State {
            key,
            drawn: WORDS as c_int,
        });
    }
    true
}
