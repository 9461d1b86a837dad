//! The channel to the backend, for `millpond.backend`.

use crate::bytes;
use exchange::{Broken, KEPT};
use pyo3::{
    buffer::PyBuffer,
    exceptions::{
        PyBufferError, PyConnectionAbortedError, PyConnectionResetError, PyOSError, PyRuntimeError,
        PyValueError,
    },
    ffi,
    prelude::*,
    types::PyBytes,
};
use std::{
    os::fd::{FromRawFd as _, OwnedFd, RawFd},
    slice,
    sync::Arc,
};

/// A link to a service. Any thread may call; each waits for its own, and holds up no other.
#[pyclass(frozen, module = "millpond.native")]
pub(crate) struct Link {
    link: Arc<exchange::Link>,
    /// Whether bodies may stay where they came.
    keeps: bool,
}

/// A call under way. Whoever drops it gives the rest of its reply up.
#[pyclass(frozen, module = "millpond.native")]
pub(crate) struct Call {
    call: exchange::CallHandle,
    keeps: bool,
}

fn raised(broken: Broken) -> PyErr {
    match broken {
        Broken::Gone => PyConnectionResetError::new_err(broken.to_string()),
        Broken::Lost => PyConnectionAbortedError::new_err(broken.to_string()),
        Broken::Failed(reason) => PyRuntimeError::new_err(String::from_utf8_lossy(&reason).into_owned()),
        Broken::TooLarge => PyValueError::new_err(broken.to_string()),
    }
}

#[pymethods]
impl Link {
    /// Of the socket that is its bell; takes the descriptor over. If it `keeps` what it reads, what is read at once and is large stays in the memory that is shared
    /// with the backend, until this process ends. Raises `OSError`.
    #[new]
    fn new(py: Python<'_>, file: RawFd, keeps: bool) -> PyResult<Self> {
        // SAFETY: the caller gives the descriptor away.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        py.detach(|| exchange::Link::open(ring::Bell::new(file)))
            .map(|link| Self {
                link,
                keeps: keeps && bytes::is_so(py),
            })
            .map_err(|error| PyOSError::new_err(error.to_string()))
    }

    /// Whether the backend is known to have gone.
    #[getter]
    fn is_gone(&self) -> bool {
        self.link.is_gone()
    }

    /// Ends it, whatever calls there are.
    fn close(&self) {
        self.link.close();
    }

    /// Begins a call with a head, whose body has `length` bytes and begins with these: the call, and how many of them were sent. Raises
    /// `ConnectionResetError` if the backend had gone before, `ConnectionAbortedError` if it may have heard of the call.
    fn call(&self, py: Python<'_>, head: &[u8], body: PyBuffer<u8>, length: u64) -> PyResult<(Call, usize)> {
        let body = shared(&body)?;
        let made = py.detach(|| self.link.call(head, body, length));
        let (call, sent) = made.map_err(raised)?;
        let keeps = self.keeps;
        Ok((Call { call, keeps }, sent))
    }
}

#[pymethods]
impl Call {
    /// Sends more of the body: how many bytes of these, 0 if a reply has come instead. Raises as `Link.call`.
    fn send(&self, py: Python<'_>, body: PyBuffer<u8>) -> PyResult<usize> {
        let body = shared(&body)?;
        py.detach(|| self.call.send(body)).map_err(raised)
    }

    /// Waits for the reply's head: that, and the bytes of its body, if they are known. Raises `RuntimeError`, whose text is the backend's
    /// JSON, where there is none.
    fn head<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Option<u64>)> {
        let head = py.detach(|| self.call.head()).map_err(raised)?;
        Ok((PyBytes::new(py, &head.head), head.length))
    }

    /// The next bytes of the reply's body, at most so many: none at its end. Raises as `head` where it breaks off; what came before comes before.
    fn read<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Bound<'py, PyBytes>> {
        if self.keeps
            && most as u64 >= *KEPT.start()
            && let Some(kept) = py.detach(|| self.call.keep(most)).map_err(raised)?
        {
            return Ok(bytes::lying(py, &kept).unwrap_or_else(|| bytes::copied(py, &kept)));
        }
        let length = most.min(ffi::PY_SSIZE_T_MAX as usize) as ffi::Py_ssize_t;
        // SAFETY: a new object without contents, which nobody else has, or null with an exception.
        let bytes = unsafe {
            let bytes = ffi::PyBytes_FromStringAndSize(std::ptr::null(), length);
            Bound::from_owned_ptr_or_err(py, bytes)?.cast_into_unchecked::<PyBytes>()
        };
        // SAFETY: it has so many bytes, which are written here alone, before anybody sees it.
        let to = unsafe {
            let start = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<u8>();
            slice::from_raw_parts_mut(start, length as usize)
        };
        let count = py.detach(|| fill(&self.call, to)).map_err(raised)?;
        if count < to.len() {
            return Ok(PyBytes::new(py, &to[..count]));
        }
        Ok(bytes)
    }

    /// The same into a buffer: how many bytes.
    fn readinto(&self, py: Python<'_>, buffer: PyBuffer<u8>) -> PyResult<usize> {
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the buffer is not writable bytes in a row",
            ));
        }
        // SAFETY: the buffer is held for the call, contiguous and writable; other threads of the interpreter that write to it meanwhile do so at their
        // own peril, as with any `readinto`: bytes have no other invariant.
        let to = unsafe { slice::from_raw_parts_mut(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) };
        py.detach(|| fill(&self.call, to)).map_err(raised)
    }
}

/// As much as there is room for, or until the end, or until it breaks off: who reads on is told.
fn fill(call: &exchange::CallHandle, to: &mut [u8]) -> Result<usize, Broken> {
    let mut filled = 0;
    while filled < to.len() {
        match call.read(&mut to[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(_) if filled > 0 => break,
            Err(broken) => return Err(broken),
        }
    }
    Ok(filled)
}

fn shared(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the body is not bytes in a row"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer is held as long as the slice, and contiguous. Whoever changes it meanwhile changes what is sent, and nothing else.
    Ok(unsafe { slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) })
}
