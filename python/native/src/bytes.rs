//! `bytes` that lie where the backend has put them, in the memory that it shares with this process.
//!
//! An object of `bytes` is a head and its bytes behind that, in one piece of memory. So a reply's body for which there is room before it becomes an object as the
//! head is written there, and nothing is copied. The interpreter never frees it, since it has more references than there can be: its memory is not of the
//! interpreter's allocator, and the backend has given it away for good. A fork of this process has the same object, not a copy: both count references in the same memory, and
//! where one of these is lost between them, it is one of very many.

use exchange::{BEFORE, BEHIND, Kept};
use pyo3::{ffi, prelude::*, sync::PyOnceLock, types::PyBytes};
use std::ptr;

/// What lies before the bytes, in interpreters whose `bytes` look like this: see [`is_so`].
#[repr(C)]
struct Head {
    references: isize,
    kind: *mut ffi::PyTypeObject,
    length: ffi::Py_ssize_t,
    hash: isize,
}

const _: () = assert!(size_of::<Head>() == BEFORE as usize && BEHIND == 1);

/// Not of a `bytes` that has been hashed.
const NO_HASH: isize = -1;

/// References that nobody gives back.
const FOREVER: isize = 1 << 40;

/// An object of this body, if it can lie there.
pub(crate) fn lying<'py>(py: Python<'py>, kept: &Kept) -> Option<Bound<'py, PyBytes>> {
    let behind = kept.memory.length().checked_sub(BEFORE as usize + kept.length)?;
    if behind < BEHIND as usize || !is_so(py) {
        return None;
    }
    let head = kept.memory.start().cast::<Head>();
    if !head.is_aligned() {
        return None;
    }
    // SAFETY: the memory is there for good and is as long as was checked, and what is before and behind the body is nobody else's. A `bytes` of this
    // interpreter looks like this, which was checked too; it has the reference that is owned here.
    unsafe {
        head.write(Head {
            references: FOREVER,
            kind: &raw mut ffi::PyBytes_Type,
            length: kept.length as ffi::Py_ssize_t,
            hash: NO_HASH,
        });
        head.cast::<u8>().add(BEFORE as usize + kept.length).write(0);
        Some(Bound::from_owned_ptr(py, head.as_ptr().cast()).cast_into_unchecked())
    }
}

/// A copy of it.
pub(crate) fn copied<'py>(py: Python<'py>, kept: &Kept) -> Bound<'py, PyBytes> {
    // SAFETY: the body lies there, and nobody changes it any more.
    let body = unsafe {
        let at = kept.memory.start().add(BEFORE as usize);
        std::slice::from_raw_parts(at.as_ptr(), kept.length)
    };
    PyBytes::new(py, body)
}

/// Whether this interpreter's `bytes` look like [`Head`] and bytes behind it: those of CPython 3.11 do. Not only its version
/// says so, an object of it does. Later ones count references in other ways, and copy.
pub(crate) fn is_so(py: Python<'_>) -> bool {
    static IS_SO: PyOnceLock<bool> = PyOnceLock::new();
    *IS_SO.get_or_init(py, || {
        let version = py.version_info();
        let is_known = (version.major, version.minor) == (3, 11);
        is_known && looks_so(py).unwrap_or(false)
    })
}

fn looks_so(py: Python<'_>) -> PyResult<bool> {
    const TEXT: &[u8] = b"as others do";
    let kind = py.get_type::<PyBytes>();
    let basic: usize = kind.getattr("__basicsize__")?.extract()?;
    let implementation: String = py
        .import("sys")?
        .getattr("implementation")?
        .getattr("name")?
        .extract()?;
    if implementation != "cpython" || basic != size_of::<Head>() + BEHIND as usize {
        return Ok(false);
    }
    let object = PyBytes::new(py, TEXT);
    let hash = object.hash()?;
    // SAFETY: an object is as long as its type says, which is a head and one byte at least.
    let (head, references) = unsafe {
        let object = object.as_ptr();
        (ptr::read(object.cast::<Head>()), ffi::Py_REFCNT(object))
    };
    let bytes = object.as_bytes().as_ptr();
    Ok(head.references == references
        && ptr::eq(head.kind, &raw mut ffi::PyBytes_Type)
        && head.length == TEXT.len() as ffi::Py_ssize_t
        && head.hash == hash
        && bytes.addr() == object.as_ptr().addr() + size_of::<Head>())
}
