//! What the runtime for Python cannot say in Python: to fork into namespaces of its own, to give up what that took, where what it allocates and its libraries lie and what of the heap it keeps, to seed NumPy in a fork, and the channel to the backend.

mod arenas;
mod bytes;
mod fork;
mod heap;
mod libraries;
mod link;
mod twister;

use pyo3::{exceptions::PyOSError, prelude::*};
use std::io;

fn check(result: libc::c_long) -> PyResult<()> {
    if result < 0 {
        Err(PyOSError::new_err(io::Error::last_os_error().raw_os_error()))
    } else {
        Ok(())
    }
}

#[pymodule]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(arenas::gather, module)?)?;
    module.add_function(wrap_pyfunction!(fork::obey, module)?)?;
    module.add_function(wrap_pyfunction!(fork::enclose, module)?)?;
    module.add_function(wrap_pyfunction!(heap::rest, module)?)?;
    module.add_function(wrap_pyfunction!(twister::know, module)?)?;
    module.add_function(wrap_pyfunction!(twister::reseed, module)?)?;
    module.add_class::<link::Link>()?;
    module.add_class::<link::Call>()?;
    // Before any process is forked that would have to find out for itself.
    bytes::is_so(module.py());
    Ok(())
}
